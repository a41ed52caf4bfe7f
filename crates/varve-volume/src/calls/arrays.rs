//! Calls that concern the array of a volume, a store or a pool.

use crate::context::ShardContext;
use crate::handle::{Answer, ShardHandle};
use crate::opened::arrays::OpenArray;
use std::collections::BTreeSet;
use std::rc::Rc;
use uuid::Uuid;
use varve_api::Failure;
use varve_target::array::ArrayStatus;

/// Calls that concern one array.
#[derive(Clone, Copy)]
pub struct ArrayCalls<'a> {
    pub(super) shard: &'a ShardHandle,
    pub(super) id: Uuid,
}

impl ArrayCalls<'_> {
    /// How it is; none if it is not open.
    pub fn status(&self) -> Answer<Option<ArrayStatus>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| Some(here.state().opened.array(id)?.array.status()))
    }

    /// Does `work` on the array, if it is open.
    fn work<T, F, W>(&self, work: W) -> Answer<Result<T, Failure>>
    where
        W: FnOnce(Rc<OpenArray>) -> F + Send + 'static,
        F: Future<Output = Result<T, Failure>> + 'static,
        T: Default + Send + 'static,
    {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| match here.state().opened.array(id) {
            Some(open) => work(open).await,
            None => Ok(T::default()),
        })
    }

    /// Lets it go on without the member at `place`.
    pub fn fail_member(&self, place: usize) -> Answer<Result<(), Failure>> {
        self.work(async move |open: Rc<OpenArray>| open.fail_member(place).await)
    }

    /// Lets it go on without the member at `place`, until its disk is named again.
    pub fn withdraw_member(&self, place: usize) -> Answer<Result<(), Failure>> {
        self.work(async move |open: Rc<OpenArray>| open.withdraw_member(place).await)
    }

    /// Lets it go on without its log disk, as if that had failed, until it is named again: its members have the log.
    pub fn withdraw_log(&self) -> Answer<Result<(), Failure>> {
        self.work(async move |open: Rc<OpenArray>| open.withdraw_log().await)
    }

    /// Gives the log to its members; it has no log disk any more.
    pub fn detach_log(&self) -> Answer<Result<(), Failure>> {
        self.work(async move |open: Rc<OpenArray>| open.detach_log().await)
    }

    /// Forgets what the member at `place` holds: all of it is to be written again.
    pub fn disown_member(&self, place: usize) -> Answer<Result<(), Failure>> {
        self.work(async move |open: Rc<OpenArray>| open.disown_member(place).await)
    }

    /// Accepts that what these regions held is lost; how many were.
    pub fn accept_loss(&self, regions: BTreeSet<u64>) -> Answer<Result<u64, Failure>> {
        self.work(async move |open: Rc<OpenArray>| open.accept_loss(&regions).await)
    }
}
