//! The job that makes a volume need its backing no more.
//!
//! Invariants:
//! - FLATTENJOB1. It can be taken up again after a restart: the text has the volume's number, and what was copied is not
//!   copied again.
//! - FLATTENJOB2. One that cannot go on because the pool or the origin is not there ends for now, but stands in the text until it is
//!   done or its volume is gone: it goes on, under another number, when a disk comes back, or the daemon starts again.

use super::image_jobs::{OVER_NOTHING, image_plan};
use super::records::Outlook;
use super::registry::{SHORT, Started};
use super::runner::{Stop, Unusable, Work, unless_usable};
use crate::Control;
use crate::failures;
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{Changed, Code, Failure, Flatten, Job, Plan};
use varve_vg::model::{Job as Entry, JobWork};
use varve_vg::names::VolumeName;
use varve_vg::size::format_size;
use varve_volume::ShardHandle;
use varve_volume::content::origins::Gone;
use varve_volume::copies::image_jobs::ImageWork;

/// The work of a job, where its pool lives.
struct Flattening {
    home: ShardHandle,
    volume: Uuid,
    pool: Uuid,
    number: u64,
}

impl Work for Flattening {
    const DONE: Option<&'static str> = Some(OVER_NOTHING);

    async fn run(&mut self, control: &Control, job: &Started) -> Result<(), Stop> {
        let work = self.home.pool(self.pool).flatten(self.number, Arc::clone(&job.progress));
        let done = control.answered(self.volume, work.await);
        done.map_err(unless_usable)?; // FLATTENJOB2
        control.look_again(self.pool).await;
        Ok(())
    }
}

impl Control {
    /// Copies what a thin volume, or a snapshot of one, shows of its origin into the pool, or what a volume in an image shows of
    /// the backing images into its image; the answer is a job.
    pub async fn flatten_volume(&self, text: &str, request: Flatten) -> Result<Changed<Job>, Failure> {
        let lock = self.lock_of(text).await?;
        let name: VolumeName = text.parse().map_err(|error| failures::bad_name(&error))?;
        let located = self.find_volume(&name)?;
        self.refuse_if_busy(located.volume.id)?;
        let over_nothing = || failures::over_nothing(&name);
        if let Some(size) = self.image_to_flatten(&located, &name).await? {
            if request.dry_run {
                return Ok(Changed::Planned(image_plan(&name, size)));
            }
            let id = self.begin_image_job(ImageWork::Flatten, &located, &name).await?;
            drop(lock);
            return self.job_soon(id, SHORT).await.map(Changed::Done);
        }
        let thin = located.thin.clone().ok_or_else(over_nothing)?;
        self.check_readable(&located, &name).await?;
        let (pool, volume, snapshot) = (thin.pool, thin.number, name.snapshot.clone());
        let asked = located.home.pool(pool).origin_of(volume, snapshot);
        let (number, origin) = self.answered(pool, asked.await)?;
        let origin = origin.ok_or_else(over_nothing)?;
        if request.dry_run {
            let (size, origin) = (format_size(origin.bytes), self.origin_name(located.group, origin).await);
            let step =
                format!("would copy what {name} shows of {origin}, at most {size}, and need that no more");
            return Ok(Changed::Planned(Plan::of_steps(vec![step])));
        }
        self.forget_flattening(|place| place == (pool, number)).await; // another one follows
        let (subject, volume) = (name.to_string(), located.volume.id);
        let work = JobWork::Flatten { volume, pool, number };
        let started = self.start_job(located.group, &subject, work, None).await?;
        let id = started.id;
        self.event(&subject, "a copy of its origin begins");
        self.spawn_work(started, Flattening { home: located.home.clone(), volume, pool, number });
        drop(lock);
        self.job_soon(id, SHORT).await.map(Changed::Done)
    }

    /// FLATTENJOB2: whether what was put off can go on now.
    pub(crate) async fn outlook_of_flattening(&self, pool: Uuid, number: u64) -> Outlook {
        let Some(home) = self.home_of(pool) else { return Outlook::Bad };
        match home.pool(pool).may_be_flattened(number).await {
            Ok(Ok(true)) => Outlook::Good,
            Ok(Ok(false)) | Err(_) => Outlook::Bad,
            Ok(Err(Gone)) => Outlook::Done,
        }
    }

    /// FLATTENJOB2: jobs that were put off and whose volume or snapshot, by its pool and number, is meant have nothing to do any more.
    pub(crate) async fn forget_flattening(&self, is_meant: impl Fn((Uuid, u64)) -> bool) {
        let is_meant = |work: &JobWork| matches!(work, JobWork::Flatten { pool, number, .. } if is_meant((*pool, *number)));
        self.forget_waiting(is_meant).await;
    }

    /// Learns anew what is in a pool, and releases origins that nothing is backed by any more.
    async fn look_again(&self, pool: Uuid) {
        let group = {
            let groups = self.groups.known.borrow();
            groups.iter().find(|(_, known)| known.homes.contains_key(&pool)).map(|(id, _)| *id)
        };
        let Some(group) = group else { return };
        if let Err(failure) = self.look_at_pool(group, pool).await {
            tracing::warn!(%pool, %failure, "a pool does not tell what is in it");
        }
        let _lock = self.lock_group(group).await;
        self.reconcile_origins(group).await;
    }

    /// Takes up a job that stands in a text (FLATTENJOB1).
    pub(crate) fn resume_flattening(&self, entry: &Entry, started: Started) {
        let JobWork::Flatten { volume, pool, number } = entry.work else { return };
        if let Some(home) = self.home_of(volume) {
            return self.spawn_work(started, Flattening { home, volume, pool, number });
        }
        let failure = Failure::new(Code::VolumeUnusable, format!("{} cannot be used", entry.subject));
        self.spawn_work(started, Unusable(failure.help("bring its disks back, then varve pv scan")));
    }
}
