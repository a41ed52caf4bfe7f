//! Options that verbs of several nouns share.

use clap::Args;

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

/// Whatever follows a verb that is not built yet.
#[derive(Args, Clone, Debug)]
pub(crate) struct OfflineWords {
    /// What the verb takes.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}
