//! The volumes in use on a shard that programs map, each with the connection to its mapper.
//!
//! Invariants:
//! - MAPPERS1. A volume has one mapper, and the mapper one connection for it.
//! - MAPPERS2. The gate of the volume stands above each file that its mapper passes: behind a closed gate nothing reaches it.
//! - MAPPERS3. A volume that is closed holds no device of another one: a disk below that can be opened anew, and another volume removed.

use futures_util::future::AbortHandle;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use uuid::Uuid;
use varve_block::Device;
use varve_target::delegate::{Delegate, DelegateStatus};

/// The volumes that programs map, by their ids.
#[derive(Default)]
pub struct Mappers {
    open: RefCell<BTreeMap<Uuid, OpenMapper>>,
    /// What the mapper of a volume may name, by the ids of the volumes.
    devices: RefCell<BTreeMap<Uuid, Vec<(String, Device)>>>,
}

/// A volume in use, and its mapper.
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

impl Mappers {
    /// The device of the volume, if it is in use.
    pub(crate) fn device(&self, volume: Uuid) -> Option<Device> {
        self.open.borrow().get(&volume).map(|open| Device::new(open.delegate.clone()))
    }

    /// What the mapper of a volume may name, before the volume is taken into use.
    pub(crate) fn give(&self, volume: Uuid, devices: Vec<(String, Device)>) {
        self.devices.borrow_mut().insert(volume, devices);
    }

    /// What the mapper of a volume may name.
    pub(crate) fn given(&self, volume: Uuid) -> Vec<(String, Device)> {
        self.devices.borrow().get(&volume).cloned().unwrap_or_default()
    }

    /// The volume is in use from now on.
    pub(crate) fn insert(&self, volume: Uuid, open: OpenMapper) {
        let replaced = self.open.borrow_mut().insert(volume, open);
        assert!(replaced.is_none(), "MAPPERS1: {volume}");
    }

    /// How the mapper of a volume does, if the volume has one and is in use.
    pub fn facts(&self, volume: Uuid) -> Option<MapperFacts> {
        let open = self.open.borrow();
        let open = open.get(&volume)?;
        let status = open.delegate.status();
        let why_away = open.refusal.borrow().clone().or_else(|| open.delegate.why_away());
        Some(MapperFacts { status, why_away: why_away.filter(|_| !status.is_connected) })
    }

    /// What asks the mapper of the volume whether it answers, if the volume has one and is in use.
    pub(crate) fn delegate(&self, volume: Uuid) -> Option<Delegate> {
        self.open.borrow().get(&volume).map(|open| open.delegate.clone())
    }

    /// Requests that wait for a mapper that is away fail from now on, or wait again.
    pub(crate) fn let_fail(&self, volume: Uuid, lets_fail: bool) {
        if let Some(open) = self.open.borrow().get(&volume) {
            open.delegate.let_fail(lets_fail);
        }
    }

    /// Closes the connection to a volume's mapper. What was not flushed before may be lost.
    pub(crate) fn disconnect(&self, volume: Uuid) {
        let open = self.open.borrow_mut().remove(&volume);
        drop(open);
    }

    /// As [`Mappers::disconnect`], for a volume that is closed (MAPPERS3).
    pub(crate) fn close(&self, volume: Uuid) {
        self.disconnect(volume);
        let devices = self.devices.borrow_mut().remove(&volume);
        drop(devices);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_block::IoError;
    use varve_target::ErrorTarget;

    #[test]
    fn a_volume_that_is_closed_releases_what_its_mapper_may_name() {
        let (mappers, id) = (Mappers::default(), Uuid::nil());
        let target = Rc::new(ErrorTarget::new(4096, 512, IoError::Gone));
        mappers.give(id, vec![("data/v".to_owned(), Device::from_rc(Rc::clone(&target) as _))]);
        mappers.disconnect(id);
        assert_eq!(mappers.given(id).len(), 1, "its mapper connects again");
        mappers.close(id);
        assert_eq!(Rc::strong_count(&target), 1, "MAPPERS3");
    }
}
