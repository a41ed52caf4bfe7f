//! What code on a shard is given: its world, the volumes that live there, and the way up to the control.
//!
//! Invariant CONTEXT1: a shard's loop alone owns what lives there; it is made, used and dropped on the shard's thread, and goes
//! with the loop, even if a context is still held somewhere.

use super::host::Host;
use super::lifecycle::health::{Health, Seat};
use super::opened::children::Opened;
use super::opened::open_pool::OpenPool;
use super::served::Served;
use super::state::ShardState;
use super::volume_stack::VolumeStack;
use std::cell::RefCell;
use std::ops::Deref;
use std::rc::{Rc, Weak};
use uuid::Uuid;

/// Volumes that some work has used: a panic in it is theirs.
#[derive(Clone, Default)]
pub(super) struct Used(pub(super) Rc<RefCell<Vec<Seat>>>);

/// What code on a shard is given. Cloning shares it.
#[derive(Clone)]
pub struct ShardContext {
    host: Host,
    // The loop of the shard alone owns what lives there (CONTEXT1).
    state: Weak<ShardState>,
    /// None for what outlives the work that began it.
    used: Option<Used>,
}

impl Deref for ShardContext {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl ShardContext {
    /// The context of a shard that owns `state`.
    pub(super) fn new(host: Host, state: &Rc<ShardState>) -> Self {
        Self { host, state: Rc::downgrade(state), used: None }
    }

    /// What its volumes are given.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The same shard for work whose panics belong to the volumes that it uses.
    pub(super) fn for_work(&self, used: &Used) -> Self {
        Self { used: Some(used.clone()), ..self.clone() }
    }

    /// The same shard for what outlives the work that began it.
    pub fn apart(&self) -> Self {
        Self { used: None, ..self.clone() }
    }

    /// What lives here.
    pub fn state(&self) -> Rc<ShardState> {
        self.state.upgrade().expect("CONTEXT1: nothing runs on a shard whose loop has ended")
    }

    /// The volume or pool, if it is active on this shard.
    pub(crate) fn served(&self, id: Uuid) -> Option<Served> {
        let served = self.state().served.borrow().get(&id).cloned();
        served.filter(|served| self.is_usable(&served.below().health))
    }

    /// What the volume or pool has open, also while it is opened or closed.
    pub(crate) fn opened(&self, id: Uuid) -> Option<Rc<Opened>> {
        self.state().opened.get(id)
    }

    /// How many arrays are open.
    #[cfg(any(test, feature = "injected-bugs"))]
    pub fn array_count(&self) -> usize {
        self.state().opened.all().iter().map(|opened| opened.arrays.all().len()).sum()
    }

    /// What the volume or pool has open, if it is active on this shard.
    pub(crate) fn in_use(&self, id: Uuid) -> Option<Rc<Opened>> {
        self.served(id)?.own().cloned()
    }

    /// The volume, if it is active on this shard.
    pub fn stack(&self, volume: Uuid) -> Option<Rc<VolumeStack>> {
        self.served(volume)?.stack().cloned()
    }

    /// The pool, if it is active on this shard.
    pub fn pool(&self, pool: Uuid) -> Option<Rc<OpenPool>> {
        match self.served(pool)? {
            Served::Pool(open) => Some(open),
            Served::Stack(_) => None,
        }
    }

    /// Whether a volume has not failed. If the work panics from now on, that takes the volume out of use.
    fn is_usable(&self, health: &Health) -> bool {
        self.using(health);
        !health.is_failed()
    }

    /// The work uses a volume.
    pub(super) fn using(&self, health: &Health) {
        let Some(used) = &self.used else { return };
        let mut used = used.0.borrow_mut();
        if !used.iter().any(|seat| seat.health().is(health)) {
            used.push(Seat::of(health));
        }
    }

    /// The work is done with the volumes that it has used; others come.
    pub(super) fn done_with_all(&self) {
        let used = self.used.as_ref().map(|used| used.0.take());
        drop(used);
    }
}
