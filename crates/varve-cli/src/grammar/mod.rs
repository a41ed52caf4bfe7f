//! The grammar of the command line: nouns, verbs and options, as data for the parser, completions and manual.

mod array;
mod daemon;
mod export;
mod group;
mod image;
mod job;
mod offline;
mod options;
mod physical;
mod pool;
mod schedule;
mod snapshot;
mod trash;
mod volume;

pub(crate) use array::{ArrayVerb, ScrubOptions};
pub(crate) use daemon::{DaemonOptions, IoChoice, LogChoice};
pub(crate) use export::{AccessOptions, ExportVerb, LimitOptions};
pub(crate) use group::{GroupVerb, MetadataOptions};
pub(crate) use image::{ImageConvertOptions, ImageCreateOptions, ImageFormat, ImageVerb, Sharing};
pub(crate) use job::JobVerb;
pub(crate) use offline::{CheckOptions, DumpOptions, RepairOptions, RestoreOptions};
pub(crate) use options::{
    ActivateOptions, ArrayPolicyOptions, Change, ConvertOptions, Destroy, DiskOptions, DiskWords, Force,
    LayoutChoice, LayoutOptions, Waiting,
};
pub(crate) use physical::{DiskChange, PhysicalVerb};
pub(crate) use pool::{PoolCreateOptions, PoolPolicyOptions, PoolVerb};
pub(crate) use schedule::ScheduleVerb;
pub(crate) use snapshot::SnapVerb;
pub(crate) use trash::{TrashOptions, TrashVerb};
pub(crate) use volume::{
    Driver, PolicyOptions, VolumeAttachOptions, VolumeCreateOptions, VolumeDetachOptions, VolumeMapOptions,
    VolumeVerb,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Names are VG, VG/LV and VG/LV@SNAP. Sizes are 10G, 10GiB (base 2), 10GB (decimal), plain bytes, +2G, 50%FREE.

A first volume:
  varve daemon &
  varve pv create disk.img --size 10G
  varve vg create data disk.img
  varve lv create data/home --size 4G
  varve export create data/home --nbd unix:/tmp/home.sock
  varve snap create data/home@monday";

/// Block volumes, snapshots and exports in user space.
#[derive(Debug, Parser)]
#[command(name = "varve", version, about, after_help = AFTER_HELP, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) noun: Noun,
}

/// For whom `varve status --check` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckFormat {
    /// People and scripts: exit code 0 or 7.
    Text,
    /// Monitors with the plugin interface of Nagios: one line, exit codes 0 to 3.
    Nagios,
}

/// Options that every verb takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Global {
    /// Print JSON, errors included, and nothing else on stdout.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The daemon's socket [default: $VARVE_SOCKET, the user's runtime directory, or /run/varve/varve.sock].
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// Everything that the first word may be.
#[derive(Debug, Subcommand)]
pub(crate) enum Noun {
    /// Physical volumes: disks, partitions and files.
    #[command(subcommand)]
    Pv(PhysicalVerb),
    /// Volume groups: disks taken together.
    #[command(subcommand)]
    Vg(GroupVerb),
    /// Logical volumes.
    #[command(subcommand)]
    Lv(VolumeVerb),
    /// Thin pools.
    #[command(subcommand)]
    Pool(PoolVerb),
    /// Snapshots.
    #[command(subcommand)]
    Snap(SnapVerb),
    /// Schedules of snapshots.
    #[command(subcommand)]
    Schedule(ScheduleVerb),
    /// Volumes and pools that were removed and can be brought back.
    #[command(subcommand)]
    Trash(TrashVerb),
    /// Exports: doors through which volumes are reached.
    #[command(subcommand)]
    Export(ExportVerb),
    /// Arrays with redundancy.
    #[command(subcommand)]
    Array(ArrayVerb),
    /// Disk images in files that no daemon and no virtual machine uses.
    #[command(subcommand)]
    Image(ImageVerb),
    /// Long work.
    #[command(subcommand)]
    Job(JobVerb),
    /// Tell what an error code means.
    Explain {
        /// The code, as in error[V0123].
        code: String,
    },
    /// Show how the daemon is, and what happened last.
    Status {
        /// Show only what needs a person; the exit code is 7 if anything does. For Nagios and its like: --check=nagios.
        #[arg(long, value_enum, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
        check: Option<CheckFormat>,
    },
    /// Show what happened to disks, groups, volumes and exports, the newest last.
    Events {
        /// Show what happens from now on, until interrupted.
        #[arg(long)]
        follow: bool,
    },
    /// Show what volumes, exports, disks, pools and jobs do now: a screen on a terminal, else lines.
    Top {
        /// Seconds between two samples.
        #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
        every: u64,
        /// Print this many samples as lines, and exit.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
    },
    /// Write what somebody who helps you asks for first into a file.
    Report {
        /// The file; it must not be there.
        file: PathBuf,
    },
    /// Run the daemon in the foreground.
    Daemon(DaemonOptions),
    /// Check disks that no daemon holds; changes nothing.
    Check(CheckOptions),
    /// Print the descriptions of groups on disks that no daemon holds, the metadata of a snapshot store or a pool, or in
    /// which bytes two volumes differ.
    Dump(DumpOptions),
    /// Write a group's description back to disks that hold none any more, or the metadata of a snapshot store or a pool
    /// anew; on disks that no daemon holds.
    Restore(RestoreOptions),
    /// Mend labels and descriptions on disks that no daemon holds, or make a new copy of a damaged snapshot store, or of
    /// the metadata of a damaged pool.
    Repair(RepairOptions),
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder.
    #[command(hide = true)]
    Man {
        /// The folder; it is made if it is missing.
        folder: PathBuf,
        /// The date in the foot of the pages.
        #[arg(long, value_name = "YYYY-MM-DD")]
        date: Option<String>,
    },
}
