//! Words that were not understood, reported in the form of every other error.

use crate::answer;
use clap::error::ErrorKind;
use std::ffi::OsString;
use varve_api::{Code, Exit, Failure};

/// Whether the command asks for JSON; looked for before parsing, so that usage errors are JSON too.
pub(crate) fn wants_json(words: &[OsString]) -> bool {
    words.iter().skip(1).take_while(|word| *word != "--").any(|word| word == "--json")
}

/// Prints help and version as they are, and errors as `error[V0002]`.
pub(crate) fn report(error: &clap::Error, json: bool) -> Exit {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            Exit::Ok
        }
        _ => answer::print(Err(failure(error)), json),
    }
}

fn failure(error: &clap::Error) -> Failure {
    let rendered = error.render().to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::new(Code::Usage, format!("a verb is missing\n\n{}", rendered.trim_end()))
            .help("add one of these verbs");
    }
    let message = rendered.strip_prefix("error: ").unwrap_or(&rendered);
    let (message, help) = match message.split_once("\n\nFor more information") {
        Some((message, _)) => (message, "add --help to see what the verb takes"),
        None => (message, ""),
    };
    Failure::new(Code::Usage, message.trim_end()).help(help)
}
