//! What lives on one shard: its volumes with their snapshots, and its listening sockets.
//!
//! Code on a shard reaches it through [`here`]; code elsewhere sends a future with `ShardHandle::run`.
//!
//! Invariant H1: what is here is made, used and dropped on this shard's thread.

mod background;
mod bell;
pub(crate) mod clear;
pub(crate) mod crowd;
pub(crate) mod family;
pub(crate) mod growth;
pub(crate) mod handle;
pub(crate) mod health;
pub(crate) mod metadata;
pub(crate) mod nbd;
pub(crate) mod open_pool;
pub(crate) mod open_store;
pub(crate) mod origins;
mod patient;
pub(crate) mod pool_check;
pub(crate) mod reconcile;
pub(crate) mod reopen;
pub(crate) mod retire;
pub(crate) mod states;
pub(crate) mod thin;
pub(crate) mod traffic;
pub(crate) mod turns;

pub(crate) use handle::{NoAnswer, ShardHandle};

use family::Family;
use nbd::NbdSocket;
use open_pool::OpenPool;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use uuid::Uuid;
use varve_block::{Device, Suspended, Switch};
use varve_export::nbd::Activity;

/// The shard's own things.
#[derive(Default)]
pub(crate) struct Here {
    /// Volumes, by identity.
    pub(crate) families: RefCell<BTreeMap<Uuid, Rc<Family>>>,
    /// Thin pools, by identity.
    pub(crate) pools: RefCell<BTreeMap<Uuid, Rc<OpenPool>>>,
    /// Where doors of volumes lead: kept while a volume is out of use, so that they lead to it when it is in use again.
    pub(crate) tops: RefCell<BTreeMap<Uuid, Switch>>,
    /// Doors whose requests wait until their volumes are opened anew.
    pub(crate) held: RefCell<Vec<(Uuid, Suspended)>>,
    /// Listening NBD sockets, by address.
    pub(crate) sockets: RefCell<BTreeMap<String, Rc<NbdSocket>>>,
    /// Which of their exports are active.
    pub(crate) activity: Activity,
}

thread_local! {
    static HERE: Rc<Here> = Rc::default();
}

/// The things of the shard that runs this code (H1).
pub(crate) fn here() -> Rc<Here> {
    HERE.with(Rc::clone)
}

impl Here {
    /// The volume, if it is active on this shard.
    pub(crate) fn family(&self, volume: Uuid) -> Option<Rc<Family>> {
        let family = self.families.borrow().get(&volume).cloned();
        family.filter(|family| is_usable(family.health()))
    }

    /// The pool, if it is active on this shard.
    pub(crate) fn pool(&self, pool: Uuid) -> Option<Rc<OpenPool>> {
        let pool = self.pools.borrow().get(&pool).cloned();
        pool.filter(|open| is_usable(&open.health))
    }

    /// Takes away a volume, or all volumes of a pool: they are served no more.
    pub(crate) fn take_families(&self, subject: Uuid) -> Vec<Rc<Family>> {
        let is_of = |family: &Rc<Family>| family.id() == subject || family.pool() == Some(subject);
        let mut families = self.families.borrow_mut();
        families.extract_if(.., |_, family| is_of(family)).map(|(_, family)| family).collect()
    }

    /// The switch of a volume, which leads to `base` if it is new.
    pub(crate) fn top(&self, volume: Uuid, base: &Device) -> Switch {
        self.tops.borrow_mut().entry(volume).or_insert_with(|| Switch::new(base.clone())).clone()
    }

    /// The socket that listens at `address`, if it is one of this shard.
    pub(crate) fn socket(&self, address: &str) -> Option<Rc<NbdSocket>> {
        self.sockets.borrow().get(address).cloned()
    }
}

/// Whether a volume has not failed. Work that panics from now on takes it out of use.
fn is_usable(health: &health::Health) -> bool {
    handle::using(health);
    !health.is_failed()
}
