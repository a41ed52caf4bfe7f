//! Words that were not understood, reported in the form of every other error.

use crate::answer;
use crate::verbs::not_built;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;
use varve_api::{Code, Exit, Failure};

/// Whether the command asks for JSON; looked for before parsing, so that usage errors are JSON too.
pub(crate) fn wants_json(words: &[OsString]) -> bool {
    words.iter().skip(1).take_while(|word| *word != "--").any(|word| word == "--json")
}

/// What the contract names and this version lacks: the words of a verb, then an option of it, if only that is lacking.
const LACKING: &[&[&str]] = &[
    &["vg", "split"],
    &["vg", "merge"],
    &["vg", "import"],
    &["vg", "export"],
    &["pool", "reduce"],
    &["export", "create", "--allow"],
    &["export", "create", "--member"],
    &["backup"],
    &["send"],
    &["receive"],
    &["cluster"],
    &["proxy"],
];

/// What of [`LACKING`] a command asks for that was not understood.
fn lacking(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let context = |kind: ContextKind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let words: Vec<&str> = words.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let is_value = |index: usize| index > 0 && words[index - 1] == "--socket";
    let verbs = words.iter().enumerate().filter(|(index, word)| !word.starts_with('-') && !is_value(*index));
    let verbs: Vec<&str> = verbs.map(|(_, word)| *word).collect();
    let option = match error.kind() {
        ErrorKind::InvalidSubcommand => None,
        ErrorKind::UnknownArgument => Some(context(ContextKind::InvalidArg)?.split('=').next()?),
        _ => return None,
    };
    let is_meant = |lacking: &&&[&str]| {
        let (own, lacks) = match lacking.split_last() {
            Some((last, own)) if last.starts_with("--") => (own, Some(*last)),
            _ => (**lacking, None),
        };
        verbs.starts_with(own) && lacks == option
    };
    LACKING.iter().find(is_meant).map(|lacking| format!("varve {}", lacking.join(" ")))
}

/// Prints help and version as they are, and errors as `error[V0002]`.
pub(crate) fn report(error: &clap::Error, words: &[OsString], json: bool) -> u8 {
    if let Some(what) = lacking(error, words) {
        return answer::print(Err(not_built(&what)), json);
    }
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            Exit::Ok as u8
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::Cli;
    use clap::Parser;

    fn lacks(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        lacking(&Cli::try_parse_from(&words).expect_err("it is not understood"), &words)
    }

    #[test]
    fn what_the_contract_names_and_is_not_built_is_told_from_what_nobody_knows() {
        for line in
            ["varve vg split data", "varve --json cluster join", "varve --socket pool pool reduce a/b"]
        {
            assert!(lacks(line).is_some(), "{line}");
        }
        let given = "varve export create a/b --nbd unix:s --allow=5";
        assert_eq!(lacks(given).as_deref(), Some("varve export create --allow"));
        assert_eq!(lacks("varve vg split a d").as_deref(), Some("varve vg split"));
        for line in ["varve vg undu data", "varve snap renam a/b@c d", "varve export list --iops 5"] {
            assert_eq!(lacks(line), None, "{line}");
        }
    }

    #[test]
    fn nothing_that_is_built_is_said_to_lack() {
        for words in LACKING {
            let line = match words.split_last() {
                Some((option, [noun, verb])) if option.starts_with("--") => {
                    format!("varve {noun} {verb} a/b --nbd unix:s {option}=x")
                }
                _ => format!("varve {}", words.join(" ")),
            };
            assert_eq!(lacks(&line), Some(format!("varve {}", words.join(" "))));
        }
    }
}
