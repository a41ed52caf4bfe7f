//! What is in force for a daemon that starts, and by what: the command line, the environment, the configuration file, or the defaults.

use crate::answer::Answer;
use crate::config_file::{self, ConfigFile};
use crate::grammar::{Cli, DaemonOptions, Noun};
use crate::places;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches};
use serde::Serialize;
use std::ffi::OsString;
use std::path::PathBuf;
use varve_api::{Code, Failure};
use varve_daemon::Config;

/// The options of a daemon, its file included.
pub(crate) struct Settings {
    pub(crate) options: DaemonOptions,
    pub(crate) socket: Option<PathBuf>,
    file: Option<ConfigFile>,
    /// What the command line alone says.
    given: ArgMatches,
    /// What it says with the file's words.
    all: ArgMatches,
}

impl Settings {
    /// Reads the file that `options` name, which these words of the command line are, and adds what they do not say.
    pub(crate) fn read(options: &DaemonOptions, words: &[OsString]) -> Result<Self, Failure> {
        let path = places::daemon_config(options.config.as_deref());
        let file = path.map(|path| config_file::read(&path)).transpose()?;
        let given = matches(words)?;
        let entries = file.iter().flat_map(|file| &file.entries).filter(|entry| !is_given(&given, &entry.id));
        let added: Vec<OsString> = entries.flat_map(|entry| entry.words.iter().cloned()).collect();
        let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
        let (before, after) = words.split_at(end);
        let all = [before, &added, after].concat();
        let cli = matches(&all)?;
        let parsed = Cli::from_arg_matches(&cli).map_err(|error| usage(&error))?;
        let Noun::Daemon(options) = parsed.noun else {
            return Err(Failure::new(Code::Internal, "the words with those of the file are another command"));
        };
        let of_daemon =
            |matches: ArgMatches| matches.subcommand_matches("daemon").cloned().unwrap_or_default();
        Ok(Self { options, socket: parsed.global.socket, file, given: of_daemon(given), all: of_daemon(cli) })
    }

    /// What is in force, as a file that means the same.
    pub(crate) fn show(&self, config: &Config) -> Answer {
        let command = config_file::daemon_command();
        let options =
            config_file::keys(&command).map(|(name, option)| self.setting(name, option, config)).collect();
        let file = self.file.as_ref().map(|file| file.path.display().to_string());
        let shown = InForce { file, options };
        let text = shown.text();
        Answer::new(&shown, text)
    }

    fn setting(&self, name: &str, option: &Arg, config: &Config) -> Setting {
        let id = option.get_id().as_str();
        let value = match id {
            "state" => serde_json::json!(config.state),
            "socket" => serde_json::json!(config.socket.path),
            "socket_mode" => serde_json::json!(varve_api::FileMode::of(config.socket.access.mode)),
            _ => value(&self.all, option),
        };
        let entry = self.file.iter().flat_map(|file| &file.entries).find(|entry| entry.id == id);
        let (source, line) = match entry {
            _ if self.given.value_source(id) == Some(ValueSource::CommandLine) => (Source::CommandLine, None),
            _ if id == "socket" && places::is_socket_in_environment() => (Source::Environment, None),
            Some(entry) => (Source::File, Some(entry.line)),
            None => (Source::Default, None),
        };
        Setting { name: name.to_owned(), value, source, line }
    }
}

fn matches(words: &[OsString]) -> Result<ArgMatches, Failure> {
    Cli::command().try_get_matches_from(words).map_err(|error| usage(&error))
}

fn usage(error: &clap::Error) -> Failure {
    Failure::new(Code::Usage, error.to_string().trim_end()).help("varve daemon --help")
}

/// Whether the command line or the environment says what the option is to be, so that the file is not asked.
fn is_given(words: &ArgMatches, id: &str) -> bool {
    let of_daemon = words.subcommand_matches("daemon");
    let source = of_daemon.and_then(|matches| matches.value_source(id));
    source == Some(ValueSource::CommandLine) || (id == "socket" && places::is_socket_in_environment())
}

/// What the parser has for an option, in the form that the file takes; null if it is not set.
fn value(matches: &ArgMatches, option: &Arg) -> serde_json::Value {
    let id = option.get_id().as_str();
    let texts = || matches.get_raw(id).into_iter().flatten().map(|text| text.to_string_lossy());
    match option.get_action() {
        ArgAction::SetTrue => matches.get_flag(id).into(),
        ArgAction::Append => texts().collect::<Vec<_>>().into(),
        _ => texts().next_back().map_or(serde_json::Value::Null, |text| match text.parse::<i64>() {
            Ok(number) if number.to_string() == text => number.into(),
            _ => text.into(),
        }),
    }
}

/// By what an option is as it is.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Source {
    CommandLine,
    Environment,
    File,
    Default,
}

#[derive(Serialize)]
struct Setting {
    name: String,
    value: serde_json::Value,
    source: Source,
    /// Where the file has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
}

#[derive(Serialize)]
struct InForce {
    file: Option<String>,
    options: Vec<Setting>,
}

impl InForce {
    /// Lines that the file could hold.
    fn text(&self) -> String {
        let head = match &self.file {
            Some(path) => format!("# {path} is valid"),
            None => "# no configuration file".to_owned(),
        };
        let lines = self.options.iter().map(|setting| {
            let by = match (setting.source, setting.line) {
                (Source::CommandLine, _) => "command line".to_owned(),
                (Source::Environment, _) => "$VARVE_SOCKET".to_owned(),
                (Source::File, line) => format!("line {}", line.unwrap_or(0)),
                (Source::Default, _) => "default".to_owned(),
            };
            let assigned = match &setting.value {
                // JSON of texts, numbers and lists of them is TOML too.
                serde_json::Value::Null => format!("#{} is not set", setting.name),
                value => format!("{} = {value}", setting.name),
            };
            format!("{assigned:<40} # {by}")
        });
        std::iter::once(head).chain(lines).collect::<Vec<_>>().join("\n")
    }
}
