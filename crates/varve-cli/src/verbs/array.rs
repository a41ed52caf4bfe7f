//! `varve array`, carried out.

use super::array_scrub::array_scrub;
use super::layout::{array_text, member_table};
use super::not_built;
use crate::answer::Answer;
use crate::client::segment;
use crate::grammar::ArrayVerb;
use crate::places::absolute;
use crate::session::{Call, Session};
use crate::units::size;
use hyper::Method;
use varve_api::{ArrayFail, ArrayReplace, Failure, VolumeArray};

/// Carries out a verb of arrays.
pub(crate) async fn array(session: &Session, verb: ArrayVerb) -> Result<Answer, Failure> {
    let url = |name: &str, verb: &str| format!("/v1/arrays/{}{verb}", segment(name));
    match verb {
        ArrayVerb::Show { name } => {
            let arrays: Vec<VolumeArray> = session.get(&url(&name, "")).await?;
            Ok(Answer::new(&arrays, show(&arrays)))
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
        ArrayVerb::Rebuild(_) => Err(not_built("filling a member anew")
            .help("varve array replace VG/LV PV gives its place to another one, which is rebuilt")),
    }
}

fn show(arrays: &[VolumeArray]) -> String {
    let text = |one: &VolumeArray| {
        let store = if one.is_store { ", snapshots" } else { "" };
        let (what, members) = (array_text(&one.array), member_table(Some(&one.array)));
        format!("{}{store}: {what}\ndirty: {}{members}", one.volume, size(one.array.dirty))
    };
    arrays.iter().map(text).collect::<Vec<_>>().join("\n")
}
