//! Tables that others have published, measured again, and ones of our own; beside the peers.

mod bonnie;
mod first_touch;
mod machine;
mod memory;
mod nothing;
mod options;
mod programs;
mod render;
mod report;
mod results;
mod tables;
mod work;

use clap::{Parser, Subcommand};
use options::{Medium, Options};
use programs::answerer::Answerer;
use report::sheet::Sheet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measures Varve beside other servers and writes down what came out.
#[derive(Parser)]
#[command(name = "varve-bench", version)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
    /// Where the figures are kept; what is not measured anew stays [default: docs/plots/results.json, or of a quick
    /// run target/quick/plots/results.json].
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where the page goes; its pictures go to `plots/` beside it [default: docs/benchmarks.md, or of a quick run
    /// target/quick/benchmarks.md].
    #[arg(long, global = true, value_name = "FILE")]
    page: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Verb {
    /// NBD servers beside each other.
    Nbd(Options),
    /// Snapshots: what they cost, from near and far, with little memory, while they come and go.
    Snapshots(Options),
    /// What each layer costs.
    Layers(Options),
    /// Thin volumes beside thick ones and beside qcow2 and reflinked files; pools at their limits.
    Thin(Options),
    /// Mirrors and ddraid beside one raw member.
    Arrays(Options),
    /// What a client's flood of requests does to the latency of another volume of its shard.
    Neighbour(Options),
    /// qcow2 images beside QEMU's servers, chains of them, and volumes whose mapping a program decides.
    Images(Options),
    /// The other side of a measurement.
    #[command(hide = true, subcommand)]
    Answer(Answerer),
    /// Boots of a virtual machine, and copies to a filesystem, on copy-on-write images.
    Boot(Options),
    /// All of them, and the page.
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

impl Verb {
    fn is_quick(&self) -> bool {
        match self {
            Verb::Nbd(options)
            | Verb::Snapshots(options)
            | Verb::Layers(options)
            | Verb::Thin(options)
            | Verb::Arrays(options)
            | Verb::Neighbour(options)
            | Verb::Images(options)
            | Verb::Boot(options)
            | Verb::All(options) => options.is_quick(),
            Verb::Render | Verb::Answer(_) => false,
        }
    }
}

impl CommandLine {
    /// Where the figures are kept and where the page goes: those of a quick run mean nothing and replace no others.
    fn paths(&self) -> (PathBuf, PathBuf) {
        let parent = Path::new(if self.verb.is_quick() { "target/quick" } else { "docs" });
        let json = || parent.join("plots/results.json");
        let page = || parent.join("benchmarks.md");
        (self.json.clone().unwrap_or_else(json), self.page.clone().unwrap_or_else(page))
    }
}

fn run(command: &CommandLine) -> Result<(), String> {
    if let Verb::Answer(answerer) = &command.verb {
        return answerer.run();
    }
    let (json, page) = command.paths();
    let mut sheet = Sheet::load(&json)?;
    let measured = measure(&command.verb, &mut sheet);
    let parent = page.parent().map_or_else(|| PathBuf::from("."), PathBuf::from);
    // What was measured before something failed is worth a page, too.
    render::render(sheet.results(), &page, &parent.join("plots")).and(measured)
}

fn measure(verb: &Verb, sheet: &mut Sheet) -> Result<(), String> {
    match verb {
        Verb::Nbd(options) => nbd(options, sheet),
        Verb::Snapshots(options) => tables::snapshot::snapshots::measure(options, sheet),
        Verb::Layers(options) => tables::layers::measure(options, sheet),
        Verb::Thin(options) => thin(options, sheet),
        Verb::Arrays(options) => arrays(options, sheet),
        Verb::Neighbour(options) => tables::neighbour::measure(options, sheet),
        Verb::Boot(options) => boot(options, sheet),
        Verb::All(options) => {
            tables::layers::measure(options, sheet)?;
            tables::snapshot::snapshots::measure(options, sheet)?;
            thin(options, sheet)?;
            arrays(options, sheet)?;
            tables::qcow2::images::measure(options, sheet)?;
            tables::neighbour::measure(options, sheet)?;
            boot(options, sheet)?;
            nbd(options, sheet)
        }
        Verb::Images(options) => tables::qcow2::images::measure(options, sheet),
        Verb::Render | Verb::Answer(_) => Ok(()),
    }
}

fn thin(options: &Options, sheet: &mut Sheet) -> Result<(), String> {
    if options.has(Medium::Memory) && options.wants("lists") {
        tables::snapshot::listing::measure(options, sheet)?;
    }
    for medium in [Medium::Memory, Medium::DiskDirect] {
        tables::pools::thin_scale::measure(options, medium, sheet)?;
        tables::pools::thin::measure(options, medium, sheet)?;
    }
    Ok(())
}

fn arrays(options: &Options, sheet: &mut Sheet) -> Result<(), String> {
    if ["work", "ratios", "files"].iter().any(|part| options.wants(part)) {
        tables::mirrors::array_work::measure(options, sheet)?;
    }
    if ["exact", "loads", "unthrottled"].iter().any(|part| options.wants(part)) {
        tables::mirrors::arrays::measure(options, sheet)
    } else {
        Ok(())
    }
}

fn boot(options: &Options, sheet: &mut Sheet) -> Result<(), String> {
    if options.wants("boot") {
        tables::overlays::overlay_boot::measure(options, sheet)?;
    }
    if options.wants("copy") { tables::overlays::overlay_copy::measure(options, sheet) } else { Ok(()) }
}

fn nbd(options: &Options, sheet: &mut Sheet) -> Result<(), String> {
    options.media().into_iter().try_for_each(|medium| tables::nbd::measure(options, medium, sheet))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_replaces_no_figures() {
        let paths = |words: &str| {
            let command = CommandLine::try_parse_from(words.split(' ')).expect("a command");
            let (json, page) = command.paths();
            format!("{} {}", json.display(), page.display())
        };
        assert_eq!(paths("varve-bench all"), "docs/plots/results.json docs/benchmarks.md");
        assert_eq!(
            paths("varve-bench nbd --quick"),
            "target/quick/plots/results.json target/quick/benchmarks.md"
        );
        assert_eq!(paths("varve-bench layers --quick --json a --page b"), "a b");
        assert_eq!(paths("varve-bench render"), "docs/plots/results.json docs/benchmarks.md");
    }
}
