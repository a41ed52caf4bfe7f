//! Doors of a volume's snapshots: where they lead, also after what serves these was opened anew.
//!
//! Invariant VIEWS1: what serves a volume is closed only when no request to a snapshot of it is under way. Doors of snapshots lead to errors
//! from then on, and to the snapshots again when the volume is in use again: none reaches a store that was closed, or holds its disks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use uuid::Uuid;
use varve_block::{Device, IoError, Suspended, Switch};
use varve_target::ErrorTarget;
use varve_target::snapshot::StoreError;

/// A snapshot by its store, or its pool, and its number there.
pub(crate) type Key = (Uuid, u64);

/// Where the doors of a volume's snapshots lead. Cloning shares it.
#[derive(Clone, Default)]
pub(crate) struct Views(Rc<RefCell<BTreeMap<Key, View>>>);

/// Where the doors of one snapshot lead.
struct View {
    switch: Switch,
    /// Whether it leads to errors still though the volume is in use: an origin of the snapshot is missing.
    is_lost: bool,
}

impl Views {
    /// Where doors of a snapshot lead: to what `find` has if there are none yet.
    pub(crate) fn lead(
        &self,
        key: Key,
        find: impl FnOnce() -> Result<Device, StoreError>,
    ) -> Result<Switch, StoreError> {
        if let Some(known) = self.0.borrow().get(&key) {
            return Ok(known.switch.clone());
        }
        let switch = Switch::new(find()?);
        self.0.borrow_mut().insert(key, View { switch: switch.clone(), is_lost: false });
        Ok(switch)
    }

    /// Leads all of them to what `find` has now (VIEWS1).
    pub(crate) async fn turn(&self, find: impl Fn(Key) -> Result<Device, StoreError>) {
        self.0.borrow_mut().values_mut().for_each(|view| view.is_lost = true);
        self.turn_lost(find).await;
    }

    /// Leads those to what `find` has now that lead to errors still.
    pub(crate) async fn turn_lost(&self, find: impl Fn(Key) -> Result<Device, StoreError>) {
        let lost: Vec<(Key, Switch)> = {
            let views = self.0.borrow();
            let lost = views.iter().filter(|(_, view)| view.is_lost);
            lost.map(|(key, view)| (*key, view.switch.clone())).collect()
        };
        for (key, switch) in lost {
            match find(key) {
                Ok(device) => {
                    switch.suspend().await.replace(device);
                    if let Some(view) = self.0.borrow_mut().get_mut(&key) {
                        view.is_lost = false;
                    }
                }
                Err(StoreError::NotFound) => self.forget(key),
                Err(_) => {}
            }
        }
    }

    /// Forgets a snapshot that was removed, or is to have other access: its doors stay as they are.
    pub(crate) fn forget(&self, key: Key) {
        self.0.borrow_mut().remove(&key);
    }

    /// Forgets all snapshots of a store.
    pub(crate) fn forget_store(&self, id: Uuid) {
        self.0.borrow_mut().retain(|(store, _), _| *store != id);
    }

    /// Where all of them lead.
    pub(crate) fn all(&self) -> Vec<Switch> {
        self.0.borrow().values().map(|view| view.switch.clone()).collect()
    }
}

/// Leads doors that are held back to an error; what they led to.
pub(crate) fn lead_to_errors(suspended: &[Suspended], error: IoError) -> Vec<Device> {
    let lead = |suspended: &Suspended| {
        let before = suspended.current();
        let shape = before.shape();
        suspended.replace(Device::new(ErrorTarget::new(shape.size, shape.block_size, error)));
        before
    };
    suspended.iter().map(lead).collect()
}
