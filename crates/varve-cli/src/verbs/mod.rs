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
mod snapshot;
mod status;
mod volume;
mod volume_map;

pub(crate) use array::array;
pub(crate) use events::events;
pub(crate) use export::export;
pub(crate) use group::group;
pub(crate) use job::job;
pub(crate) use physical::physical;
pub(crate) use pool::pool;
pub(crate) use snapshot::{differences, snapshot};
pub(crate) use status::status;
pub(crate) use volume::volume;

use crate::answer::Answer;
use crate::client::segment;
use crate::grammar::{ActivateOptions, Change, Destroy};
use crate::session::{Call, Session};
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use varve_api::{Activate, Code, Deactivate, Failure};

/// The error of a verb that the contract names and this version lacks. Its help is better what to do instead.
pub(crate) fn not_built(what: &str) -> Failure {
    Failure::new(Code::NotBuilt, format!("{what}: not built yet"))
        .help("the README has the table of what works")
}

/// Takes one of `nouns` into use.
async fn activate<T: DeserializeOwned + Serialize>(
    session: &Session,
    nouns: &str,
    name: &str,
    options: ActivateOptions,
) -> Result<Answer, Failure> {
    let ActivateOptions { accept_missing, dry_run, yes } = options;
    let request = Activate { accept_missing, ..Activate::default() };
    let path = format!("/v1/{nouns}/{}/activate", segment(name));
    let call = Call { method: Method::POST, path, request: &request, dry_run };
    if accept_missing {
        let what = format!("activate {name} --accept-missing");
        session.consent(&what, &call, Destroy { dry_run, yes }).await?;
    }
    session.change(call, |_: &T| format!("{name} is in use")).await
}

/// Takes one of `nouns` out of use.
async fn deactivate<T: DeserializeOwned + Serialize>(
    session: &Session,
    nouns: &str,
    name: &str,
    change: Change,
) -> Result<Answer, Failure> {
    let path = format!("/v1/{nouns}/{}/deactivate", segment(name));
    let request = Deactivate::default();
    let call = Call { method: Method::POST, path, request: &request, dry_run: change.dry_run };
    session.change(call, |_: &T| format!("{name} is out of use")).await
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
    use varve_api::Exit;

    #[test]
    fn codes_are_explained_and_unknown_ones_are_not_found() {
        assert!(explain("V0102").is_ok());
        assert_eq!(explain("V9999").map_err(|failure| failure.exit()).err(), Some(Exit::NotFound));
    }
}
