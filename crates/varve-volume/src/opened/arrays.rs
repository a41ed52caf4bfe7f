//! The arrays in use on a shard, each with what is on it.
//!
//! Invariants:
//! - ARRAYS1. An array is open once.
//! - ARRAYS2. A member that a person has taken out of use, or a log disk, is not taken back by what only makes the array larger.

use crate::failures;
use futures_util::future::AbortHandle;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use uuid::Uuid;
use varve_api::Failure;
use varve_block::IoError;
use varve_target::array::{Array, ArrayStatus, MemberState};
use varve_vg::model::PvName;
use varve_vg::table::Table;

/// On which disks each member of an array is.
pub(crate) type MemberDisks = Rc<RefCell<Vec<Vec<PvName>>>>;

/// The arrays of one shard, by their ids.
#[derive(Default)]
pub struct Arrays {
    open: RefCell<BTreeMap<Uuid, OpenArray>>,
}

/// An array in use.
pub(crate) struct OpenArray {
    /// The volume or pool whose bytes, or whose stores, it holds.
    pub(crate) subject: Uuid,
    pub(crate) array: Rc<Array>,
    /// On which disks its members lie.
    pub(crate) disks: MemberDisks,
    /// Members, and log disks, that were taken out of use by a person (ARRAYS2).
    pub(crate) withdrawn: BTreeSet<Uuid>,
    /// What works for it.
    pub(crate) tasks: Vec<AbortHandle>,
}

impl Arrays {
    /// How many are open.
    #[cfg(any(test, feature = "injected-bugs"))]
    pub fn count(&self) -> usize {
        self.open.borrow().len()
    }

    /// In how many regions of all arrays members may differ, which are made equal now.
    #[cfg(any(test, feature = "injected-bugs"))]
    pub fn unsynced(&self) -> u64 {
        let open = self.open.borrow();
        let status = open.values().map(|open| open.array.status());
        status.filter(|status| !status.is_content_lost).map(|status| status.unsynced).sum()
    }

    /// How the array does, if it is open.
    pub fn status(&self, id: Uuid) -> Option<ArrayStatus> {
        self.get(id).map(|array| array.status())
    }

    /// The volumes and pools with arrays that make members equal or catch one up.
    pub(crate) fn at_work(&self) -> BTreeSet<Uuid> {
        let open = self.open.borrow();
        open.values().filter(|open| open.array.has_work()).map(|open| open.subject).collect()
    }

    /// The places of the members that are away of the array at `table`, if there is one and it is open; behind the last one that of the
    /// log disk if it does not have the log.
    pub(crate) fn away(&self, table: &Table) -> Vec<usize> {
        let Some(status) = table.array().and_then(|array| self.status(array.id)) else { return Vec::new() };
        let away = status.members.iter().enumerate().filter(|(_, member)| member.state == MemberState::Away);
        let has_log = status.log_disk.is_some_and(|log| log.has_log);
        let log = (!has_log).then_some(status.members.len());
        away.map(|(place, _)| place).chain(log).collect()
    }

    /// The members of an array lie on these disks from now on, if it is open.
    pub(crate) fn set_disks(&self, id: Uuid, disks: Vec<Vec<PvName>>) {
        if let Some(open) = self.open.borrow().get(&id) {
            open.disks.replace(disks);
        }
    }

    /// The array, if it is open.
    pub(crate) fn get(&self, id: Uuid) -> Option<Rc<Array>> {
        self.open.borrow().get(&id).map(|open| Rc::clone(&open.array))
    }

    /// The arrays of a volume or pool, those of its stores included.
    pub(crate) fn of(&self, subject: Uuid) -> Vec<(Uuid, Rc<Array>)> {
        let open = self.open.borrow();
        let own = open.iter().filter(|(_, open)| open.subject == subject);
        own.map(|(id, open)| (*id, Rc::clone(&open.array))).collect()
    }

    /// The array is open from now on.
    pub(crate) fn insert(&self, id: Uuid, open: OpenArray) {
        let replaced = self.open.borrow_mut().insert(id, open);
        assert!(replaced.is_none(), "ARRAYS1: {id}");
    }

    /// Takes a member of an array out of use, if it is open: nothing of it is read or written any more, and that is durable on the
    /// others.
    pub async fn fail_member(&self, id: Uuid, place: usize) -> Result<(), Failure> {
        let Some(array) = self.get(id) else { return Ok(()) };
        let failed = match array.status().members.get(place) {
            Some(member) if member.state != MemberState::Away => array.fail_member(place).await,
            _ => array.await_ejections().await,
        };
        failed.map_err(|error| failures::array(&error))
    }

    /// Takes the log disk of an array out of use, as if it had failed, if the array is open: its members have the log, durably.
    pub async fn fail_log(&self, id: Uuid) -> Result<(), Failure> {
        let Some(array) = self.get(id) else { return Ok(()) };
        array.fail_log().await.map_err(|error| failures::array(&error))
    }

    /// As [`Arrays::fail_member`], until the member's disk is named again (ARRAYS2).
    pub async fn withdraw_member(&self, id: Uuid, place: usize) -> Result<(), Failure> {
        self.fail_member(id, place).await?;
        self.withdraw(id, |status| status.members.get(place).map(|member| member.id));
        Ok(())
    }

    /// As [`Arrays::fail_log`], until the disk is named again (ARRAYS2).
    pub async fn withdraw_log(&self, id: Uuid) -> Result<(), Failure> {
        self.fail_log(id).await?;
        self.withdraw(id, |status| status.log_disk.as_ref().map(|log| log.id));
        Ok(())
    }

    fn withdraw(&self, id: Uuid, which: impl FnOnce(&ArrayStatus) -> Option<Uuid>) {
        if let Some(open) = self.open.borrow_mut().get_mut(&id) {
            open.withdrawn.extend(which(&open.array.status()));
        }
    }

    /// Whether a member or log disk of an array was taken out of use by a person.
    pub(crate) fn is_withdrawn(&self, id: Uuid, member: Uuid) -> bool {
        self.open.borrow().get(&id).is_some_and(|open| open.withdrawn.contains(&member))
    }

    /// A member or log disk of an array may be taken back from now on.
    pub(crate) fn readmit(&self, id: Uuid, member: Uuid) {
        if let Some(open) = self.open.borrow_mut().get_mut(&id) {
            open.withdrawn.remove(&member);
        }
    }

    /// The array has no log disk any more, if it is open: its members have the log, durably.
    pub async fn detach_log(&self, id: Uuid) -> Result<(), Failure> {
        let Some(array) = self.get(id) else { return Ok(()) };
        array.detach_log().await.map_err(|error| failures::array(&error))
    }

    /// Takes a member of an array out of use, if it is open: it is filled anew when it returns.
    pub async fn disown_member(&self, id: Uuid, place: usize) -> Result<(), Failure> {
        self.fail_member(id, place).await?;
        let Some(array) = self.get(id) else { return Ok(()) };
        array.disown_member(place).await.map_err(|error| failures::array(&error))
    }

    /// The loss of these regions of an array is accepted, as far as they wait for a member that is missing, if it is open. Returns how
    /// many did.
    pub async fn accept_loss(&self, id: Uuid, regions: &BTreeSet<u64>) -> Result<u64, Failure> {
        let Some(array) = self.get(id) else { return Ok(0) };
        let accepted = array.accept_loss(|region| regions.contains(&region)).await;
        accepted.map(|regions| regions.len() as u64).map_err(|error| failures::array(&error))
    }

    /// Closes the arrays of a volume or pool, of which nothing is used any more; what was acknowledged is durable afterwards.
    pub(crate) async fn close(&self, subject: Uuid) -> Result<(), IoError> {
        let mut outcome = Ok(());
        for open in self.take(|_, open| open.subject == subject) {
            outcome = outcome.and(open.close().await);
        }
        outcome
    }

    /// Closes one array, if it is open.
    pub(crate) async fn close_one(&self, array: Uuid) -> Result<(), IoError> {
        let mut outcome = Ok(());
        for open in self.take(|id, _| *id == array) {
            outcome = open.close().await;
        }
        outcome
    }

    /// What the array `new` holds is what `id` is called from now on, if there is one. Closes the array that was called so, of which
    /// nothing is used any more.
    pub(crate) async fn replace(&self, id: Uuid, new: Option<Uuid>) -> Result<(), IoError> {
        let old = self.open.borrow_mut().remove(&id);
        if let Some(new) = new.and_then(|new| self.open.borrow_mut().remove(&new)) {
            self.insert(id, new);
        }
        match old {
            Some(old) => old.close().await,
            None => Ok(()),
        }
    }

    /// Closes the arrays of a volume or pool in which something has panicked: nothing of them is touched again.
    pub(crate) fn abandon(&self, subject: Uuid) {
        for open in self.take(|_, open| open.subject == subject) {
            open.tasks.iter().for_each(AbortHandle::abort);
        }
    }

    fn take(&self, is_taken: impl Fn(&Uuid, &OpenArray) -> bool) -> Vec<OpenArray> {
        let mut open = self.open.borrow_mut();
        open.extract_if(.., |id, open| is_taken(id, open)).map(|(_, open)| open).collect()
    }
}

impl OpenArray {
    async fn close(self) -> Result<(), IoError> {
        let closed = self.array.close().await;
        self.tasks.iter().for_each(AbortHandle::abort);
        closed
    }
}
