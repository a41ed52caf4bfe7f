//! `varve array`, carried out.

use super::array_scrub::array_scrub;
use super::layout::{array_text, member_table, policy_words};
use crate::answer::Answer;
use crate::grammar::ArrayVerb;
use crate::places::absolute;
use crate::session::Session;
use crate::units::size;
use varve_api::{Array, ArrayChange, ArrayFail, ArrayRebuild, ArrayReplace, Failure, VolumeArray, calls};

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
        ArrayVerb::Replace { name, disk, to, change } => {
            let to = to.as_deref().map(absolute).transpose()?;
            let request = ArrayReplace { disk: absolute(&disk)?, to, dry_run: change.dry_run };
            session.change(calls::ReplaceMembers(name, request), show).await
        }
        ArrayVerb::Scrub(options) => array_scrub(session, options).await,
        ArrayVerb::Rebuild { name, disk, accept_stale, destroy } => {
            let disk = disk.as_deref().map(absolute).transpose()?;
            let what = format!("array rebuild {name} --accept-stale");
            let is_accepted = destroy.yes || accept_stale.is_empty();
            let request = ArrayRebuild { disk, accept_stale, dry_run: destroy.dry_run };
            session.destroy(&what, is_accepted, calls::RebuildArray(name, request), show).await
        }
    }
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
        format!("{}{store}: {what}\n{policy}\ndirty: {dirty}{members}", one.volume)
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
