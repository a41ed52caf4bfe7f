//! Options that verbs of several nouns share.

use clap::{Args, ValueEnum};
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

/// How a volume or pool lies on its disks.
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
    /// Mirror, ddraid: the disk that has the log, on which no member lies: its path, identity or name in the group [default: two
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
#[command(mut_arg("layout", |arg| arg.default_value(None::<&str>).required(true)))]
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

/// On which disks of its group something lies.
#[derive(Args, Clone, Debug)]
pub(crate) struct DiskWords {
    /// Only on these disks of the group: paths, identities or names such as pv0.
    #[arg(long, value_name = "PV,…", value_delimiter = ',')]
    pub(crate) on: Vec<String>,
}
