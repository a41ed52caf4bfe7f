//! `--type` and what belongs to it, `--on`, and how an array is shown.

use super::array_scrub::last_scrub;
use crate::answer::Answer;
use crate::grammar::{ArrayPolicyOptions, ConvertOptions, DiskWords, LayoutChoice, LayoutOptions};
use crate::places::{absolute, absolute_all};
use crate::session::Session;
use crate::table::Table;
use crate::units::{duration, size};
use varve_api::calls::Call;
use varve_api::{Array, ArrayPolicyWords, Changed, Code, Convert, Failure, Job, Layout};

/// Runs of regions that are listed one by one.
const RUNS_MAX: usize = 16;

/// The layout that options name.
pub(super) fn layout_word(options: &LayoutOptions) -> Result<Layout, Failure> {
    let (is_mirror, is_ddraid) =
        (options.layout == LayoutChoice::Mirror, options.layout == LayoutChoice::Ddraid);
    let has_stripes = options.stripes.is_some() || options.stripe_size.is_some();
    let has_order = options.order.is_some() || options.array_block_size.is_some();
    for (is_misplaced, words) in [
        (
            has_stripes && options.layout != LayoutChoice::Striped,
            "--stripes and --stripe-size belong to --type striped",
        ),
        (options.copies.is_some() && !is_mirror, "--copies belongs to --type mirror"),
        (has_order && !is_ddraid, "--order and --array-block-size belong to --type ddraid"),
        (
            (options.read_policy.is_some() || options.checksums) && !is_mirror && !is_ddraid,
            "--read-policy and --checksums belong to --type mirror and --type ddraid",
        ),
        (
            options.log.is_some() && !is_mirror && !is_ddraid,
            "--log belongs to --type mirror and --type ddraid",
        ),
    ] {
        if is_misplaced {
            return Err(Failure::new(Code::Usage, words));
        }
    }
    Ok(match options.layout {
        LayoutChoice::Linear => Layout::Linear,
        LayoutChoice::Striped => Layout::Striped,
        LayoutChoice::Zero => Layout::Zero,
        LayoutChoice::Error => Layout::Error,
        LayoutChoice::Mirror => Layout::Mirror,
        LayoutChoice::Ddraid => Layout::Ddraid,
        LayoutChoice::Mapper => Layout::Mapper,
    })
}

/// Converts the volume or pool `name`.
pub(super) async fn convert<C: Call<Request = Convert, Answer = Changed<Job>>>(
    session: &Session,
    call: impl FnOnce(String, Convert) -> C,
    name: &str,
    options: ConvertOptions,
) -> Result<Answer, Failure> {
    let ConvertOptions { layout, rate, change, waiting } = options;
    if policy_words(&layout.policy) != ArrayPolicyWords::default() {
        let message = "a conversion changes neither --slow-after nor --resync-rate";
        let help = format!("change them before or afterwards: varve array change {name}");
        return Err(Failure::new(Code::Usage, message).help(help));
    }
    let request = Convert {
        layout: Some(layout_word(&layout)?),
        on: disk_words(&layout.disks)?,
        stripes: layout.stripes,
        stripe_size: layout.stripe_size,
        copies: layout.copies,
        order: layout.order,
        array_block_size: layout.array_block_size,
        read_policy: layout.read_policy,
        checksums: layout.checksums,
        log: layout.log.as_deref().map(absolute).transpose()?,
        rate,
        dry_run: change.dry_run,
    };
    let call = call(name.to_owned(), request);
    if call.request().array_block_size.is_some() {
        session.warn_of(&call).await;
    }
    session.job(call, waiting, |_| format!("{name} has its new layout")).await
}

/// The disks that `--on` names, as the daemon finds them: by their path, or by what stands at its end.
pub(super) fn disk_words(disks: &DiskWords) -> Result<Vec<String>, Failure> {
    absolute_all(&disks.on)
}

/// What options say of arrays.
pub(super) fn policy_words(options: &ArrayPolicyOptions) -> ArrayPolicyWords {
    let ArrayPolicyOptions { slow_after, resync_rate, release_after } = options.clone();
    ArrayPolicyWords { slow_after, resync_rate, release_after }
}

/// An array in a word: `mirror x2`, `ddraid 2+1`.
pub(super) fn array_word(array: &Array) -> String {
    let members = array.members.len();
    match array.layout {
        Layout::Mirror => format!("mirror x{members}"),
        layout => format!("{layout} {}+1", members.saturating_sub(1)),
    }
}

/// An array in a line.
pub(super) fn array_text(array: &Array) -> String {
    let blocks = array.block_size.map(|bytes| format!(", blocks of {}", size(bytes))).unwrap_or_default();
    let checksums = if array.checksums { ", checksums" } else { "" };
    format!("{}{blocks}, read policy {}{checksums}", array_word(array), array.read_policy)
}

/// The members of an array, if it is one.
pub(super) fn member_table(array: Option<&Array>) -> String {
    let Some(array) = array else { return String::new() };
    let has_wrong = array.checksums;
    let mut columns = vec!["MEMBER>", "STATE", "BEHIND>", "ERRORS>", "WRONG>", "HEALED>", "DISKS"];
    columns.retain(|column| *column != "WRONG>" || has_wrong);
    let mut table = Table::new(&columns);
    for (index, member) in array.members.iter().enumerate() {
        let missing = if member.missing { " (missing)" } else { "" };
        let mut row =
            vec![index.to_string(), member.state.to_string(), size(member.behind), member.errors.to_string()];
        row.extend(has_wrong.then(|| member.wrong.to_string()));
        row.extend([member.healed.to_string(), format!("{}{missing}", member.disks.join(" "))]);
        table.row(row);
    }
    let told =
        [(array.unsynced.saturating_sub(array.lost), "being made equal"), (array.lost, "cannot be read")];
    let told = told.into_iter().filter(|(bytes, _)| *bytes > 0);
    let told: String = told.map(|(bytes, what)| format!("{what}: {}\n", size(bytes))).collect();
    let told = log_text(array) + &told + &lost_text(array);
    let rate = array.rate.zip(array.seconds_left);
    let rate =
        rate.map(|(rate, seconds)| format!("in sync in {} at {} a second\n", duration(seconds), size(rate)));
    let told = told + &rate.unwrap_or_default();
    format!("\n{}{told}{}", table.render(""), last_scrub(array.scrub.as_ref()))
}

/// The disk that has the log of an array, if its members do not.
fn log_text(array: &Array) -> String {
    let Some(log) = &array.log else { return String::new() };
    let missing = if log.missing { " (missing)" } else { "" };
    match log.in_use {
        true => format!("log: {}\n", log.disk),
        false => format!("log: {}{missing} is away, its members have it\n", log.disk),
    }
}

/// The regions of an array that wait for a member, or for a person.
fn lost_text(array: &Array) -> String {
    let (runs, rest) = array.lost_regions.split_at(array.lost_regions.len().min(RUNS_MAX));
    if runs.is_empty() {
        return String::new();
    }
    let runs: Vec<String> = runs.iter().map(ToString::to_string).collect();
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    let (runs, region) = (runs.join(", "), size(array.region_size));
    format!("regions of {region} that wait for the missing member, or for --accept-stale: {runs}{more}\n")
}
