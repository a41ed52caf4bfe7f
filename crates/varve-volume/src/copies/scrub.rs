//! Scrubs the arrays of a volume or pool: its own, and those of its stores.

use crate::ShardContext;
use crate::copies::progress::Progress;
use crate::failures;
use std::rc::Rc;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_target::array::{Array, MemberState, ScrubError, ScrubOptions, ScrubReport};

/// What a scrub has found.
pub struct Scrubbed {
    /// What was found.
    pub report: ScrubReport,
    /// Where members did not match, as far as it is reported place by place.
    pub places: Vec<String>,
    /// Why it has not compared everything, if so.
    pub outcome: Result<(), Failure>,
}

/// How many bytes there are to compare, if the volume or pool can be scrubbed now.
pub fn ask(context: &ShardContext, subject: Uuid, name: &str) -> Result<u64, Failure> {
    let arrays = arrays(context, subject, name)?;
    let absent = arrays.iter().find_map(|(_, array)| {
        array.status().members.iter().position(|member| member.state != MemberState::InSync)
    });
    if let Some(place) = absent {
        return Err(degraded(name, place));
    }
    Ok(arrays.iter().map(|(_, array)| bytes(array)).sum())
}

/// Scrubs the arrays of a volume or pool, one after the other.
pub async fn scrub(
    context: &ShardContext,
    subject: Uuid,
    name: &str,
    options: ScrubOptions,
    progress: &Progress,
) -> Result<Scrubbed, Failure> {
    let mut all = Scrubbed { report: ScrubReport::default(), places: Vec::new(), outcome: Ok(()) };
    let mut rest = arrays(context, subject, name)?;
    while let Some((id, array)) = rest.pop() {
        let before = all.report.done;
        let behind: u64 = rest.iter().map(|(_, array)| bytes(array)).sum();
        let (report, outcome) = array
            .scrub(options, |report| {
                progress.report(before + report.done, before + report.total + behind);
                !progress.is_cancelled()
            })
            .await;
        let of = if id == subject { String::new() } else { format!(" of its store {id}") };
        all.places.extend(report.named.iter().map(|block| {
            format!(
                "the members{of} do not fit each other in {} bytes from {} on",
                block.length, block.offset
            )
        }));
        add(&mut all.report, &report);
        if let Err(error) = outcome {
            all.outcome = Err(failure(name, error));
            break;
        }
    }
    progress.report(all.report.done, all.report.total);
    Ok(all)
}

/// The arrays of a volume or pool that is in use, its own last.
fn arrays(context: &ShardContext, subject: Uuid, name: &str) -> Result<Vec<(Uuid, Rc<Array>)>, Failure> {
    // What works with them belongs to the volume: a panic takes it out of use.
    if context.stack(subject).is_none() && context.pool(subject).is_none() {
        return Err(Failure::new(Code::VolumeUnusable, format!("{name} is not in use now")));
    }
    let mut arrays = context.arrays.of(subject);
    arrays.sort_by_key(|(id, _)| *id == subject);
    if arrays.is_empty() {
        return Err(Failure::new(Code::NotAnArray, format!("{name} is neither a mirror nor ddraid"))
            .help(format!("varve lv show {name}")));
    }
    Ok(arrays)
}

/// Bytes that were ever written to an array.
fn bytes(array: &Array) -> u64 {
    let status = array.status();
    (status.written * status.region_size).min(array.spec().size)
}

fn add(sum: &mut ScrubReport, report: &ScrubReport) {
    sum.done += report.done;
    sum.total += report.total;
    sum.mismatches += report.mismatches;
    sum.healed += report.healed;
    sum.unread += report.unread;
}

fn degraded(name: &str, place: usize) -> Failure {
    let message = format!("member {place} of {name} is not in sync, and a scrub compares all members");
    Failure::new(Code::ArrayDegraded, message)
        .help("varve pv scan PATH when its disk is back; wait until it has caught up")
}

fn failure(name: &str, error: ScrubError) -> Failure {
    match error {
        ScrubError::Degraded { place } => degraded(name, place),
        ScrubError::Stopped => Failure::new(Code::JobCancelled, "the scrub was cancelled"),
        ScrubError::Io(error) => failures::io("the scrub", error),
    }
}
