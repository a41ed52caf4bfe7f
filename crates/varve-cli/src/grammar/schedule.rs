//! `varve schedule`: the verbs of schedules of snapshots.

use super::Change;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleVerb {
    /// Have snapshots of a volume made again and again, and old ones of these removed.
    Create {
        /// The volume.
        #[arg(value_name = "VG/LV")]
        volume: String,
        /// The time between two runs: 90s, 15m, 1h, 1d, 1w; they are due at multiples of it in UTC.
        #[arg(long, value_name = "TIME")]
        every: String,
        /// The snapshots that stay: the newest of each of the last so many hours, days, weeks and months that have any; a number alone is
        /// of the newest.
        #[arg(long, value_name = "24h,7d,4w,12m")]
        keep: String,
        /// What it is called in its group [default: as the volume].
        #[arg(long)]
        name: Option<String>,
        /// Other volumes of the group, of which snapshots are made at the same instant.
        #[arg(long, value_name = "LV,…", value_delimiter = ',')]
        set: Vec<String>,
        #[command(flatten)]
        change: Change,
    },
    /// List schedules.
    #[command(visible_alias = "ls")]
    List {
        /// Only those of this group.
        #[arg(value_name = "VG")]
        group: Option<String>,
    },
    /// Show a schedule and the snapshots that it made.
    Show {
        /// The schedule.
        #[arg(value_name = "VG/NAME")]
        name: String,
    },
    /// Change when a schedule runs, which snapshots stay, or its name.
    #[command(name = "change")]
    Edit {
        /// The schedule.
        #[arg(value_name = "VG/NAME")]
        schedule: String,
        /// The time between two runs.
        #[arg(long, value_name = "TIME")]
        every: Option<String>,
        /// The snapshots that stay.
        #[arg(long, value_name = "24h,7d,4w,12m")]
        keep: Option<String>,
        /// What it is called in its group.
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        change: Change,
    },
    /// Remove a schedule; the snapshots that it made stay.
    #[command(visible_alias = "rm")]
    Remove {
        /// The schedule.
        #[arg(value_name = "VG/NAME")]
        name: String,
        #[command(flatten)]
        change: Change,
    },
    /// Run a schedule now: make its snapshots, and remove those of its own that are not to stay.
    Run {
        /// The schedule.
        #[arg(value_name = "VG/NAME")]
        name: String,
        #[command(flatten)]
        change: Change,
    },
}
