//! Verbs that speak to the daemon, one file a noun; here what needs none and what is not built.

mod array;
mod array_scrub;
mod events;
mod export;
mod group;
mod job;
mod layout;
mod physical;
mod pool;
mod report;
mod schedule;
mod snapshot;
mod status;
mod trash;
mod volume;
mod volume_map;

pub(crate) use array::array;
pub(crate) use events::events;
pub(crate) use export::export;
pub(crate) use group::group;
pub(crate) use job::job;
pub(crate) use physical::physical;
pub(crate) use pool::pool;
pub(crate) use report::report;
pub(crate) use schedule::schedule;
pub(crate) use snapshot::{differences, snapshot};
pub(crate) use status::{problem_text, status};
pub(crate) use trash::trash;
pub(crate) use volume::volume;

use crate::answer::Answer;
use crate::grammar::{ActivateOptions, Change};
use crate::session::Session;
use serde::Serialize;
use varve_api::calls::Call;
use varve_api::{Activate, Changed, Code, Deactivate, Failure};

/// The error of a verb that the contract names and this version lacks. Its help is better what to do instead.
pub(crate) fn not_built(what: &str) -> Failure {
    Failure::new(Code::NotBuilt, format!("{what}: not built yet"))
        .help("the README has the table of what works")
}

/// Takes a volume, a pool or a group into use.
async fn activate<C, T>(
    session: &Session,
    call: impl FnOnce(String, Activate) -> C,
    name: &str,
    options: ActivateOptions,
) -> Result<Answer, Failure>
where
    C: Call<Request = Activate, Answer = Changed<T>>,
    T: Serialize,
{
    let ActivateOptions { accept_missing, dry_run, yes } = options;
    let call = call(name.to_owned(), Activate { accept_missing, dry_run });
    let what = format!("activate {name} --accept-missing");
    session.destroy(&what, yes || !accept_missing, call, |_| format!("{name} is in use")).await
}

/// Takes a volume, a pool or a group out of use.
async fn deactivate<C, T>(
    session: &Session,
    call: impl FnOnce(String, Deactivate) -> C,
    name: &str,
    change: Change,
) -> Result<Answer, Failure>
where
    C: Call<Answer = Changed<T>>,
    T: Serialize,
{
    let call = call(name.to_owned(), Deactivate { dry_run: change.dry_run });
    session.change(call, |_| format!("{name} is out of use")).await
}

/// `varve explain CODE`.
pub(crate) fn explain(text: &str) -> Result<Answer, Failure> {
    let missing = || {
        Failure::new(Code::CodeNotFound, format!("there is no error code {text:?}"))
            .help("varve explain V0001")
    };
    let explanation = Code::parse(text).ok_or_else(missing)?.explain();
    let people = format!(
        "{}: {} (exit {})\n\n{}",
        explanation.code, explanation.title, explanation.exit, explanation.text
    );
    Ok(Answer::new(&explanation, people))
}

/// `text`, or a dash if there is none.
fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use varve_api::Exit;
    use varve_api::calls::CALLS;

    /// Calls without a verb: they are for programs alone.
    const FOR_PROGRAMS: [&str; 1] = ["ExplainCode"];

    #[test]
    fn each_call_that_is_declared_has_a_verb() {
        let files = [
            include_str!("array.rs"),
            include_str!("array_scrub.rs"),
            include_str!("export.rs"),
            include_str!("group.rs"),
            include_str!("job.rs"),
            include_str!("physical.rs"),
            include_str!("pool.rs"),
            include_str!("schedule.rs"),
            include_str!("snapshot.rs"),
            include_str!("status.rs"),
            include_str!("trash.rs"),
            include_str!("volume.rs"),
            include_str!("volume_map.rs"),
            include_str!("../session.rs"),
        ];
        let is_word = |char: char| char.is_alphanumeric();
        let words = files.iter().flat_map(|file| file.split("calls::").skip(1));
        let made: BTreeSet<&str> =
            words.filter_map(|rest| rest.split(|char| !is_word(char)).next()).collect();
        let without = CALLS.iter().map(|call| call.name).filter(|name| !made.contains(name));
        assert_eq!(without.collect::<Vec<_>>(), FOR_PROGRAMS);
    }

    #[test]
    fn codes_are_explained_and_unknown_ones_are_not_found() {
        assert!(explain("V0102").is_ok());
        assert_eq!(explain("V9999").map_err(|failure| failure.exit()).err(), Some(Exit::NotFound));
    }
}
