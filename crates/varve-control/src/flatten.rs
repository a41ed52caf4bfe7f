//! The job that makes a volume need what it lies over no more.
//!
//! Invariants:
//! - FLATTENJOB1. It can be taken up again after a restart: what is remembered is the volume's number, and what was copied is not
//!   copied again.
//! - FLATTENJOB2. One that cannot go on because the pool or the origin is not there ends for now, but is remembered until it is
//!   done or its volume is gone: it goes on, under another number, when a disk comes back, or the daemon starts again.

use super::Control;
use super::image_flatten::image_plan;
use super::jobs::{Details, FLATTEN, SHORT, Started};
use crate::failures;
use crate::remembered::{RememberedJob, RememberedTarget};
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{Changed, Code, Failure, Flatten, Job, JobState, Plan};
use varve_vg::names::VolumeName;
use varve_vg::size::format_size;
use varve_volume::ShardHandle;
use varve_volume::image_jobs::ImageWork;
use varve_volume::origins::Gone;

impl Control {
    /// Copies what a thin volume, or a snapshot of one, shows of its origin into the pool, or what a volume in an image shows of what
    /// lies below the image into that; the answer is a job.
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
            let id = self.begin_image_job(ImageWork::Flatten, &located, &name, size).await;
            drop(lock);
            return self.job_soon(id, SHORT).await.map(Changed::Done);
        }
        let thin = located.thin.clone().ok_or_else(over_nothing)?;
        self.check_snapshot(&located, &name).await?;
        let (pool, volume, snapshot) = (thin.pool, thin.number, name.snapshot.clone());
        let asked = located.home.pool(pool).lies_over(volume, snapshot);
        let (number, origin) = asked.await.map_err(failures::gone)??;
        let origin = origin.ok_or_else(over_nothing)?;
        if request.dry_run {
            let (size, origin) = (format_size(origin.bytes), self.origin_name(located.group, origin).await);
            let step =
                format!("would copy what {name} shows of {origin}, at most {size}, and need that no more");
            return Ok(Changed::Planned(Plan::of_steps(vec![step])));
        }
        self.forget_flattening(|target| (target.store, target.number) == (pool, number)); // another one follows
        let target = RememberedTarget { volume: located.volume.id, store: pool, number, size: origin.bytes };
        let subject = name.to_string();
        let started =
            self.start_job(FLATTEN, &subject, &[located.volume.id], vec![target], Details::default()).await;
        let id = started.id;
        self.event(&subject, "a copy of what it lies over begins");
        self.spawn_flattening(located.home.clone(), (pool, number), subject, &started);
        drop(lock);
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
        let me = self.weak();
        self.context.spawner().spawn(async move {
            let work = home.pool(pool).flatten(number, progress);
            let result = work.await.map_err(failures::gone).and_then(|done| done);
            // A daemon that stops leaves the job to the next one (FLATTENJOB1).
            let Some(control) = me.upgrade() else { return };
            if result.is_ok() {
                control.event(&subject, "lies over nothing any more");
                control.look_again(pool).await;
            }
            match result {
                Err(failure) if failure.code == Code::VolumeUnusable => control.put_off(id, failure), // FLATTENJOB2
                result => control.finish_job(id, result).await,
            }
        });
    }

    /// FLATTENJOB2: ends a job for now.
    fn put_off(&self, id: u64, failure: Failure) {
        let message = format!("{}; it goes on when that is there again", failure.message);
        self.suspend_job(id, Failure { message, ..failure });
    }

    /// FLATTENJOB2: takes up what was put off, as far as it can go on now.
    pub(super) async fn resume_put_off(&self) {
        let jobs = self.remembered.borrow().jobs.clone();
        let is_running =
            |id: u64| self.jobs.show(&id.to_string()).is_ok_and(|job| job.state == JobState::Running);
        let mut changed = false;
        for job in jobs.into_iter().filter(|job| job.kind == FLATTEN && !is_running(job.id)) {
            let Some(target) = job.targets.first().copied() else { continue };
            let Some(home) = self.home_of(target.store) else { continue };
            let asked = home.pool(target.store).may_be_flattened(target.number).await;
            match asked {
                Ok(Ok(true)) => {
                    self.resume_flattening(&self.renumbered(job));
                    changed = true;
                }
                Ok(Ok(false)) | Err(_) => {}
                Ok(Err(Gone)) => changed |= self.forget_flattening(|known| *known == target),
            }
        }
        if changed {
            self.save_or_warn().await;
        }
    }

    /// A job is remembered under another number from now on.
    pub(super) fn renumbered(&self, job: RememberedJob) -> RememberedJob {
        let id = self.next_job();
        for known in self.remembered.borrow_mut().jobs.iter_mut().filter(|known| known.id == job.id) {
            known.id = id;
        }
        RememberedJob { id, ..job }
    }

    /// FLATTENJOB2: jobs that were put off and whose target is meant have nothing to do any more; whether there was one. None of
    /// them runs: their volumes are not busy.
    pub(super) fn forget_flattening(&self, is_meant: impl Fn(&RememberedTarget) -> bool) -> bool {
        let is_meant = |job: &RememberedJob| job.kind == FLATTEN && job.targets.iter().any(&is_meant);
        let jobs = &mut self.remembered.borrow_mut().jobs;
        let before = jobs.len();
        jobs.retain(|job| !is_meant(job));
        jobs.len() < before
    }

    /// Learns anew what is in a pool, and lets go of what nothing lies over any more.
    async fn look_again(&self, pool: Uuid) {
        let group = {
            let groups = self.groups.borrow();
            groups.iter().find(|(_, known)| known.homes.contains_key(&pool)).map(|(id, _)| *id)
        };
        let Some(group) = group else { return };
        if let Err(failure) = self.look_at_pool(group, pool).await {
            tracing::warn!(%pool, %failure, "a pool does not tell what is in it");
        }
        let _lock = self.lock_group(group).await;
        self.settle_below(group).await;
    }

    /// Takes up a job that a restart interrupted (FLATTENJOB1).
    pub(super) fn resume_flattening(&self, job: &RememberedJob) {
        let target = job.targets.first().copied();
        let home = target.and_then(|target| self.home_of(target.volume));
        let volumes: Vec<Uuid> = target.iter().map(|target| target.volume).collect();
        let started = self.register_job(job.id, FLATTEN, &job.subject, "bytes", &volumes, job.started);
        match target.zip(home) {
            Some((target, home)) => {
                self.spawn_flattening(home, (target.store, target.number), job.subject.clone(), &started);
            }
            None => {
                let message = format!("{} cannot be used", job.subject);
                let failure = Failure::new(Code::VolumeUnusable, message);
                self.put_off(started.id, failure.help("bring its disks back, then varve pv scan PATH"));
            }
        }
    }
}
