//! The things of one shard: volumes and pools in use, where their doors lead, and listening sockets.

use super::doors::nbd::NbdSocket;
use super::doors::top::Top;
use super::opened::children::Index;
use super::served::Served;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use uuid::Uuid;
use varve_block::{Device, Notify, Suspended};
use varve_export::nbd::Activity;

/// The things of one shard.
#[derive(Default)]
pub struct ShardState {
    /// What volumes and pools have open.
    pub(crate) opened: Index,
    /// Volumes and pools, by identity.
    pub(crate) served: RefCell<BTreeMap<Uuid, Served>>,
    /// Where doors of volumes lead: kept while a volume is out of use, so that they lead to it when it is in use again.
    pub tops: RefCell<BTreeMap<Uuid, Top>>,
    /// Doors whose requests wait until their volumes are opened anew.
    pub held: RefCell<Vec<Suspended>>,
    /// Volumes that are being opened anew, whose doors wait.
    pub aside: RefCell<BTreeSet<Uuid>>,
    /// They are open, or cannot be used.
    pub resumed: Notify,
    /// Listening NBD sockets, by address.
    pub sockets: RefCell<BTreeMap<String, Rc<NbdSocket>>>,
    /// Which of their exports are active.
    pub activity: Activity,
}

impl ShardState {
    /// Serves a volume or pool from now on.
    pub(crate) fn serve(&self, id: Uuid, served: Served) {
        let replaced = self.served.borrow_mut().insert(id, served);
        assert!(replaced.is_none(), "THINVOL1: a volume is served once");
    }

    /// A volume of a pool is not served any more.
    pub(crate) fn forget(&self, id: Uuid) {
        self.served.borrow_mut().remove(&id);
        self.tops.borrow_mut().remove(&id);
    }

    /// Takes away a volume, or a pool with its volumes, as far as they are meant: they are served no more.
    pub(crate) fn take(&self, id: Uuid, is_meant: impl Fn(&Served) -> bool) -> Vec<Served> {
        let is_of = |known: Uuid, served: &Served| known == id || served.below().id == id;
        let mut all = self.served.borrow_mut();
        let taken = all.extract_if(.., |known, served| is_of(*known, served) && is_meant(served));
        taken.map(|(_, served)| served).collect()
    }

    /// Where the doors of a volume lead: to `base` if it is new.
    pub(super) fn top(&self, volume: Uuid, base: &Device) -> Top {
        self.tops.borrow_mut().entry(volume).or_insert_with(|| Top::new(base)).clone()
    }

    /// The socket that listens at `address`, if it is one of this shard.
    pub fn socket(&self, address: &str) -> Option<Rc<NbdSocket>> {
        self.sockets.borrow().get(address).cloned()
    }
}
