//! Scrubs the arrays of a volume or pool: its own, and those of its stores.

use crate::ShardContext;
use crate::copies::progress::Progress;
use crate::failures;
use std::rc::Rc;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::Moment;
use varve_target::array::{Array, MemberState, ScrubError, ScrubOptions, ScrubReport};

/// How far the scrub of a volume's or pool's arrays is.
#[derive(Clone, Debug, Default)]
pub struct ScrubPosition {
    /// What was found in the arrays that come before.
    pub before: ScrubReport,
    /// The array that is compared now, and what was found in it.
    pub now: Option<(Uuid, ScrubReport)>,
}

impl ScrubPosition {
    /// What was found in all.
    pub fn report(&self) -> ScrubReport {
        let mut sum = self.before.clone();
        self.now.iter().for_each(|(_, report)| add(&mut sum, report));
        sum
    }
}

/// What a scrub has found.
pub struct Scrubbed {
    /// How far it is, and what was found.
    pub position: ScrubPosition,
    /// Where members did not match, as far as it is reported place by place.
    pub places: Vec<String>,
    /// Why it has not compared everything, if so.
    pub outcome: Result<(), Failure>,
    /// Whether it only has to go on from its position.
    pub goes_on: bool,
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

/// Scrubs the arrays of a volume or pool, one after the other, from a position on, and until `end`.
pub async fn scrub(
    context: &ShardContext,
    (subject, name): (Uuid, &str),
    options: ScrubOptions,
    (mut position, end): (ScrubPosition, Moment),
    progress: &Progress,
) -> Result<Scrubbed, Failure> {
    let (clock, mut places, mut outcome) = (context.clock(), Vec::new(), Ok(()));
    let order = |id: Uuid| (id == subject, id);
    let mut rest = arrays(context, subject, name)?;
    if let Some((now, _)) = position.now {
        rest.retain(|(id, _)| order(*id) <= order(now));
    }
    while let Some((id, array)) = rest.pop() {
        let report = match position.now.take() {
            Some((now, report)) if now == id => report,
            now => {
                now.iter().for_each(|(_, report)| add(&mut position.before, report));
                ScrubReport::default()
            }
        };
        let (before, named) = (position.before.done, report.named.len());
        let behind: u64 = rest.iter().map(|(_, array)| bytes(array)).sum();
        let (report, ended) = array
            .scrub_on(options, report, |report| {
                progress.report(before + report.done, before + report.total + behind);
                !progress.is_cancelled() && clock.now() < end
            })
            .await;
        let of = if id == subject { String::new() } else { format!(" of its store {id}") };
        places.extend(report.named.iter().skip(named).map(|block| {
            format!(
                "the members{of} do not fit each other in {} bytes from {} on",
                block.length, block.offset
            )
        }));
        position.now = Some((id, report));
        if let Err(error) = ended {
            outcome = Err(error);
            break;
        }
    }
    let goes_on = outcome == Err(ScrubError::Stopped) && !progress.is_cancelled();
    if !goes_on {
        let report = position.report();
        progress.report(report.done, report.total);
    }
    let outcome = outcome.map_err(|error| failure(name, error));
    Ok(Scrubbed { position, places, outcome, goes_on })
}

/// The arrays of a volume or pool that is in use, its own last.
fn arrays(context: &ShardContext, subject: Uuid, name: &str) -> Result<Vec<(Uuid, Rc<Array>)>, Failure> {
    // What works with them belongs to the volume: a panic takes it out of use.
    let Some(served) = context.served(subject) else {
        return Err(Failure::new(Code::VolumeUnusable, format!("{name} is not in use now"))
            .help("varve status says why"));
    };
    let mut arrays = served.own().map(|own| own.arrays.all()).unwrap_or_default();
    arrays.sort_by_key(|(id, _)| (*id == subject, *id));
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
