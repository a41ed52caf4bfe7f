//! Doors of a volume's snapshots: where they lead, also after what serves these was opened anew.
//!
//! Invariant VIEWS1: what serves a volume is closed only when no request to a snapshot of it is under way. Doors of snapshots lead to errors
//! from then on, and to the snapshots again when the volume is in use again: none reaches a store that was closed, or holds its disks.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use uuid::Uuid;
use varve_block::{Device, IoError, Suspended, Switch};
use varve_target::ErrorTarget;
use varve_target::snapshot::StoreError;

/// A snapshot by its store, or its pool, and its number there.
pub(super) type Key = (Uuid, u64);

/// Where the doors of a volume's snapshots lead. Cloning shares it.
#[derive(Clone, Default)]
pub(super) struct Views {
    switches: Rc<RefCell<BTreeMap<Key, Switch>>>,
    /// Those that lead to errors still though the volume is in use: an origin of theirs is missing.
    lost: Rc<RefCell<BTreeSet<Key>>>,
}

impl Views {
    /// Where doors of a snapshot lead: to what `find` has if there are none yet.
    pub(super) fn lead(
        &self,
        key: Key,
        find: impl FnOnce() -> Result<Device, StoreError>,
    ) -> Result<Switch, StoreError> {
        if let Some(known) = self.switches.borrow().get(&key) {
            return Ok(known.clone());
        }
        let switch = Switch::new(find()?);
        self.switches.borrow_mut().insert(key, switch.clone());
        Ok(switch)
    }

    /// Leads all of them to what `find` has now (VIEWS1).
    pub(super) async fn turn(&self, find: impl Fn(Key) -> Result<Device, StoreError>) {
        *self.lost.borrow_mut() = self.switches.borrow().keys().copied().collect();
        self.turn_lost(find).await;
    }

    /// Leads those to what `find` has now that lead to errors still.
    pub(super) async fn turn_lost(&self, find: impl Fn(Key) -> Result<Device, StoreError>) {
        let lost: Vec<Key> = self.lost.borrow().iter().copied().collect();
        for key in lost {
            let Some(switch) = self.switches.borrow().get(&key).cloned() else { continue };
            match find(key) {
                Ok(device) => switch.suspend().await.replace(device),
                Err(StoreError::NotFound) => self.forget(key),
                Err(_) => continue,
            }
            self.lost.borrow_mut().remove(&key);
        }
    }

    /// Forgets a snapshot that was removed, or is to have other access: its doors stay as they are.
    pub(super) fn forget(&self, key: Key) {
        self.switches.borrow_mut().remove(&key);
        self.lost.borrow_mut().remove(&key);
    }

    /// Forgets all snapshots of a store.
    pub(super) fn forget_store(&self, id: Uuid) {
        self.switches.borrow_mut().retain(|(store, _), _| *store != id);
    }

    /// Where all of them lead.
    pub(super) fn all(&self) -> Vec<Switch> {
        self.switches.borrow().values().cloned().collect()
    }
}

/// Leads doors that are held back to an error; what they led to.
pub(super) fn lead_to_errors(suspended: &[Suspended], error: IoError) -> Vec<Device> {
    let lead = |suspended: &Suspended| {
        let before = suspended.current();
        let shape = before.shape();
        suspended.replace(Device::new(ErrorTarget::new(shape.size, shape.block_size, error)));
        before
    };
    suspended.iter().map(lead).collect()
}
