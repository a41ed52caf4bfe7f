//! The locks of the control, and what a command is about to use.

use futures_util::lock::{Mutex, OwnedMutexGuard};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::Gate;

pub(crate) type Lock = Arc<Mutex<()>>;
pub(crate) type Guard = OwnedMutexGuard<()>;

/// All locks of the control.
#[derive(Default)]
pub(crate) struct Locks {
    pub(crate) host: Lock,
    pub(crate) exports: Lock,
    pub(crate) groups: RefCell<BTreeMap<Uuid, Lock>>,
    commits: RefCell<BTreeMap<Uuid, Lock>>,
    /// What grows by itself is inside from before its commit until it is served so.
    growing: RefCell<BTreeMap<Uuid, Gate>>,
    /// Disks and names that are about to become part of a group.
    claimed: RefCell<BTreeSet<String>>,
}

/// The right to change something, until it is dropped.
pub(crate) struct Held(#[expect(dead_code, reason = "they are held")] pub(crate) Vec<Guard>);

/// A disk or a name that one command is about to use.
pub(crate) struct Claim<'a> {
    locks: &'a Locks,
    what: String,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.locks.claimed.borrow_mut().remove(&self.what);
    }
}

pub(crate) fn of(locks: &RefCell<BTreeMap<Uuid, Lock>>, group: Uuid) -> Lock {
    Arc::clone(locks.borrow_mut().entry(group).or_default())
}

impl Locks {
    /// The right to commit changes of a group.
    pub(crate) async fn commits(&self, group: Uuid) -> Guard {
        of(&self.commits, group).lock_owned().await
    }

    /// Whether a command or a task has the right to change a group.
    pub(crate) fn is_held(&self, group: Uuid) -> bool {
        of(&self.groups, group).try_lock().is_none()
    }

    /// What of a group grows by itself.
    pub(crate) fn growing(&self, group: Uuid) -> Gate {
        self.growing.borrow_mut().entry(group).or_default().clone()
    }

    /// Claims `what`: no other command uses it meanwhile.
    pub(crate) fn claim(&self, what: &str) -> Result<Claim<'_>, Failure> {
        if self.claimed.borrow_mut().insert(what.to_owned()) {
            return Ok(Claim { locks: self, what: what.to_owned() });
        }
        Err(Failure::new(Code::VolumeBusy, format!("another command is about to use {what}"))
            .help("try again when it has ended"))
    }
}
