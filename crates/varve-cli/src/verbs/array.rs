//! `varve array`, carried out.

use super::array_scrub::array_scrub;
use super::layout::{array_text, member_table, policy_words};
use crate::answer::Answer;
use crate::grammar::{ArrayVerb, Waiting};
use crate::places::absolute;
use crate::session::{Session, running};
use crate::units::size;
use std::collections::BTreeSet;
use varve_api::calls::{self, Call};
use varve_api::{Array, ArrayChange, ArrayFail, ArrayRebuild, ArrayReplace, Changed, Failure, VolumeArray};

/// Carries out a verb of arrays.
pub(crate) async fn array(session: &Session, verb: ArrayVerb) -> Result<Answer, Failure> {
    let show = |arrays: &Vec<VolumeArray>| show(arrays);
    match verb {
        ArrayVerb::Show { name } => session.show(calls::ShowArrays(name), show).await,
        ArrayVerb::Change(options) => {
            let policy = policy_words(&options.policy);
            let log = options.log.as_deref().map(log_word).transpose()?;
            let request = ArrayChange { policy, log, dry_run: options.change.dry_run };
            session.change(calls::ChangeArrays(options.name, request), show).await
        }
        ArrayVerb::Fail { name, disk, change } => {
            let request = ArrayFail { disk: absolute(&disk)?, dry_run: change.dry_run };
            session.change(calls::FailMembers(name, request), show).await
        }
        ArrayVerb::Replace { name, disk, to, change, waiting } => {
            let to = to.as_deref().map(absolute).transpose()?;
            let request = ArrayReplace { disk: absolute(&disk)?, to, dry_run: change.dry_run };
            rebuilt(session, calls::ReplaceMembers(name, request), waiting, show).await
        }
        ArrayVerb::Scrub(options) => array_scrub(session, options).await,
        ArrayVerb::Rebuild { name, disk, accept_stale, destroy, waiting } => {
            let disk = disk.as_deref().map(absolute).transpose()?;
            let what = format!("array rebuild {name} --accept-stale");
            let is_accepted = destroy.yes || accept_stale.is_empty();
            let request = ArrayRebuild { disk, accept_stale, dry_run: destroy.dry_run };
            let call = calls::RebuildArray(name, request);
            session.consent(&what, is_accepted, &call).await?;
            rebuilt(session, call, waiting, show).await
        }
    }
}

/// Carries out a change of arrays, and waits for the jobs that fill members if that is wanted; `text` shows users what is there then.
pub(super) async fn rebuilt(
    session: &Session,
    call: impl Call<Answer = Changed<Vec<VolumeArray>>>,
    waiting: Waiting,
    text: impl FnOnce(&Vec<VolumeArray>) -> String,
) -> Result<Answer, Failure> {
    let arrays = match session.ask(&call).await? {
        Changed::Planned(plan) => return Ok(Answer::planned(&plan)),
        Changed::Done(arrays) => arrays,
    };
    let jobs: BTreeSet<&String> = arrays.iter().filter_map(|one| one.job.as_ref()).collect();
    if jobs.is_empty() || !waiting.is_wanted() {
        let hints = jobs.iter().map(|job| format!("\n{}", running(job))).collect::<String>();
        return Ok(Answer::new(&arrays, text(&arrays).trim_end().to_owned() + &hints));
    }
    let mut failed = None;
    for job in jobs {
        let waited = session.wait(session.ask(&calls::ShowJob(job.clone())).await?).await;
        failed = failed.or(waited.err());
    }
    if let Some(failure) = failed {
        return Err(failure);
    }
    let volumes: BTreeSet<&String> = arrays.iter().map(|one| &one.volume).collect();
    let mut arrays = Vec::new();
    for volume in volumes {
        arrays.extend(session.ask(&calls::ShowArrays(volume.clone())).await?);
    }
    Ok(Answer::new(&arrays, text(&arrays)))
}

/// What has a log, as the daemon finds it.
fn log_word(text: &str) -> Result<String, Failure> {
    if text == "members" { Ok(text.to_owned()) } else { absolute(text) }
}

fn show(arrays: &[VolumeArray]) -> String {
    let text = |one: &VolumeArray| {
        let store = if one.is_store { ", snapshots" } else { "" };
        let (array, members) = (&one.array, member_table(Some(&one.array)));
        let (what, policy, dirty) = (array_text(array), policy_text(array), size(array.dirty));
        let job =
            one.job.as_ref().map(|job| format!("members are filled by job {job}\n")).unwrap_or_default();
        format!("{}{store}: {what}\n{policy}\ndirty: {dirty}{members}{job}", one.volume)
    };
    arrays.iter().map(text).collect::<Vec<_>>().join("\n")
}

/// What an array does about slow members, and how fast it is made equal.
fn policy_text(array: &Array) -> String {
    let seconds = array.slow_after_ms as f64 / 1000.0;
    let most = array.resync_rate_max.map(|most| format!(" to {}", size(most))).unwrap_or_default();
    let idle = match array.release_after_ms {
        1000 => String::new(), // As usual.
        ms => format!(", clean after: {} s", ms as f64 / 1000.0),
    };
    format!("slow after: {seconds} s, resync rate: {}{most} a second{idle}", size(array.resync_rate_min))
}
