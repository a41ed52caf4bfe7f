//! What the daemon keeps in its state directory.

use super::archive::Archive;
use super::remembered::Remembered;
use futures_util::lock::Mutex;
use std::cell::RefCell;
use std::path::PathBuf;

/// As it is in memory.
pub(crate) struct Memory {
    pub(crate) state_dir: PathBuf,
    pub(crate) remembered: RefCell<Remembered>,
    /// Held by the one that saves.
    pub(crate) saving: Mutex<()>,
    pub(crate) archive: Archive,
}

impl Memory {
    pub(crate) fn new(state_dir: PathBuf, remembered: Remembered) -> Self {
        let remembered = RefCell::new(remembered);
        Self { state_dir, remembered, saving: Mutex::new(()), archive: Archive::default() }
    }
}
