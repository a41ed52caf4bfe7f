//! The varve command line.

// All that is printed passes `answer::printable`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod answer;
mod client;
mod config_file;
mod confirm;
mod grammar;
mod manual;
mod offline;
mod places;
mod progress;
mod serve;
mod session;
mod settings;
mod table;
mod top;
mod units;
mod usage;
mod verbs;

use answer::Answer;
use clap::Parser;
use grammar::{Cli, Noun};
use session::Session;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;
use varve_api::{Code, Failure};

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let json = usage::wants_json(&words);
    let code = match Cli::try_parse_from(&words) {
        Ok(cli) => answer::print(dispatch(cli, &words), json),
        Err(error) => usage::report(&error, &words, json),
    };
    ExitCode::from(code)
}

/// Carries out one command, which these words are.
fn dispatch(cli: Cli, words: &[OsString]) -> Result<Answer, Failure> {
    let json = cli.global.json;
    match cli.noun {
        Noun::Daemon(options) => serve::run(&options, words),
        Noun::Completions { shell } => Ok(manual::completions(shell)),
        Noun::Man { folder, date } => manual::pages(&folder, date.as_deref()),
        Noun::Explain { code } => verbs::explain(&code),
        Noun::Check(options) => offline::check(&options.paths),
        Noun::Dump(options) => offline::dump(&options),
        Noun::Image(verb) => offline::image(verb, json),
        Noun::Restore(options) => offline::restore(&options, json),
        Noun::Repair(options) => offline::repair(&options, json),
        noun => online(noun, cli.global),
    }
}

/// Carries out a verb that speaks to the daemon.
fn online(noun: Noun, global: grammar::Global) -> Result<Answer, Failure> {
    let socket = places::client_socket(global.socket)?;
    let session = Session::new(socket, global.json);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Code::Failed, format!("no runtime for the connection: {error}")))?;
    runtime.block_on(async move {
        match noun {
            Noun::Pv(verb) => verbs::physical(&session, verb).await,
            Noun::Vg(verb) => verbs::group(&session, verb).await,
            Noun::Lv(verb) => verbs::volume(&session, verb).await,
            Noun::Pool(verb) => verbs::pool(&session, verb).await,
            Noun::Snap(verb) => verbs::snapshot(&session, verb).await,
            Noun::Trash(verb) => verbs::trash(&session, verb).await,
            Noun::Schedule(verb) => verbs::schedule(&session, verb).await,
            Noun::Array(verb) => verbs::array(&session, verb).await,
            Noun::Export(verb) => verbs::export(&session, verb).await,
            Noun::Job(verb) => verbs::job(&session, verb).await,
            Noun::Status { check } => verbs::status(&session, check).await,
            Noun::Top { every, count } => top::top(&session, Duration::from_secs(every), count).await,
            Noun::Report { file } => verbs::report(&session, &file).await,
            Noun::Events { follow } => verbs::events(&session, follow).await,
            _ => Err(Failure::new(Code::Usage, "this verb does not speak to the daemon")),
        }
    })
}
