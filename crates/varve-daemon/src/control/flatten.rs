//! The job that makes a volume need what it lies over no more.
//!
//! Invariant F1: it can be taken up again after a restart: what is remembered is the volume's number, and what was copied
//! is not copied again.

use super::jobs::Started;
use super::{Control, current};
use crate::failures;
use crate::shard::origins;
use crate::state::{RememberedJob, RememberedTarget};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Changed, Code, Failure, Flatten, Job, Plan};
use varve_os::{ShardContext, ShardHandle};
use varve_vg::names::VolumeName;
use varve_vg::size::format_size;

/// The kind of a job that copies what a volume lies over.
pub(super) const FLATTEN: &str = "flatten";
/// How long the command waits for one that may be short.
const SHORT: Duration = Duration::from_millis(500);

impl Control {
    /// Copies what a thin volume, or a snapshot of one, shows of its origin into the pool; the answer is a job.
    pub(crate) async fn flatten_volume(&self, text: &str, request: Flatten) -> Result<Changed<Job>, Failure> {
        let turn = self.turn().await?;
        let name: VolumeName = text.parse().map_err(|error| failures::bad_name(&error))?;
        let located = self.find_volume(&name)?;
        self.refuse_if_busy(located.volume.id)?;
        let over_nothing = || {
            let message = format!("{name} lies over nothing");
            Failure::new(Code::Usage, message).help(format!("varve lv show {}", name.origin()))
        };
        let thin = located.thin.clone().ok_or_else(over_nothing)?;
        self.check_snapshot(&located, &name).await?;
        let (pool, volume, snapshot) = (thin.pool, thin.number, name.snapshot.clone());
        let asked = located
            .home
            .run(async move |_: ShardContext| origins::lies_over(pool, volume, snapshot.as_deref()));
        let (number, origin) = asked.await.map_err(failures::gone)??;
        let origin = origin.ok_or_else(over_nothing)?;
        if request.dry_run {
            let (size, origin) = (format_size(origin.bytes), self.origin_name(located.group, origin).await);
            let step =
                format!("would copy what {name} shows of {origin}, at most {size}, and need that no more");
            return Ok(Changed::Planned(Plan::of_steps(vec![step])));
        }
        let target = RememberedTarget { volume: located.volume.id, store: pool, number, size: origin.bytes };
        let subject = name.to_string();
        let started = self.start_job_on(FLATTEN, &subject, &[located.volume.id], vec![target]).await;
        let id = started.id;
        self.event(&subject, "a copy of what it lies over begins");
        self.spawn_flattening(located.home.clone(), (pool, number), subject, &started);
        drop(turn);
        self.job_soon(id, SHORT).await.map(Changed::Done)
    }

    fn spawn_flattening(
        &self,
        home: ShardHandle,
        (pool, number): (Uuid, u64),
        subject: String,
        started: &Started,
    ) {
        let (id, progress) = (started.id, Arc::clone(&started.progress));
        self.context.spawner().spawn(async move {
            let work = home.run(async move |context: ShardContext| {
                origins::flatten(&context, pool, number, &progress).await
            });
            let result = work.await.map_err(failures::gone).and_then(|done| done);
            // A daemon that stops leaves the job to the next one (F1).
            let Some(control) = current() else { return };
            if result.is_ok() {
                control.event(&subject, "lies over nothing any more");
                control.look_again(pool).await;
            }
            let group = result.is_ok().then(|| control.group_of_pool(pool)).flatten();
            control.finish_job(id, result).await;
            if let Some(group) = group {
                control.settle_images_in_turn(group).await;
            }
        });
    }

    fn group_of_pool(&self, pool: Uuid) -> Option<Uuid> {
        let groups = self.groups.borrow();
        groups.iter().find(|(_, known)| known.homes.contains_key(&pool)).map(|(id, _)| *id)
    }

    /// Learns anew what is in a pool.
    async fn look_again(&self, pool: Uuid) {
        if let Some(group) = self.group_of_pool(pool)
            && let Err(failure) = self.look_at_pool(group, pool).await
        {
            tracing::warn!(%pool, %failure, "a pool does not tell what is in it");
        }
    }

    /// Takes up a job that a restart interrupted (F1).
    pub(super) fn resume_flattening(&self, job: &RememberedJob) {
        let target = job.targets.first().copied();
        let home = target.and_then(|target| self.home_of(target.volume));
        let volumes: Vec<Uuid> = target.iter().map(|target| target.volume).collect();
        let started = self.register_job(job.id, FLATTEN, &job.subject, "bytes", &volumes, job.started);
        match target.zip(home) {
            Some((target, home)) => {
                self.spawn_flattening(home, (target.store, target.number), job.subject.clone(), &started);
            }
            None => self.fail_later(started.id, &job.subject),
        }
    }
}
