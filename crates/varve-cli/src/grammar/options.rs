//! Options that verbs of several nouns share.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use std::io::IsTerminal;
use varve_api::ReadPolicy;

/// Options of every verb that changes something.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Change {
    /// Print what would be done, and change nothing.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// Options of every verb that may destroy something.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Destroy {
    /// Print what would be done, and change nothing.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Going on while clients are connected.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Force {
    /// Go on though clients are connected or the file is open: what they have open is taken away or changed under them.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Options of the verbs that take volumes into use.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ActivateOptions {
    /// Take arrays into use although members are missing that may have newer data, and lose what only they have.
    #[arg(long)]
    pub(crate) accept_missing: bool,
    /// Print what would be done, and change nothing.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Do not ask whether that loss is accepted.
    #[arg(short, long, requires = "accept_missing")]
    pub(crate) yes: bool,
}

/// Options of every verb that starts a job.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// Wait until the job has ended; the default on a terminal.
    #[arg(long, overrides_with = "no_wait")]
    pub(crate) wait: bool,
    /// Return as soon as the job runs; the default elsewhere.
    #[arg(long, overrides_with = "wait")]
    pub(crate) no_wait: bool,
}

impl Waiting {
    /// Whether to wait for the end of the job.
    pub(crate) fn is_wanted(self) -> bool {
        self.wait || (!self.no_wait && std::io::stdout().is_terminal())
    }
}

/// How a disk is reached.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DiskOptions {
    /// How the disks are reached: past the operating system's cache, or through it.
    #[arg(long = "disk-cache", alias = "cache", value_name = "direct|buffered")]
    pub(crate) cache: Option<varve_api::Cache>,
}

/// How a volume is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayoutChoice {
    /// One extent after the other.
    Linear,
    /// Round robin over several disks.
    Striped,
    /// On no disk: it reads as zeros, and what is written is dropped.
    Zero,
    /// On no disk: every read and write fails.
    Error,
    /// Several copies.
    Mirror,
    /// Divided over a power of two of disks, with parity.
    Ddraid,
    /// Where a program of yours says; taken with --mapper.
    Mapper,
}

/// The layouts that lie on disks. The others are known, too, so that it is said why they are refused.
pub(crate) fn layouts_on_disks() -> impl TypedValueParser<Value = LayoutChoice> {
    let word = |layout: &LayoutChoice| {
        let is_elsewhere = matches!(layout, LayoutChoice::Zero | LayoutChoice::Error | LayoutChoice::Mapper);
        Some(layout.to_possible_value()?.hide(is_elsewhere))
    };
    let words = LayoutChoice::value_variants().iter().filter_map(word);
    PossibleValuesParser::new(words).try_map(|word| LayoutChoice::from_str(&word, false))
}

/// `yes` or `no`, which are shown, and the other words for them.
pub(crate) fn yes_or_no() -> impl TypedValueParser<Value = bool> {
    const YES: [&str; 5] = ["yes", "y", "true", "on", "1"];
    const NO: [&str; 5] = ["no", "n", "false", "off", "0"];
    let word = |words: [&'static str; 5]| PossibleValue::new(words[0]).aliases(words);
    PossibleValuesParser::new([word(YES), word(NO)]).map(|word| YES.contains(&word.as_str()))
}

/// How a volume or pool is laid out on its disks.
#[derive(Args, Clone, Debug)]
pub(crate) struct LayoutOptions {
    /// How it is laid out.
    #[arg(long = "type", value_enum, default_value = "linear", hide_default_value = true)]
    pub(crate) layout: LayoutChoice,
    /// Striped: disks side by side.
    #[arg(long, value_name = "N")]
    pub(crate) stripes: Option<u32>,
    /// Striped: bytes on one disk before the next one's turn [default: 64K].
    #[arg(long, value_name = "SIZE")]
    pub(crate) stripe_size: Option<String>,
    /// Mirror: number of copies, 2 to 8.
    #[arg(long, value_name = "N")]
    pub(crate) copies: Option<u32>,
    /// Ddraid: 1 to 3; 2^K disks hold data and one parity.
    #[arg(long, value_name = "K")]
    pub(crate) order: Option<u32>,
    /// Ddraid: bytes in a block, 4K to 64K [default: as many as fit the sectors of its disks].
    #[arg(long, value_name = "SIZE")]
    pub(crate) array_block_size: Option<String>,
    /// Mirror, ddraid: read from those that hold data, from all in turn, or from all and compare [default: a mirror in turn,
    /// ddraid all, with checksums in turn].
    #[arg(long, value_name = "data|rotate|verify")]
    pub(crate) read_policy: Option<ReadPolicy>,
    /// Mirror, ddraid: check what the disks return by checksums, and write again what is wrong.
    #[arg(long)]
    pub(crate) checksums: bool,
    /// Mirror, ddraid: the disk that has the log, on which no member is: its path, identity or name in the group [default: two
    /// members have it].
    #[arg(long, value_name = "PV")]
    pub(crate) log: Option<String>,
    #[command(flatten)]
    pub(crate) policy: ArrayPolicyOptions,
    #[command(flatten)]
    pub(crate) disks: DiskWords,
}

/// What the arrays of a volume or pool do about slow members, and how fast they are made equal.
#[derive(Args, Clone, Debug)]
pub(crate) struct ArrayPolicyOptions {
    /// Mirror, ddraid: how long a request on a member may take before the others go on without it [usually 30s].
    #[arg(long, value_name = "TIME")]
    pub(crate) slow_after: Option<String>,
    /// Mirror, ddraid: bytes in which members are made equal in a second, at least while clients are served, and at most [usually
    /// 8M].
    #[arg(long, value_name = "MIN[..MAX]")]
    pub(crate) resync_rate: Option<String>,
    /// Mirror, ddraid: how long a region of 1 MiB is idle before it is no longer made equal after a crash [usually 1s].
    #[arg(long, value_name = "TIME")]
    pub(crate) release_after: Option<String>,
}

/// What a conversion to another layout takes.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("layout", |arg| {
    arg.default_value(None::<&str>).required(true).value_parser(layouts_on_disks())
}))]
pub(crate) struct ConvertOptions {
    #[command(flatten)]
    pub(crate) layout: LayoutOptions,
    /// Copy at most so many bytes a second: 50M.
    #[arg(long, value_name = "SIZE")]
    pub(crate) rate: Option<String>,
    #[command(flatten)]
    pub(crate) change: Change,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
}

/// The disks of its group on which something is to be.
#[derive(Args, Clone, Debug)]
pub(crate) struct DiskWords {
    /// Only on these disks of the group: paths, identities or names such as pv0.
    #[arg(long, value_name = "PV,…", value_delimiter = ',')]
    pub(crate) on: Vec<String>,
}

#[cfg(test)]
mod tests {
    use crate::grammar::{Cli, LayoutChoice, Noun, PhysicalVerb, PoolVerb};
    use clap::{CommandFactory, Parser};

    /// The help of a verb, in one line.
    fn help_of(words: &[&str]) -> String {
        let mut command = Cli::command();
        let mut found = &mut command;
        for word in words {
            found = found.find_subcommand_mut(word).expect("there is such a verb");
        }
        let help = found.render_help().to_string();
        help.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn help_offers_what_is_taken_and_no_more() {
        let layouts = "[possible values: linear, striped, mirror, ddraid]";
        for verb in [["lv", "convert"], ["pool", "convert"], ["pool", "create"]] {
            let help = help_of(&verb);
            assert!(help.contains(layouts), "{help}");
        }
        assert!(help_of(&["lv", "create"]).contains("zero"), "a volume may lie nowhere");
        let help = help_of(&["pv", "change"]);
        assert!(help.contains("[possible values: yes, no]"), "{help}");
    }

    #[test]
    fn words_that_help_leaves_out_are_known() {
        let parsed =
            Cli::try_parse_from(["varve", "pool", "create", "data/p", "--size", "1G", "--type", "zero"]);
        let Ok(Cli { noun: Noun::Pool(PoolVerb::Create(options)), .. }) = parsed else {
            panic!("the daemon says why it is refused")
        };
        assert_eq!(options.layout.layout, LayoutChoice::Zero);
        for (word, spare) in [("yes", true), ("true", true), ("1", true), ("no", false), ("off", false)] {
            let parsed = Cli::try_parse_from(["varve", "pv", "change", "/d", "--spare", word]);
            let Ok(Cli { noun: Noun::Pv(PhysicalVerb::Change(change)), .. }) = parsed else {
                panic!("{word} is taken")
            };
            assert_eq!(change.spare, spare, "{word}");
        }
    }
}
