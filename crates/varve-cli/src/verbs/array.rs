//! `varve array`, carried out.

use super::array_scrub::array_scrub;
use super::layout::{array_text, member_table, policy_words};
use crate::answer::Answer;
use crate::client::segment;
use crate::grammar::ArrayVerb;
use crate::places::absolute;
use crate::session::{Call, Session};
use crate::units::size;
use hyper::Method;
use varve_api::{Array, ArrayChange, ArrayFail, ArrayRebuild, ArrayReplace, Failure, VolumeArray};

/// Carries out a verb of arrays.
pub(crate) async fn array(session: &Session, verb: ArrayVerb) -> Result<Answer, Failure> {
    let url = |name: &str, verb: &str| format!("/v1/arrays/{}{verb}", segment(name));
    match verb {
        ArrayVerb::Show { name } => {
            let arrays: Vec<VolumeArray> = session.get(&url(&name, "")).await?;
            Ok(Answer::new(&arrays, show(&arrays)))
        }
        ArrayVerb::Change(options) => {
            let policy = policy_words(&options.policy);
            let log = options.log.as_deref().map(log_word).transpose()?;
            let request = ArrayChange { policy, log, ..ArrayChange::default() };
            let (path, dry_run) = (url(&options.name, "/change"), options.change.dry_run);
            let call = Call { method: Method::POST, path, request: &request, dry_run };
            session.change(call, |arrays: &Vec<VolumeArray>| show(arrays)).await
        }
        ArrayVerb::Fail { name, disk, change } => {
            let request = ArrayFail { disk: absolute(&disk)?, ..ArrayFail::default() };
            let (path, dry_run) = (url(&name, "/fail"), change.dry_run);
            let call = Call { method: Method::POST, path, request: &request, dry_run };
            session.change(call, |arrays: &Vec<VolumeArray>| show(arrays)).await
        }
        ArrayVerb::Replace { name, disk, to, change } => {
            let to = to.as_deref().map(absolute).transpose()?;
            let request = ArrayReplace { disk: absolute(&disk)?, to, ..ArrayReplace::default() };
            let (path, dry_run) = (url(&name, "/replace"), change.dry_run);
            let call = Call { method: Method::POST, path, request: &request, dry_run };
            session.change(call, |arrays: &Vec<VolumeArray>| show(arrays)).await
        }
        ArrayVerb::Scrub(options) => array_scrub(session, options).await,
        ArrayVerb::Rebuild { name, disk, accept_stale, destroy } => {
            let disk = disk.as_deref().map(absolute).transpose()?;
            let request = ArrayRebuild { disk, accept_stale, ..ArrayRebuild::default() };
            let (path, dry_run) = (url(&name, "/rebuild"), destroy.dry_run);
            let call = Call { method: Method::POST, path, request: &request, dry_run };
            if !request.accept_stale.is_empty() {
                session.consent(&format!("array rebuild {name} --accept-stale"), &call, destroy).await?;
            }
            session.change(call, |arrays: &Vec<VolumeArray>| show(arrays)).await
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
