//! Who may change what: the disks and groups as a whole, the exports, and each group have a lock of their own, so that a
//! command on one group does not wait for a disk of another.
//!
//! Invariants:
//! - Q1. Of several groups the locks are taken in the order of their identities, before that of the exports.
//! - Q2. Who waits for requests of clients to end, or for space, holds no lock.

use super::groups::KnownGroup;
use super::{Control, PROBE};
use futures_util::lock::{Mutex, OwnedMutexGuard};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{Code, Failure};

type Lock = Arc<Mutex<()>>;
type Guard = OwnedMutexGuard<()>;

/// All locks of the control.
#[derive(Default)]
pub(super) struct Turns {
    host: Lock,
    exports: Lock,
    groups: RefCell<BTreeMap<Uuid, Lock>>,
    commits: RefCell<BTreeMap<Uuid, Lock>>,
    /// Disks and names that are about to become part of a group.
    claimed: RefCell<BTreeSet<String>>,
}

/// The right to change something, until it is dropped.
pub(super) struct Turn(#[expect(dead_code, reason = "they are held")] Vec<Guard>);

/// A disk or a name that one command is about to use.
pub(super) struct Claim<'a> {
    turns: &'a Turns,
    what: String,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.turns.claimed.borrow_mut().remove(&self.what);
    }
}

fn of(locks: &RefCell<BTreeMap<Uuid, Lock>>, group: Uuid) -> Lock {
    Arc::clone(locks.borrow_mut().entry(group).or_default())
}

impl Turns {
    /// The right to commit changes of a group.
    pub(super) async fn commits(&self, group: Uuid) -> Guard {
        of(&self.commits, group).lock_owned().await
    }

    /// Nobody else may use `what` meanwhile.
    pub(super) fn claim(&self, what: &str) -> Result<Claim<'_>, Failure> {
        if self.claimed.borrow_mut().insert(what.to_owned()) {
            return Ok(Claim { turns: self, what: what.to_owned() });
        }
        Err(Failure::new(Code::VolumeBusy, format!("another command is about to use {what}"))
            .help("try again when it has ended"))
    }
}

impl Control {
    /// Waits for the turn to change disks, or groups as a whole.
    pub(super) async fn turn(&self) -> Result<Turn, Failure> {
        self.unless_stopping(Turn(vec![Arc::clone(&self.turns.host).lock_owned().await]))
    }

    /// Waits for the turn to change exports.
    pub(super) async fn turn_of_exports(&self) -> Result<Turn, Failure> {
        self.unless_stopping(Turn(vec![Arc::clone(&self.turns.exports).lock_owned().await]))
    }

    /// Waits for the turn to change the group with this name or identity, or of this volume or snapshot.
    pub(super) async fn turn_of(&self, name: &str) -> Result<Turn, Failure> {
        self.turn_of_all([name]).await
    }

    /// Waits for the turn to change all groups of these volumes or snapshots (Q1). Names that mean nothing are left to the
    /// command.
    pub(super) async fn turn_of_all<'n>(
        &self,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Result<Turn, Failure> {
        let names = names.into_iter().map(|name| name.split(['/', '@']).next().unwrap_or_default());
        let groups: BTreeSet<Uuid> = names.filter_map(|name| self.find_group(name).ok()).collect();
        let mut guards = Vec::with_capacity(groups.len());
        for group in groups {
            guards.push(of(&self.turns.groups, group).lock_owned().await);
        }
        self.unless_stopping(Turn(guards))
    }

    /// Waits for the turn to change a group, also while the daemon stops.
    pub(super) async fn turn_of_group(&self, group: Uuid) -> Turn {
        Turn(vec![of(&self.turns.groups, group).lock_owned().await])
    }

    /// Waits until no command changes anything any more (Q1).
    pub(super) async fn all_turns(&self) -> Turn {
        let mut guards = vec![Arc::clone(&self.turns.host).lock_owned().await];
        let groups: Vec<Uuid> = self.groups.borrow().keys().copied().collect();
        for group in groups {
            guards.push(of(&self.turns.groups, group).lock_owned().await);
        }
        guards.push(Arc::clone(&self.turns.exports).lock_owned().await);
        Turn(guards)
    }

    /// The right to change every group whose disks answer and whom no command holds for long, and to commit it; and all
    /// disks of the others.
    pub(super) async fn turns_of_answering(&self) -> (Vec<Turn>, Vec<Guard>, BTreeSet<PathBuf>) {
        let probe = self.context.clock().now().after(PROBE);
        let mut silent: BTreeSet<PathBuf> = self.silent_disks(probe).await.into_iter().collect();
        for path in &silent {
            self.warn(&path.display().to_string(), "does not answer: it is left out");
        }
        let groups: Vec<(Uuid, BTreeSet<PathBuf>)> = {
            let groups = self.groups.borrow();
            let paths = |known: &KnownGroup| known.paths.values().map(PathBuf::from).collect();
            groups.iter().map(|(id, known)| (*id, paths(known))).collect()
        };
        let (mut turns, mut commits) = (Vec::new(), Vec::new());
        for (group, paths) in groups {
            let deadline = self.context.clock().now().after(PROBE);
            let both = async { (self.turn_of_group(group).await, self.turns.commits(group).await) };
            let both = if silent.is_disjoint(&paths) { self.until(deadline, both).await } else { None };
            match both {
                Some((turn, commit)) => {
                    turns.push(turn);
                    commits.push(commit);
                }
                None => silent.extend(paths),
            }
        }
        (turns, commits, silent)
    }

    /// Nobody else may take these disks into a group meanwhile.
    pub(super) fn claim_all(&self, paths: &[String]) -> Result<Vec<Claim<'_>>, Failure> {
        let paths: BTreeSet<&String> = paths.iter().collect();
        paths.into_iter().map(|path| self.turns.claim(path)).collect()
    }

    fn unless_stopping(&self, turn: Turn) -> Result<Turn, Failure> {
        match self.stopping.get() {
            true => Err(Failure::new(Code::Stopping, "the daemon is stopping")),
            false => Ok(turn),
        }
    }
}
