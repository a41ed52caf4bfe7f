//! The job that makes a volume's content that of a snapshot.
//!
//! Invariants:
//! - ROLLJOB1. It is taken up again after a restart, and then it is known whether it had begun: of a thin volume by its mark,
//!   which changes in the same commit; else by the text, for no store ends a rollback before it says so. So one
//!   that had not begun is not taken for done, and one that had is not done once more, over what was written since.
//! - ROLLJOB2. A rollback that was begun is finished even if it stands in no text: its store knows.
//! - ROLLJOB4. What the volume shows before is a snapshot that is valid from the change on with which the job stands in the text: a crash
//!   leaves both or none. A job that ends before its rollback has begun takes it back.
//! - ROLLJOB3. An error does not end the job of a rollback that was begun: it rests, says so, and tries again.

use super::registry::{ROLLBACK, SHORT, Started};
use super::runner::{Stop, Unusable, Work, unless_usable};
use crate::Control;
use crate::commands::snapshots::{Batch, snapshot_name};
use crate::failures;
use crate::find::LocatedVolume;
use crate::group::snapshot_sets::Part;
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Changed, Code, Failure, Job, JobState, Plan, SnapshotRollback};
use varve_vg::model::{Job as Entry, JobWork};
use varve_vg::names::VolumeName;
use varve_volume::content::snapshot_facts::{RollbackPoint, SnapshotFacts, Target};
use varve_volume::copies::progress::Progress as JobProgress;
use varve_volume::{ShardHandle, fault};

/// How often progress is polled.
const TICK: Duration = Duration::from_millis(2);
/// How the snapshots that keep what was before a rollback begin; a number follows.
const BEFORE: &str = "before-rollback-";

/// What is to be done next of a rollback.
#[derive(Clone, Copy)]
enum Step {
    /// The volume is to show what the snapshot shows.
    Begin(RollbackPoint),
    /// The text is to say that it does (ROLLJOB1).
    Record,
    /// What is not on the volume's own place yet is to be copied there.
    Finish,
}

/// The work of a job, where its volume lives.
struct Rollback {
    home: ShardHandle,
    group: Uuid,
    volume: Uuid,
    /// Of a thin volume.
    pool: Option<Uuid>,
    /// What is to be done next.
    step: Step,
    /// The snapshot of before, until the rollback has begun.
    before: Option<Batch>,
}

impl Rollback {
    fn new(located: &LocatedVolume, step: Step, before: Option<Batch>) -> Self {
        let (home, group, volume) = (located.home.clone(), located.group, located.volume.id);
        Self { home, group, volume, pool: located.thin.as_ref().map(|thin| thin.pool), step, before }
    }

    /// Takes one step; what follows, if something does.
    async fn take_step(&self, control: &Control, job: &Started) -> Result<Option<Step>, Failure> {
        let (volume, progress) = (self.home.volume(self.volume), Arc::clone(&job.progress));
        match self.step {
            Step::Begin(point) => {
                control.answered(self.volume, volume.begin_rollback(point, progress).await)?;
                fault::die_at("rollback-begun");
                control.learn_of_rollback(self.group, self.pool).await;
                // ROLLJOB1: the mark of a thin volume says it already.
                Ok(Some(if point.mark.is_some() { Step::Finish } else { Step::Record }))
            }
            Step::Record => control.record_rollback(job.id).await.map(|()| Some(Step::Finish)),
            Step::Finish => {
                control.answered(self.volume, volume.finish_rollback(progress).await)?;
                Ok(None)
            }
        }
    }

    /// Why it does not go on. One that may have begun goes on when its volume can be used again, and then the snapshot of before stays
    /// (ROLLJOB4): it is not known what a disk that failed has.
    async fn stopped(&self, control: &Control, failure: Failure) -> Stop {
        let may_have_begun = failure.code == Code::MediumFailed && matches!(self.step, Step::Begin(_));
        match control.may_go_on(self.volume, &failure).await {
            true => Stop::Wait(failure), // ROLLJOB3
            false if may_have_begun => Stop::PutOff(failure),
            false => unless_usable(failure),
        }
    }
}

impl Work for Rollback {
    fn group(&self) -> Option<Uuid> {
        Some(self.group)
    }

    async fn run(&mut self, control: &Control, job: &Started) -> Result<(), Stop> {
        loop {
            match self.take_step(control, job).await {
                Ok(Some(next)) => self.step = next,
                Ok(None) => return Ok(()),
                Err(failure) => return Err(self.stopped(control, failure).await),
            }
        }
    }

    async fn give_up(&mut self, control: &Control) -> Result<bool, Failure> {
        if let (Step::Begin(_), Some(before)) = (&self.step, self.before.take()) {
            control.take_back(&before).await; // ROLLJOB4
        }
        Ok(false)
    }
}

impl Control {
    /// Makes a volume's content that of a snapshot; the answer is a job. When it returns, requests to the volume are
    /// answered from that snapshot; the job copies what is not yet on the volume's own place.
    pub async fn rollback_snapshot(&self, request: SnapshotRollback) -> Result<Changed<Job>, Failure> {
        let lock = self.lock_of(&request.name).await?;
        let name = snapshot_name(&request.name)?;
        let located = self.find_volume(&name)?;
        self.refuse_if_busy(located.volume.id)?;
        self.check_readable(&located, &name).await?;
        self.refuse_siblings(&located, &name)?;
        self.refuse_read_only_origin(&located, &name.origin()).await?;
        self.refuse_clients(|export| export.name == name.origin(), request.force).await?;
        if located.thin.is_some() {
            self.refuse_if_pool_waits(&name.origin(), &located).await?;
        }
        let before = match request.no_snapshot {
            true => None,
            false => Some(self.before_rollback(&located, &name, request.dry_run).await?),
        };
        if request.dry_run {
            return self.plan_rollback(&located, &name, before.as_ref()).await.map(Changed::Planned);
        }
        let (point, started) = self.start_rollback(&located, &name, before.as_ref()).await?;
        let (id, progress) = (started.id, Arc::clone(&started.progress));
        self.jobs.list.say_kept(id, before.as_ref().map(kept_name));
        self.event(&request.name, "rollback begins");
        self.spawn_work(started, Rollback::new(&located, Step::Begin(point), before));
        drop(lock);
        self.until_begun(id, &progress).await;
        self.job_soon(id, SHORT).await.map(Changed::Done)
    }

    async fn plan_rollback(
        &self,
        located: &LocatedVolume,
        name: &VolumeName,
        before: Option<&Batch>,
    ) -> Result<Plan, Failure> {
        let origin = name.origin();
        let mut steps = match before {
            Some(before) => vec![
                format!("would make the snapshot {} of what {origin} shows now", kept_name(before)),
                format!("would make {origin} what {name} shows"),
            ],
            None => vec![format!("would make {origin} what {name} shows; what was written since is lost")],
        };
        steps.extend(self.differing_ends(located, name).await?);
        steps.extend(self.clients_of(name));
        Ok(Plan::of_steps(steps))
    }

    /// The snapshot that is to keep what a volume shows before its rollback.
    async fn before_rollback(
        &self,
        located: &LocatedVolume,
        name: &VolumeName,
        dry_run: bool,
    ) -> Result<Batch, Failure> {
        let origin = name.origin();
        if located.thin.is_none() && self.refreshed(located)?.store.is_none() {
            let message =
                format!("beside the independent snapshot {name} what {origin} shows cannot be kept");
            let help = format!("varve snap rollback {name} --no-snapshot gives it up");
            return Err(Failure::new(Code::RollbackBesideIndependent, message).help(help));
        }
        if !dry_run {
            self.resolve_sets(&[located.group]).await;
        }
        let facts = self.facts(located).await;
        let number = |facts: &SnapshotFacts| facts.name.strip_prefix(BEFORE)?.parse::<u64>().ok();
        let last = facts.iter().filter_map(number).max().unwrap_or(0);
        let names = vec![format!("{BEFORE}{}", last.saturating_add(1))];
        let located = self.find_volume(&origin)?;
        let batch = Batch { located, volume: origin, names, stores: Vec::new(), of: None };
        self.refuse_names_of_sets(&batch)?;
        self.refuse_snapshots_beyond(std::slice::from_ref(&batch)).await.map_err(without_snapshot)?;
        Ok(batch)
    }

    /// Makes the snapshot of before and writes down the job; after an error there is neither (ROLLJOB4).
    async fn start_rollback(
        &self,
        located: &LocatedVolume,
        name: &VolumeName,
        before: Option<&Batch>,
    ) -> Result<(RollbackPoint, Started), Failure> {
        let kept = match before {
            Some(batch) => {
                let made = self.make_set(std::slice::from_ref(batch), true).await;
                made.map_err(without_snapshot)?
            }
            None => Vec::new(),
        };
        let volume = located.volume.id;
        let started = match self.rollback_point(located, name).await {
            Ok(point) => {
                let (work, set) = (work(volume, point, false), kept.first().map(Part::set));
                let started = self.start_job(located.group, &name.to_string(), work, set).await;
                started.map(|started| (point, started))
            }
            Err(failure) => Err(failure),
        };
        if started.is_err() {
            self.undo(&kept).await;
        }
        started
    }

    /// A volume with several stores cannot be rolled back in place: no store would know what the others need.
    fn refuse_siblings(&self, located: &LocatedVolume, name: &VolumeName) -> Result<(), Failure> {
        if self.refreshed(located)?.stores().count() <= 1 {
            return Ok(());
        }
        let origin = name.origin();
        let message = format!("{origin} has independent snapshots, and cannot be rolled back beside them");
        let help = format!("varve snap list {origin} shows them; remove all but {name}, or copy {name} back");
        Err(Failure::new(Code::RollbackBesideIndependent, message).help(help))
    }

    /// What a rollback to a snapshot of another size does at the volume's end.
    async fn differing_ends(
        &self,
        located: &LocatedVolume,
        name: &VolumeName,
    ) -> Result<Option<String>, Failure> {
        let (origin, kept) = (name.origin(), self.rollback_point(located, name).await?.bytes);
        let volume = located.volume.id;
        let size = located.home.volume(volume).size();
        let size = size.await.map_err(failures::gone)?.ok_or_else(inactive)?;
        Ok(match size.cmp(&kept) {
            Ordering::Equal => None,
            Ordering::Greater => Some(format!(
                "would keep the size of {origin}, and make its last {} bytes, from byte {kept} to {size}, zeros: {name} has \
                 only {kept} bytes",
                size - kept
            )),
            Ordering::Less => Some(format!(
                "would keep the size of {origin}, and not show the last {} bytes of {name}, from byte {size} to {kept}: \
                 {origin} has only {size} bytes",
                kept - size
            )),
        })
    }

    /// The snapshot for good, and what tells whether the rollback to it has happened.
    async fn rollback_point(
        &self,
        located: &LocatedVolume,
        name: &VolumeName,
    ) -> Result<RollbackPoint, Failure> {
        let (volume, snapshot) = (located.volume.id, name.snapshot.clone().unwrap_or_default());
        let point = located.home.volume(volume).rollback_point(snapshot).await;
        point.map_err(failures::gone)?.map_err(|failure| failure.about(&name.to_string(), None))
    }

    /// The origin of a thin volume may be another snapshot after its rollback.
    async fn learn_of_rollback(&self, group: Uuid, pool: Option<Uuid>) {
        if let Some(pool) = pool
            && let Err(failure) = self.look_at_pool(group, pool).await
        {
            tracing::warn!(%pool, %failure, "a pool does not tell what is in it");
        }
    }

    /// ROLLJOB3: whether a rollback that met an error was begun and can be tried again. One whose log failed cannot before
    /// the log is read anew.
    async fn may_go_on(&self, volume: Uuid, failure: &Failure) -> bool {
        if matches!(failure.code, Code::VolumeUnusable | Code::Stopping) {
            return false;
        }
        let Some(home) = self.home_of(volume) else { return false };
        home.volume(volume).is_rolling_back().await == Ok(Some(true))
    }

    /// Takes up rollbacks of these volumes that no job works on (ROLLJOB2).
    pub(crate) async fn resume_rollbacks(&self, begun: &[(VolumeName, LocatedVolume)]) {
        for (name, located) in begun {
            let volume = located.volume.id;
            if self.refuse_if_busy(volume).is_err() {
                continue;
            }
            let facts = self.facts(located).await;
            let Some(target) = facts.into_iter().find(|facts| facts.is_merging) else { continue };
            let subject = VolumeName { snapshot: Some(target.name), ..name.clone() }.to_string();
            let (id, point) = (
                self.next_job_of(&[located.group]),
                RollbackPoint { target: target.target, bytes: target.size, mark: None },
            );
            let recorded =
                self.record_job(id, &subject, vec![(located.group, work(volume, point, true))], None);
            if let Err(failure) = recorded.await {
                tracing::warn!(job = id, %failure, "a rollback does not stand in the text of its group"); // ROLLJOB2
            }
            let started = self.register_job(id, ROLLBACK, &subject, "bytes", Some(volume), self.now());
            self.event(&subject, "a rollback that had been begun goes on");
            self.spawn_work(started, Rollback::new(located, Step::Finish, None));
        }
    }

    /// Waits until the volume shows the old state, or the job has ended.
    async fn until_begun(&self, id: u64, progress: &JobProgress) {
        let clock = self.context.clock();
        let running = || self.jobs.list.show(&id.to_string()).is_ok_and(|job| job.state == JobState::Running);
        while running() && !progress.has_total() {
            clock.sleep(TICK).await;
        }
    }

    /// Takes up a job that stands in a text (ROLLJOB1).
    pub(crate) fn resume_rollback(&self, entry: &Entry, started: Started) {
        let JobWork::Rollback { volume, store, number, bytes, mark, begun } = entry.work else { return };
        if self.is_gone(volume, store) {
            return self.spawn_work(started, Unusable(gone(&entry.subject)));
        }
        // It may have another name by now.
        let located = self
            .name_of(volume)
            .ok_or_else(inactive)
            .and_then(|(group, volume)| self.find_volume(&VolumeName { group, volume, snapshot: None }));
        let point = RollbackPoint { target: Target { store, number }, bytes, mark };
        match located {
            Ok(located) => {
                let step = if begun { Step::Finish } else { Step::Begin(point) };
                self.spawn_work(started, Rollback::new(&located, step, None));
            }
            Err(failure) => self.spawn_work(started, Unusable(failure)),
        }
    }

    /// The exports whose clients would see a rollback, in words.
    fn clients_of(&self, name: &VolumeName) -> Vec<String> {
        let warning = |id: String| format!("would change what the clients of export {id} see");
        self.exports_of(&name.origin()).into_iter().map(warning).collect()
    }
}

/// What the text says of a rollback.
fn work(volume: Uuid, point: RollbackPoint, begun: bool) -> JobWork {
    let RollbackPoint { target: Target { store, number }, bytes, mark } = point;
    JobWork::Rollback { volume, store, number, bytes, mark, begun }
}

/// The full name of the snapshot that is to keep what was before.
fn kept_name(before: &Batch) -> String {
    before.full(&before.names[0])
}

/// Why what a volume shows cannot be kept, and that it need not be.
fn without_snapshot(failure: Failure) -> Failure {
    let help = match failure.help.as_str() {
        "" => "add --no-snapshot to give it up".to_owned(),
        help => format!("{help}; or add --no-snapshot to give it up"),
    };
    let message = format!("what the volume shows before cannot be kept as a snapshot: {}", failure.message);
    Failure { message, ..failure }.help(help)
}

fn gone(subject: &str) -> Failure {
    Failure::new(Code::JobFailed, format!("{subject} cannot be used")).help("varve lv list")
}

fn inactive() -> Failure {
    Failure::new(Code::VolumeUnusable, "the volume is not active").help("varve lv list")
}
