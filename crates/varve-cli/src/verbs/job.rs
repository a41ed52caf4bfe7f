//! `varve job`, carried out.

use super::array_scrub::scrub_text;
use super::or_dash;
use crate::answer::Answer;
use crate::grammar::JobVerb;
use crate::progress::subject;
use crate::session::Session;
use crate::table::{Table, pairs};
use crate::units::{date, duration, size};
use varve_api::{Failure, Job, JobCancel, JobState, calls};

/// Carries out a verb of jobs.
pub(crate) async fn job(session: &Session, verb: JobVerb) -> Result<Answer, Failure> {
    match verb {
        JobVerb::List => session.show(calls::ListJobs(), |jobs| table(jobs)).await,
        JobVerb::Show { id } => session.show(calls::ShowJob(id), show).await,
        JobVerb::Wait { id } => {
            let job = session.wait(session.ask(&calls::ShowJob(id)).await?).await?;
            Ok(Answer::new(&job, format!("{} {}: {}", job.kind, subject(&job), job.state)))
        }
        JobVerb::Cancel { id, change } => {
            let call = calls::CancelJob(id.clone(), JobCancel { dry_run: change.dry_run });
            let text = format!("job {id} was asked to end; varve job wait {id} waits until it has");
            session.change(call, |_| text).await
        }
    }
}

fn progress(job: &Job) -> String {
    let amount = |count: u64| if job.unit == "bytes" { size(count) } else { count.to_string() };
    match job.total {
        0 => "-".to_owned(),
        total => {
            format!("{} of {} ({}%)", amount(job.done), amount(total), job.done.saturating_mul(100) / total)
        }
    }
}

/// How much is done in a second, and how long the rest takes at that.
fn rate(job: &Job) -> (String, String) {
    let Some(rate) = job.rate.filter(|rate| *rate > 0) else { return (or_dash(""), or_dash("")) };
    let amount = if job.unit == "bytes" { size(rate) } else { rate.to_string() };
    let left = job.total.saturating_sub(job.done).div_ceil(rate);
    (format!("{amount}/s"), duration(left))
}

/// How a job stands: one that cannot go on now waits.
fn state(job: &Job) -> String {
    match job.error {
        Some(_) if job.state == JobState::Running => "waiting".to_owned(),
        _ => job.state.to_string(),
    }
}

fn table(jobs: &[Job]) -> String {
    let columns = ["JOB", "WHAT", "ON", "STATE", "PROGRESS", "RATE>", "LEFT>", "STARTED (UTC)"];
    let mut table = Table::new(&columns);
    for job in jobs {
        table.row(vec![
            job.id.clone(),
            job.kind.clone(),
            subject(job),
            state(job),
            progress(job),
            rate(job).0,
            rate(job).1,
            date(job.started),
        ]);
    }
    table.render("no jobs")
}

fn show(job: &Job) -> String {
    let mut shown = vec![
        ("job", job.id.clone()),
        ("what", job.kind.clone()),
        ("on", job.subject.clone()),
        ("state", state(job)),
        ("progress", progress(job)),
        ("rate", rate(job).0),
        ("left", rate(job).1),
        ("started", date(job.started)),
        ("ended", job.ended.map_or("-".to_owned(), date)),
        ("error", job.error.as_ref().map_or("-".to_owned(), ToString::to_string)),
    ];
    shown.extend(job.scrub.as_ref().map(|scrub| ("found", scrub_text(scrub))));
    pairs(&shown)
}
