//! What the daemon keeps in its state directory.

use super::archive::Archive;
use super::remembered::Remembered;
use futures_util::lock::Mutex;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use varve_volume::Host;

/// As it is in memory.
pub(crate) struct Memory {
    pub(crate) state_dir: PathBuf,
    pub(crate) remembered: RefCell<Remembered>,
    /// Held by the one that saves.
    pub(crate) saving: Mutex<()>,
    pub(crate) archive: Rc<Archive>,
}

impl Memory {
    pub(crate) fn new(host: &Host, state_dir: PathBuf, remembered: Remembered) -> Self {
        let (remembered, archive) = (RefCell::new(remembered), Archive::new(host.clone(), state_dir.clone()));
        Self { state_dir, remembered, saving: Mutex::new(()), archive }
    }
}
