//! The daemon's configuration file, read as words of the command line: its keys are the options of `varve daemon`.
//!
//! Invariant CONFIG1: no key is written down here. What may be in the file, and which values it takes, is asked of the parser of the command
//! line; so an option cannot lack its key, and a key means what the option means.

use crate::grammar::Cli;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command, CommandFactory};
use std::error::Error;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};
use varve_api::{Code, Failure};

/// Options that say where the others are, or what to do with them.
const NOT_KEYS: [&str; 5] = ["config", "check-config", "replace", "json", "help"];

/// A configuration file that is valid.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) entries: Vec<Entry>,
}

/// One key of the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The option's name for the parser.
    pub(crate) id: String,
    /// From 1.
    pub(crate) line: usize,
    /// The same on the command line.
    pub(crate) words: Vec<OsString>,
}

/// `varve daemon`, with the options that all verbs take.
pub(crate) fn daemon_command() -> Command {
    let mut command = Cli::command();
    command.build();
    command.find_subcommand("daemon").expect("the grammar has it").clone()
}

/// The options that are keys of the file, with their names there (CONFIG1).
pub(crate) fn keys(command: &Command) -> impl Iterator<Item = (&str, &Arg)> {
    let named = command.get_arguments().filter_map(|option| Some((option.get_long()?, option)));
    named.filter(|(name, _)| !NOT_KEYS.contains(name))
}

/// Reads the file at `path`.
pub(crate) fn read(path: &Path) -> Result<ConfigFile, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let code = if error.kind() == ErrorKind::NotFound { Code::ConfigNotFound } else { Code::BadConfig };
        Failure::new(code, format!("the configuration file {}: {error}", path.display()))
            .help("--config FILE names another; --config /dev/null reads none")
    })?;
    parse(path, &text)
}

/// What the file at `path` says, of which this is the text.
fn parse(path: &Path, text: &str) -> Result<ConfigFile, Failure> {
    let reader = Reader { path, text, command: daemon_command() };
    let table = DeTable::parse(text)
        .map_err(|error| reader.refused(error.span().unwrap_or(0..0), error.message()).help(HELP))?;
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let entries =
        entries.into_iter().map(|(key, value)| reader.entry(key.span(), key.get_ref(), value.get_ref()));
    Ok(ConfigFile { path: path.to_owned(), entries: entries.collect::<Result<_, _>>()? })
}

const HELP: &str = "the file holds lines of the form KEY = VALUE, as TOML has them; text is in quotes";

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    command: Command,
}

impl Reader<'_> {
    fn line(&self, at: &Range<usize>) -> usize {
        let before = self.text.as_bytes().get(..at.start).unwrap_or(self.text.as_bytes());
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn refused(&self, at: Range<usize>, why: &str) -> Failure {
        Failure::new(Code::BadConfig, format!("{}:{}: {why}", self.path.display(), self.line(&at)))
    }

    fn entry(&self, at: Range<usize>, key: &str, value: &DeValue<'_>) -> Result<Entry, Failure> {
        let Some((_, option)) = keys(&self.command).find(|(name, _)| *name == key) else {
            return Err(self.unknown(at, key));
        };
        let words = words(key, option, value).map_err(|wanted| {
            let why = format!("{key} is {}, and {wanted} is wanted", kind(value));
            self.refused(at.clone(), &why).help(usage(option))
        })?;
        let all = std::iter::once(OsString::from("varve")).chain(words.iter().cloned());
        match self.command.clone().try_get_matches_from(all) {
            Ok(_) => Ok(Entry { id: option.get_id().to_string(), line: self.line(&at), words }),
            Err(error) => {
                let why = format!("{key}: {}", reason(&error));
                Err(self.refused(at, &why).help(usage(option)))
            }
        }
    }

    fn unknown(&self, at: Range<usize>, key: &str) -> Failure {
        let failure = self.refused(at, &format!("there is no key {key:?}"));
        let asked = self.command.clone().try_get_matches_from(["varve", &format!("--{key}")]);
        let nearest = asked.err().and_then(|error| text_of(&error, ContextKind::SuggestedArg));
        let nearest = nearest.as_deref().map(|option| option.trim_start_matches('-'));
        match nearest.filter(|nearest| keys(&self.command).any(|(name, _)| name == *nearest)) {
            Some(nearest) => {
                failure.help(format!("the nearest one is {nearest}; varve daemon --help has all"))
            }
            None => failure.help("the keys are the options of varve daemon --help without their dashes"),
        }
    }
}

/// What the command line would have for a key with this value, or which kind of value is wanted.
fn words(key: &str, option: &Arg, value: &DeValue<'_>) -> Result<Vec<OsString>, &'static str> {
    let word = |value: String| OsString::from(format!("--{key}={value}"));
    match (option.get_action(), value) {
        (ArgAction::SetTrue, DeValue::Boolean(is_set)) => {
            Ok(is_set.then(|| OsString::from(format!("--{key}"))).into_iter().collect())
        }
        (ArgAction::SetTrue, _) => Err("true or false"),
        (ArgAction::Append, DeValue::Array(values)) => {
            let words = values.iter().map(|value| scalar(value.get_ref()).map(word));
            words.collect::<Option<_>>().ok_or("a list of texts")
        }
        (ArgAction::Append, _) => Err("a list of texts"),
        _ => scalar(value).map(|value| vec![word(value)]).ok_or("a text or a number"),
    }
}

/// A value that the command line has as one word.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number.to_string())
        }
        _ => None,
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// How an option is shown in help.
fn usage(option: &Arg) -> String {
    format!("varve daemon --help says what {option} takes")
}

fn text_of(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    }
}

/// Why the parser refuses a value, without the words of the command line.
fn reason(error: &clap::Error) -> String {
    let value = text_of(error, ContextKind::InvalidValue).unwrap_or_default();
    match (error.source(), text_of(error, ContextKind::ValidValue)) {
        (Some(source), _) => format!("{value:?}: {source}"),
        (None, Some(valid)) => format!("{value:?} is none of: {valid}"),
        (None, None) => format!("{value:?} is not valid"),
    }
}

#[cfg(test)]
mod tests;
