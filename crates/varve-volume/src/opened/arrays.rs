//! The arrays of a volume or pool in use.
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

/// The arrays of a volume or pool, those of its stores included, by their ids.
#[derive(Default)]
pub(crate) struct Arrays(RefCell<BTreeMap<Uuid, Rc<OpenArray>>>);

/// An array in use.
pub(crate) struct OpenArray {
    pub(crate) array: Rc<Array>,
    /// On which disks its members lie.
    pub(crate) disks: MemberDisks,
    /// Members, and log disks, that were taken out of use by a person (ARRAYS2).
    withdrawn: RefCell<BTreeSet<Uuid>>,
    /// What works for it.
    tasks: Vec<AbortHandle>,
}

impl Arrays {
    /// How the array does, if it is open.
    pub(crate) fn status(&self, id: Uuid) -> Option<ArrayStatus> {
        self.get(id).map(|open| open.array.status())
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

    /// The array, if it is open.
    pub(crate) fn get(&self, id: Uuid) -> Option<Rc<OpenArray>> {
        self.0.borrow().get(&id).cloned()
    }

    /// All that are open.
    pub(crate) fn all(&self) -> Vec<(Uuid, Rc<Array>)> {
        self.0.borrow().iter().map(|(id, open)| (*id, Rc::clone(&open.array))).collect()
    }

    /// The array is open from now on.
    pub(crate) fn insert(&self, id: Uuid, open: Rc<OpenArray>) {
        let replaced = self.0.borrow_mut().insert(id, open);
        assert!(replaced.is_none(), "ARRAYS1: {id}");
    }

    /// Closes one array, if it is open.
    pub(crate) async fn close_one(&self, id: Uuid) -> Result<(), IoError> {
        let open = self.0.borrow_mut().remove(&id);
        match open {
            Some(open) => open.close().await,
            None => Ok(()),
        }
    }

    /// What the array `new` holds is what `id` is called from now on, if there is one. Closes the array that was called so, of which
    /// nothing is used any more.
    pub(crate) async fn replace(&self, id: Uuid, new: Option<Uuid>) -> Result<(), IoError> {
        let old = self.0.borrow_mut().remove(&id);
        if let Some(new) = new.and_then(|new| self.0.borrow_mut().remove(&new)) {
            self.insert(id, new);
        }
        match old {
            Some(old) => old.close().await,
            None => Ok(()),
        }
    }

    /// All of them; none is open any more.
    pub(crate) fn take(&self) -> Vec<Rc<OpenArray>> {
        self.0.take().into_values().collect()
    }
}

impl OpenArray {
    /// `array`, for which `tasks` work.
    pub(crate) fn new(array: Rc<Array>, disks: MemberDisks, tasks: Vec<AbortHandle>) -> Rc<Self> {
        Rc::new(Self { array, disks, withdrawn: RefCell::default(), tasks })
    }

    /// Takes a member out of use: nothing of it is read or written any more, and that is durable on the others.
    pub(crate) async fn fail_member(&self, place: usize) -> Result<(), Failure> {
        let failed = match self.array.status().members.get(place) {
            Some(member) if member.state != MemberState::Away => self.array.fail_member(place).await,
            _ => self.array.await_ejections().await,
        };
        failed.map_err(|error| failures::array(&error))
    }

    /// As [`OpenArray::fail_member`], until the member's disk is named again (ARRAYS2).
    pub(crate) async fn withdraw_member(&self, place: usize) -> Result<(), Failure> {
        self.fail_member(place).await?;
        self.withdrawn.borrow_mut().extend(self.array.status().members.get(place).map(|member| member.id));
        Ok(())
    }

    /// Takes the log disk out of use, as if it had failed, until it is named again (ARRAYS2): the members have the log, durably.
    pub(crate) async fn withdraw_log(&self) -> Result<(), Failure> {
        self.array.fail_log().await.map_err(|error| failures::array(&error))?;
        self.withdrawn.borrow_mut().extend(self.array.status().log_disk.map(|log| log.id));
        Ok(())
    }

    /// Whether a member or log disk was taken out of use by a person.
    pub(crate) fn is_withdrawn(&self, member: Uuid) -> bool {
        self.withdrawn.borrow().contains(&member)
    }

    /// A member or log disk may be taken back from now on.
    pub(crate) fn readmit(&self, member: Uuid) {
        self.withdrawn.borrow_mut().remove(&member);
    }

    /// It has no log disk any more: its members have the log, durably.
    pub(crate) async fn detach_log(&self) -> Result<(), Failure> {
        self.array.detach_log().await.map_err(|error| failures::array(&error))
    }

    /// Takes a member out of use: it is filled anew when it returns.
    pub(crate) async fn disown_member(&self, place: usize) -> Result<(), Failure> {
        self.fail_member(place).await?;
        self.array.disown_member(place).await.map_err(|error| failures::array(&error))
    }

    /// The loss of these regions is accepted, as far as they wait for a member that is missing. Returns how many did.
    pub(crate) async fn accept_loss(&self, regions: &BTreeSet<u64>) -> Result<u64, Failure> {
        let accepted = self.array.accept_loss(|region| regions.contains(&region)).await;
        accepted.map(|regions| regions.len() as u64).map_err(|error| failures::array(&error))
    }

    pub(super) async fn close(&self) -> Result<(), IoError> {
        let closed = self.array.close().await;
        self.tasks.iter().for_each(AbortHandle::abort);
        closed
    }
}

impl Drop for OpenArray {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
