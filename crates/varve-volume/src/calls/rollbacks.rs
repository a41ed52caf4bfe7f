//! Calls that roll a volume back to a snapshot.

use super::volumes::VolumeCalls;
use crate::content::snapshot_facts::RollbackPoint;
use crate::context::ShardContext;
use crate::copies::progress::Progress;
use crate::failures;
use crate::handle::Answer;
use crate::volume_stack::VolumeStack;
use futures_util::future::{Either, select};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use varve_api::{Code, Failure};
use varve_block::Clock;
use varve_target::snapshot::Progress as Copied;

/// How often the progress of a rollback is reported.
const TICK: Duration = Duration::from_millis(2);

impl VolumeCalls<'_> {
    /// The snapshot for good, and what tells whether the rollback to it has happened.
    pub fn rollback_point(&self, snapshot: String) -> Answer<Result<RollbackPoint, Failure>> {
        self.work_if_active(async move |stack: Rc<VolumeStack>| {
            stack.rollback_point(&snapshot).map_err(|error| failures::store("the rollback", &error))
        })
    }

    /// Whether one is under way; none if the volume is not active.
    pub fn is_rolling_back(&self) -> Answer<Option<bool>> {
        self.ask(VolumeStack::is_rolling_back)
    }

    /// Lets the volume show what the snapshot shows, unless it does since `point` was taken.
    pub fn begin_rollback(
        &self,
        point: RollbackPoint,
        progress: Arc<Progress>,
    ) -> Answer<Result<(), Failure>> {
        self.work_if_active(async move |stack: Rc<VolumeStack>| {
            stack.begin_rollback(point).await?;
            if let Some((done, total)) = stack.rollback_progress() {
                progress.report(done, total);
            }
            Ok(())
        })
    }

    /// Finishes the rollback that is under way, if one is, and tells how far it is.
    pub fn finish_rollback(&self, progress: Arc<Progress>) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| match here.stack(id) {
            Some(stack) => finish(&here.clock(), &stack, &progress).await,
            None => Err(Failure::new(Code::VolumeUnusable, "the volume is not active").help("varve lv list")),
        })
    }
}

async fn finish(clock: &Clock, stack: &VolumeStack, progress: &Progress) -> Result<(), Failure> {
    let copied = Copied::default();
    let mut work = Box::pin(stack.finish_rollback(&copied));
    loop {
        match select(work, clock.sleep(TICK)).await {
            Either::Left((result, _)) => {
                tell(&copied, progress);
                return result.map_err(|error| failures::store("the rollback", &error));
            }
            Either::Right(((), rest)) => {
                work = rest;
                tell(&copied, progress);
            }
        }
    }
}

fn tell(copied: &Copied, progress: &Progress) {
    if copied.total.get() > 0 {
        progress.report(copied.done.get(), copied.total.get());
    }
}
