//! `varve array scrub`, carried out, and what a scrub has found in words.

use crate::answer::Answer;
use crate::grammar::ScrubOptions;
use crate::session::Session;
use crate::units::{date, size};
use varve_api::{ArrayScrub, Failure, Scrub, calls};

/// Compares the members of an array.
pub(super) async fn array_scrub(session: &Session, options: ScrubOptions) -> Result<Answer, Failure> {
    let ScrubOptions { name, rate, check_only, change, waiting } = options;
    let request = ArrayScrub { rate, check_only, dry_run: change.dry_run };
    let found = |scrub: Option<&Scrub>| format!("{name}: {}", scrub.map_or_else(String::new, scrub_text));
    session.job(calls::ScrubArray(name.clone(), request), waiting, |job| found(job.scrub.as_ref())).await
}

/// What a scrub has found, in a line.
pub(super) fn scrub_text(scrub: &Scrub) -> String {
    let mut parts = vec![format!("{} verified", size(scrub.verified))];
    let equal = if scrub.check_only { "blocks that differ" } else { "blocks made equal" };
    let count = |what: &str, blocks: u64| (blocks > 0).then(|| format!("{what}: {blocks}"));
    parts.extend(count(equal, scrub.mismatches));
    parts.extend(count("blocks read from the others and written again", scrub.healed));
    parts.extend((scrub.unread > 0).then(|| format!("cannot be read: {}", size(scrub.unread))));
    if scrub.mismatches + scrub.healed + scrub.unread == 0 {
        parts.push("all members fit".to_owned());
    }
    let partly = if scrub.complete { "" } else { " (it has not compared everything)" };
    format!("{}{partly}", parts.join(", "))
}

/// The last scrub of an array, in a line of its own.
pub(super) fn last_scrub(scrub: Option<&Scrub>) -> String {
    scrub.map_or_else(String::new, |scrub| {
        format!("last scrub: {}, {}\n", date(scrub.ended), scrub_text(scrub))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_scrub_has_found_is_told_and_what_it_has_not_is_not() {
        let sound = Scrub { complete: true, verified: 64 << 20, ..Scrub::default() };
        assert_eq!(scrub_text(&sound), "64.0 MiB verified, all members fit");
        let found = Scrub { mismatches: 2, check_only: true, unread: 4096, complete: false, ..sound };
        let expected = "64.0 MiB verified, blocks that differ: 2, cannot be read: 4.0 KiB (it has not compared everything)";
        assert_eq!(scrub_text(&found), expected);
    }
}
