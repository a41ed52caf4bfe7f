//! `varve snap`: the verbs of snapshots.

use super::{Change, Destroy, Force, Waiting};
use clap::Subcommand;
use varve_api::SnapshotMode;

#[derive(Debug, Subcommand)]
pub(crate) enum SnapVerb {
    /// Keep the present state of volumes; several names in one command share one instant.
    Create {
        /// The snapshots' names.
        #[arg(required = true, value_name = "VG/LV@SNAP")]
        names: Vec<String>,
        /// Of this snapshot, instead of the volume as it is now; in a pool.
        #[arg(long, value_name = "VG/LV@SNAP")]
        of: Option<String>,
        /// How they keep old content [default: dependent; in a pool they are thin].
        #[arg(long, value_name = "dependent|independent|thin")]
        mode: Option<SnapshotMode>,
        /// Bytes in a chunk; chosen with a volume's first snapshot [default: 64K].
        #[arg(long, value_name = "SIZE")]
        chunk_size: Option<String>,
        /// They are read-only.
        #[arg(long)]
        read_only: bool,
        #[command(flatten)]
        change: Change,
    },
    /// List snapshots, the oldest first.
    #[command(visible_alias = "ls")]
    List {
        /// Only those of this volume.
        #[arg(value_name = "VG/LV")]
        volume: Option<String>,
    },
    /// Show a snapshot.
    Show {
        /// The snapshot.
        #[arg(value_name = "VG/LV@SNAP")]
        name: String,
    },
    /// Remove snapshots; VG/LV@FIRST..@LAST names a range.
    #[command(visible_alias = "rm")]
    Remove {
        /// Snapshots or ranges.
        #[arg(required = true, value_name = "VG/LV@SNAP")]
        names: Vec<String>,
        #[command(flatten)]
        destroy: Destroy,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Make a volume's content that of a snapshot; what it shows before is kept as a snapshot.
    Rollback {
        /// The snapshot.
        #[arg(value_name = "VG/LV@SNAP")]
        name: String,
        /// Give up what the volume shows before.
        #[arg(long)]
        no_snapshot: bool,
        #[command(flatten)]
        force: Force,
        #[command(flatten)]
        destroy: Destroy,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Let snapshots be written, or no more; while they are not exported.
    #[command(name = "change")]
    Access {
        /// The snapshots.
        #[arg(required = true, value_name = "VG/LV@SNAP")]
        names: Vec<String>,
        /// They are read-only.
        #[arg(long, required_unless_present = "read_write", conflicts_with = "read_write")]
        read_only: bool,
        /// They may be written.
        #[arg(long)]
        read_write: bool,
        #[command(flatten)]
        change: Change,
    },
    /// Give a snapshot another name, while it is not exported.
    Rename {
        /// The snapshot.
        #[arg(value_name = "VG/LV@SNAP")]
        name: String,
        /// Its new name, as SNAP or as VG/LV@SNAP.
        #[arg(value_name = "NEW")]
        to: String,
        #[command(flatten)]
        change: Change,
    },
    /// Protect snapshots against removal.
    Hold {
        /// The snapshots.
        #[arg(required = true, value_name = "VG/LV@SNAP")]
        names: Vec<String>,
        #[command(flatten)]
        change: Change,
    },
    /// End the protection of snapshots.
    Release {
        /// The snapshots.
        #[arg(required = true, value_name = "VG/LV@SNAP")]
        names: Vec<String>,
        #[command(flatten)]
        change: Change,
    },
    /// List the extents that differ between two states of a volume, or between any two volumes and snapshots of a pool.
    Diff {
        /// The older state.
        #[arg(value_name = "VG/LV@A")]
        from: String,
        /// The newer state; the volume of the snapshot if not given.
        #[arg(value_name = "VG/LV@B")]
        to: Option<String>,
    },
}
