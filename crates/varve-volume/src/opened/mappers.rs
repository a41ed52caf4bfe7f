//! A volume in use that a program maps, with the connection to its mapper.
//!
//! Invariants:
//! - MAPPERS1. A volume has one mapper, and the mapper one connection for it.
//! - MAPPERS2. The gate of the volume stands above each file that its mapper passes: behind a closed gate nothing reaches it.
//! - MAPPERS3. A volume that is closed holds no device of another one: a disk below that can be opened anew, and another volume removed.

use futures_util::future::AbortHandle;
use std::cell::RefCell;
use std::rc::Rc;
use varve_block::Device;
use varve_target::delegate::{Delegate, DelegateStatus};

/// The program that maps a volume, if one does.
pub(crate) struct Mapper {
    open: RefCell<Option<OpenMapper>>,
    /// What it may name.
    devices: RefCell<Vec<(String, Device)>>,
}

/// A mapper, and what connects to it.
pub(crate) struct OpenMapper {
    pub(crate) delegate: Delegate,
    /// Why there is no connection, if one was refused.
    pub(crate) refusal: Rc<RefCell<Option<String>>>,
    /// Keeps the connection.
    pub(crate) task: AbortHandle,
}

impl Drop for OpenMapper {
    fn drop(&mut self) {
        self.task.abort();
        self.delegate.disconnect();
    }
}

/// How a volume's mapper does.
#[derive(Clone, Debug)]
pub struct MapperFacts {
    /// What the mapper has been asked, and whether it is there.
    pub status: DelegateStatus,
    /// Why there is no connection, as far as that is known.
    pub why_away: Option<String>,
}

impl Mapper {
    /// What a mapper may name.
    pub(crate) fn new(devices: Vec<(String, Device)>) -> Self {
        Self { open: RefCell::default(), devices: RefCell::new(devices) }
    }

    /// The device of the volume, if there is one.
    pub(crate) fn device(&self) -> Option<Device> {
        self.delegate().map(Device::new)
    }

    /// What the mapper may name.
    pub(crate) fn devices(&self) -> Vec<(String, Device)> {
        self.devices.borrow().clone()
    }

    /// The volume is mapped from now on.
    pub(crate) fn insert(&self, open: OpenMapper) {
        let replaced = self.open.replace(Some(open));
        assert!(replaced.is_none(), "MAPPERS1");
    }

    /// How the mapper does, if there is one.
    pub(crate) fn facts(&self) -> Option<MapperFacts> {
        let open = self.open.borrow();
        let open = open.as_ref()?;
        let status = open.delegate.status();
        let why_away = open.refusal.borrow().clone().or_else(|| open.delegate.why_away());
        Some(MapperFacts { status, why_away: why_away.filter(|_| !status.is_connected) })
    }

    /// What asks the mapper whether it answers, if there is one.
    pub(crate) fn delegate(&self) -> Option<Delegate> {
        self.open.borrow().as_ref().map(|open| open.delegate.clone())
    }

    /// Requests that wait for a mapper that is away fail from now on, or wait again.
    pub(crate) fn let_fail(&self, lets_fail: bool) {
        if let Some(delegate) = self.delegate() {
            delegate.let_fail(lets_fail);
        }
    }

    /// Closes the connection. What was not flushed before may be lost.
    pub(crate) fn disconnect(&self) {
        drop(self.open.take());
    }

    /// As [`Mapper::disconnect`], for a volume that is closed (MAPPERS3).
    pub(crate) fn close(&self) {
        self.disconnect();
        drop(self.devices.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_block::IoError;
    use varve_target::ErrorTarget;

    #[test]
    fn a_volume_that_is_closed_releases_what_its_mapper_may_name() {
        let target = Rc::new(ErrorTarget::new(4096, 512, IoError::Gone));
        let mapper = Mapper::new(vec![("data/v".to_owned(), Device::from_rc(Rc::clone(&target) as _))]);
        mapper.disconnect();
        assert_eq!(mapper.devices().len(), 1, "its mapper connects again");
        mapper.close();
        assert_eq!(Rc::strong_count(&target), 1, "MAPPERS3");
    }
}
