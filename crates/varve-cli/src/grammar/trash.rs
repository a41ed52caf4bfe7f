//! `varve trash`: the verbs of the trash.

use super::{Change, Destroy};
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum TrashVerb {
    /// List the volumes and pools that were removed and can be brought back.
    #[command(visible_alias = "ls")]
    List {
        /// Only those of this group.
        #[arg(value_name = "VG")]
        group: Option<String>,
    },
    /// Bring a volume, with its snapshots, or a pool back.
    Restore {
        /// What it was called, or its identity.
        #[arg(value_name = "VG/NAME")]
        name: String,
        /// What it is called from then on [default: as it was].
        #[arg(long = "as", value_name = "NEW")]
        to: Option<String>,
        #[command(flatten)]
        change: Change,
    },
    /// Give up all that is in the trash of a group, or one thing of it.
    Empty {
        /// The group, or what it was called, or its identity.
        #[arg(value_name = "VG[/NAME]")]
        name: String,
        #[command(flatten)]
        destroy: Destroy,
    },
}

/// Where what is removed goes.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct TrashOptions {
    /// Give it up at once: it does not go to the trash.
    #[arg(long)]
    pub(crate) now: bool,
}
