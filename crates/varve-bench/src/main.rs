//! The tables of the seed documents rerun, beside the peers.

mod client;
mod cpu;
mod fio;
mod first_touch;
mod http;
mod machine;
mod nothing;
mod options;
mod peers;
mod place;
mod plot;
mod render;
mod results;
mod server;
mod sheet;
mod stats;
mod svg;
mod table;
mod tables;
mod varve;
mod verdict;
mod watch;
mod work;

use clap::{Parser, Subcommand};
use options::Options;
use sheet::Sheet;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures Varve beside other servers and writes down what came out.
#[derive(Parser)]
#[command(name = "varve-bench", version)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
    /// Where the figures are kept; what is not measured anew stays.
    #[arg(long, global = true, value_name = "FILE", default_value = "docs/plots/results.json")]
    json: PathBuf,
    /// Where the page goes; its pictures go to `plots/` beside it.
    #[arg(long, global = true, value_name = "FILE", default_value = "docs/benchmarks.md")]
    page: PathBuf,
}

#[derive(Subcommand)]
enum Verb {
    /// NBD servers beside each other.
    Nbd(Options),
    /// Snapshots: what they cost, from near and far, with little memory, while they come and go.
    Snapshots(Options),
    /// What each layer costs.
    Layers(Options),
    /// All three, and the page.
    All(Options),
    /// Only the page and its pictures, from the figures.
    Render,
}

fn main() -> ExitCode {
    match run(&CommandLine::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &CommandLine) -> Result<(), String> {
    let mut sheet = Sheet::load(&command.json)?;
    let measured = measure(&command.verb, &mut sheet);
    let parent = command.page.parent().map_or_else(|| PathBuf::from("."), PathBuf::from);
    // What was measured before something failed is worth a page, too.
    render::render(sheet.results(), &command.page, &parent.join("plots")).and(measured)
}

fn measure(verb: &Verb, sheet: &mut Sheet) -> Result<(), String> {
    match verb {
        Verb::Nbd(options) => nbd(options, sheet),
        Verb::Snapshots(options) => tables::snapshots::measure(options, sheet),
        Verb::Layers(options) => tables::layers::measure(options, sheet),
        Verb::All(options) => {
            tables::layers::measure(options, sheet)?;
            tables::snapshots::measure(options, sheet)?;
            nbd(options, sheet)
        }
        Verb::Render => Ok(()),
    }
}

fn nbd(options: &Options, sheet: &mut Sheet) -> Result<(), String> {
    options.media().into_iter().try_for_each(|medium| tables::nbd::measure(options, medium, sheet))
}
