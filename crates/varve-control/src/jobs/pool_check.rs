//! The job that checks the last commit of a pool while it serves.
//!
//! Invariant CHECKJOB1: a check stands in no text, and writes nothing but checkpoints of its pool; so a restart forgets it.

use super::registry::{CHECK, SHORT, Started};
use super::runner::{Stop, Work};
use crate::Control;
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{Code, Failure, Job};
use varve_target::thin::PoolReport;
use varve_volume::ShardHandle;

/// So many findings are reported one by one.
const TOLD_MAX: usize = 20;

/// The work of a check.
struct Check {
    home: ShardHandle,
    pool: Uuid,
    subject: String,
}

impl Work for Check {
    const GOES_ON: bool = false; // CHECKJOB1

    async fn run(&mut self, control: &Control, job: &Started) -> Result<(), Stop> {
        let work = self.home.pool(self.pool).check(Arc::clone(&job.progress));
        let checked = control.answered(self.pool, work.await);
        checked.and_then(|report| control.tell_check(&self.subject, &report)).map_err(Stop::End)
    }
}

impl Control {
    /// Checks the last commit of a pool; the answer is a job, which fails if anything is damaged.
    pub async fn check_pool(&self, text: &str) -> Result<Job, Failure> {
        let name = crate::find::volume_name(text)?;
        let located = self.find_pool(&name)?.usable()?;
        let (id, pool, subject) = (self.next_job(), located.volume.id, name.to_string());
        // CHECKJOB1: it stands in no text.
        let started = self.register_job(id, CHECK, &subject, "nodes", None, self.now());
        self.spawn_work(started, Check { home: located.home, pool, subject });
        self.job_soon(id, SHORT).await
    }

    /// Says what a check has found.
    fn tell_check(&self, subject: &str, report: &PoolReport) -> Result<(), Failure> {
        let concerned = report.damage.iter().map(|loss| {
            let bytes: u64 = loss.extents.iter().map(|extent| extent.length).sum();
            let first = loss.extents.first().map_or(0, |extent| extent.offset);
            format!("volume {} ({}), {bytes} bytes from {first} on: {}", loss.volume, loss.name, loss.why)
        });
        let found: Vec<String> = report.errors.iter().cloned().chain(concerned).collect();
        let Some(first) = found.first() else {
            let message = format!("checked: sound; {} nodes, {} runs", report.nodes, report.runs);
            self.event(subject, &message);
            return Ok(());
        };
        found.iter().take(TOLD_MAX).for_each(|message| self.warn(subject, message));
        let more = match found.len() {
            1 => String::new(),
            more => format!("; and {} more, see varve status", more - 1),
        };
        Err(Failure::new(Code::CheckFound, format!("{subject}: {first}{more}"))
            .help("stop the daemon, and varve check PATH… of its disks"))
    }
}
