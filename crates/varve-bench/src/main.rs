//! The tables of the seed documents rerun, beside the peers.

mod client;
mod cpu;
mod fio;
mod first_touch;
mod machine;
mod nothing;
mod options;
mod peers;
mod place;
mod plot;
mod render;
mod results;
mod server;
mod stats;
mod svg;
mod table;
mod tables;
mod varve;
mod verdict;
mod watch;
mod work;

use clap::{Parser, Subcommand};
use options::{Medium, Options};
use results::Results;
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
    /// Writes to an origin under snapshots.
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
    let mut results = Results::load(&command.json)?;
    match &command.verb {
        Verb::Nbd(options) => nbd(options, command, &mut results)?,
        Verb::Snapshots(options) => snapshots(options, command, &mut results)?,
        Verb::Layers(options) => layers(options, command, &mut results)?,
        Verb::All(options) => {
            layers(options, command, &mut results)?;
            snapshots(options, command, &mut results)?;
            nbd(options, command, &mut results)?;
        }
        Verb::Render => {}
    }
    let parent = command.page.parent().map_or_else(|| PathBuf::from("."), PathBuf::from);
    render::render(&results, &command.page, &parent.join("plots"))
}

fn nbd(options: &Options, command: &CommandLine, results: &mut Results) -> Result<(), String> {
    for medium in options.media() {
        results.put_nbd(tables::nbd::measure(options, medium)?);
        results.store(&command.json)?;
    }
    Ok(())
}

fn snapshots(options: &Options, command: &CommandLine, results: &mut Results) -> Result<(), String> {
    results.put_snapshots(tables::engine::measure_model()?);
    results.put_snapshots(tables::engine::measure_slow(options)?);
    results.store(&command.json)?;
    for medium in [Medium::Memory, Medium::DiskDirect] {
        if options.has(medium) {
            results.put_snapshots(tables::snapshots::measure(options, medium)?);
            results.store(&command.json)?;
        }
    }
    Ok(())
}

fn layers(options: &Options, command: &CommandLine, results: &mut Results) -> Result<(), String> {
    results.layers = Some(tables::layers::measure(options)?);
    results.store(&command.json)
}
