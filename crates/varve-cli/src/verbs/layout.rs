//! `--type` and what belongs to it, `--on`, and how an array is shown.

use super::array_scrub::last_scrub;
use crate::grammar::{DiskWords, LayoutChoice, LayoutOptions};
use crate::places::absolute_all;
use crate::table::Table;
use crate::units::size;
use varve_api::{Array, Code, Failure, Layout};

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
            options.read_policy.is_some() && !is_mirror && !is_ddraid,
            "--read-policy belongs to --type mirror and --type ddraid",
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
    })
}

/// The disks that `--on` names, as the daemon finds them: by their path, or by what stands at its end.
pub(super) fn disk_words(disks: &DiskWords) -> Result<Vec<String>, Failure> {
    absolute_all(&disks.on)
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
    format!("{}{blocks}, read policy {}", array_word(array), array.read_policy)
}

/// The members of an array, if it is one.
pub(super) fn member_table(array: Option<&Array>) -> String {
    let Some(array) = array else { return String::new() };
    let mut table = Table::new(&["MEMBER>", "STATE", "BEHIND>", "ERRORS>", "HEALED>", "DISKS"]);
    for (index, member) in array.members.iter().enumerate() {
        let missing = if member.missing { " (missing)" } else { "" };
        table.row(vec![
            index.to_string(),
            member.state.to_string(),
            size(member.behind),
            member.errors.to_string(),
            member.healed.to_string(),
            format!("{}{missing}", member.disks.join(" ")),
        ]);
    }
    let told = [(array.unsynced, "being made equal"), (array.lost, "cannot be read")];
    let told = told.into_iter().filter(|(bytes, _)| *bytes > 0);
    let told: String = told.map(|(bytes, what)| format!("{what}: {}\n", size(bytes))).collect();
    let rate = array.rate.zip(array.seconds_left);
    let rate =
        rate.map(|(rate, seconds)| format!("in sync in {} at {} a second\n", time_left(seconds), size(rate)));
    let told = told + &rate.unwrap_or_default();
    format!("\n{}{told}{}", table.render(""), last_scrub(array.scrub.as_ref()))
}

/// A time that work still takes.
fn time_left(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3600)),
    }
}
