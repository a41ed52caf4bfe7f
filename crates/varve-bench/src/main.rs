//! Tables that others have published, measured again, and ones of our own; beside the peers.

mod bonnie;
mod failed;
mod first_touch;
mod machine;
mod memory;
mod nothing;
mod options;
mod prelude;
mod programs;
mod render;
mod report;
mod results;
mod tables;
mod work;

use clap::Parser;
use prelude::*;
use programs::answerer::Answerer;
use std::process::ExitCode;
use tables::mirrors::{array_work, arrays};
use tables::overlays::{overlay_boot, overlay_copy};
use tables::pools::{thin, thin_scale};
use tables::qcow2::images;
use tables::snapshot::{
    bonnie as bonnie_table, cache, cache_times, cost, daemon, distance, engine, listing, management,
    management_daemon,
};
use tables::{layers, nbd, neighbour};

/// Measures Varve beside other servers and writes down what came out.
#[derive(Parser)]
#[command(name = "varve-bench", version)]
struct CommandLine {
    #[arg(value_enum)]
    what: What,
    #[command(flatten)]
    options: Options,
    /// Where the figures are kept; what is not measured anew stays [default: docs/plots/results.json, or of a quick
    /// run target/quick/plots/results.json].
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where the page goes; its pictures go to `plots/` beside it [default: docs/benchmarks.md, or of a quick run
    /// target/quick/benchmarks.md].
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum What {
    /// NBD servers beside each other.
    Nbd,
    /// Snapshots: what they cost, from near and far, with little memory, while they come and go.
    Snapshots,
    /// What each layer costs.
    Layers,
    /// Thin volumes beside thick ones and beside qcow2 and reflinked files; pools at their limits.
    Thin,
    /// Mirrors and ddraid beside one raw member.
    Arrays,
    /// What a client's flood of requests does to the latency of another volume of its shard.
    Neighbour,
    /// qcow2 images beside QEMU's servers, chains of them, and volumes whose mapping a program decides.
    Images,
    /// Boots of a virtual machine, and copies to a filesystem, on copy-on-write images.
    Boot,
    /// All of them, and the page.
    All,
    /// Only the page and its pictures, from the figures.
    Render,
}

/// A part of what is measured: its name, where `{}` is the medium; the media on which it is measured, none if it needs none; and how.
type Step = (What, &'static str, &'static [Medium], fn(&Options, Medium, &mut Sheet) -> Outcome<()>);

const MEMORY: &[Medium] = &[Medium::Memory];
const DISK: &[Medium] = &[Medium::DiskDirect];
const BOTH: &[Medium] = &[Medium::Memory, Medium::DiskDirect];
const ALL: &[Medium] = &[Medium::Memory, Medium::DiskDirect, Medium::DiskBuffered];

/// All parts, in the order in which they are measured: what is exact and short comes first. One without a name sees for itself
/// which of its loads are wanted.
const STEPS: [Step; 24] = [
    (What::Layers, "", &[], layers::measure),
    (What::Snapshots, "cost: model disk", &[], cost::measure),
    (What::Snapshots, "first touches: model disk", &[], engine::measure_model),
    (What::Snapshots, "distance: model disk", &[], distance::measure_model),
    (What::Snapshots, "cache: model disk", &[], cache::measure),
    (What::Snapshots, "distance: memory", MEMORY, distance::measure_memory),
    (What::Snapshots, "cache: {}", BOTH, cache_times::measure),
    (What::Snapshots, "management: engine, {}", BOTH, management::measure),
    (What::Snapshots, "management: daemon, {}", BOTH, management_daemon::creating),
    (What::Snapshots, "changes: daemon", MEMORY, management_daemon::changing),
    (What::Snapshots, "deletions: daemon", MEMORY, management_daemon::deleting),
    (What::Snapshots, "first touches: slow disk", MEMORY, engine::measure_slow),
    (What::Snapshots, "first touches: daemon, {}", BOTH, daemon::measure),
    (What::Snapshots, "bonnie", DISK, bonnie_table::measure),
    (What::Thin, "lists", MEMORY, listing::measure),
    (What::Thin, "", BOTH, thin_scale::measure),
    (What::Thin, "", BOTH, thin::measure),
    (What::Arrays, "work, ratios, files", &[], array_work::measure),
    (What::Arrays, "exact, loads, unthrottled", &[], arrays::measure),
    (What::Images, "", &[], images::measure),
    (What::Neighbour, "", BOTH, neighbour::measure),
    (What::Boot, "boot", MEMORY, overlay_boot::measure),
    (What::Boot, "copy", MEMORY, overlay_copy::measure),
    (What::Nbd, "", ALL, nbd::measure),
];

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    let outcome = match words.peek().is_some_and(|word| word == "answer") {
        true => Answerer::parse_from(words).run(),
        false => run(&CommandLine::parse()),
    };
    let Err(Failed(message)) = outcome else { return ExitCode::SUCCESS };
    eprintln!("error: {message}");
    ExitCode::FAILURE
}

impl CommandLine {
    /// Where the figures are kept and where the page goes: those of a quick run mean nothing and replace no others.
    fn paths(&self) -> (PathBuf, PathBuf) {
        let parent = Path::new(if self.options.is_quick() { "target/quick" } else { "docs" });
        let json = || parent.join("plots/results.json");
        let page = || parent.join("benchmarks.md");
        (self.json.clone().unwrap_or_else(json), self.page.clone().unwrap_or_else(page))
    }
}

fn run(command: &CommandLine) -> Outcome<()> {
    let (json, page) = command.paths();
    let mut sheet = Sheet::load(&json)?;
    let mut failed = Vec::new();
    // A part that fails keeps none of the others from being measured.
    for (name, medium, measure) in wanted(command.what, &command.options) {
        let watch = Watch::start();
        if let Err(Failed(reason)) = measure(&command.options, medium, &mut sheet).of(&name) {
            eprintln!("{reason}");
            failed.push(reason);
        }
        eprintln!("{name}: {:.0} s", watch.seconds());
    }
    let parent = page.parent().map_or_else(|| PathBuf::from("."), PathBuf::from);
    // What was measured before something failed is worth a page, too.
    render::render(sheet.results(), &page, &parent.join("plots"))?;
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ").into()) }
}

type Wanted = (String, Medium, fn(&Options, Medium, &mut Sheet) -> Outcome<()>);

/// The parts that are asked for, on each medium that is.
fn wanted(what: What, options: &Options) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for (of, name, media, measure) in STEPS.into_iter().filter(|(of, ..)| [*of, What::All].contains(&what)) {
        for medium in if media.is_empty() { MEMORY } else { media } {
            let step = name.replace("{}", medium.name());
            if (media.is_empty() || options.has(*medium)) && (name.is_empty() || options.wants(&step)) {
                let step = if name.is_empty() { format!("{of:?}, {}", medium.name()) } else { step };
                wanted.push((step, *medium, measure));
            }
        }
    }
    wanted
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

    #[test]
    fn every_part_can_be_asked_for_apart_from_the_others() {
        let names = |words: &str| {
            let command = CommandLine::try_parse_from(words.split(' ')).expect("a command");
            let steps = wanted(command.what, &command.options).into_iter();
            steps.map(|(name, ..)| name).collect::<Vec<_>>()
        };
        assert_eq!(names("varve-bench nbd"), ["Nbd, memory", "Nbd, disk, direct", "Nbd, disk, buffered"]);
        assert_eq!(names("varve-bench nbd --media disk-direct"), ["Nbd, disk, direct"]);
        assert_eq!(
            names("varve-bench snapshots --only cache --media memory"),
            ["cache: model disk", "cache: memory"]
        );
        assert_eq!(names("varve-bench arrays --only files"), ["work, ratios, files"]);
        assert!(names("varve-bench render").is_empty());
        let all = names("varve-bench snapshots");
        assert!(all.len() > 15, "{all:?}");
        for name in &all {
            assert_eq!(all.iter().filter(|other| other.contains(name)).count(), 1, "{name}");
        }
        assert!(names("varve-bench all").len() > all.len());
    }
}
