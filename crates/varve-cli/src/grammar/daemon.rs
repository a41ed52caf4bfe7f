//! `varve daemon`: its options.

use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use varve_daemon::VolumeMetrics;

/// What `varve daemon` takes.
#[derive(Args, Debug)]
pub(crate) struct DaemonOptions {
    /// A file with these options, without their dashes, as keys; what the command line has wins
    /// [default: /etc/varve/varve.toml for root, if it is there].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print what is in force by the file and the command line, or what is wrong with it, and exit.
    #[arg(long)]
    pub(crate) check_config: bool,
    /// Take over from the daemon that runs with the same --state and --socket: NBD clients without TLS see a pause. Without one, start.
    #[arg(long)]
    pub(crate) replace: bool,
    /// Where the paths of disks and the exports are remembered
    /// [default: /var/lib/varve for root, else the user's state directory].
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Permissions of the daemon's socket [default: 0660 with --socket-group, else 0600].
    #[arg(long, value_name = "MODE")]
    pub(crate) socket_mode: Option<varve_api::FileMode>,
    /// The group of the daemon's socket. Its members may do all that the daemon may: those of a daemon of root are as good as root.
    #[arg(long, value_name = "GROUP")]
    pub(crate) socket_group: Option<String>,
    /// Serve HTTP on this TCP address too; anybody who reaches it may do everything.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) http: Option<SocketAddr>,
    /// Serve metrics, and nothing else, on this TCP address.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Which volumes and exports have metrics of their own: so many that had the most requests lately, or all; else there are
    /// sums by group, or none at all.
    #[arg(long, value_name = "N|all|group|none", default_value = "100")]
    pub(crate) metrics_volumes: VolumeMetrics,
    /// Accept an address for --http or --metrics that other hosts reach; nothing is encrypted.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Threads that serve volumes [default: number of cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) shards: Option<u16>,
    /// How requests reach the kernel.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) io: IoChoice,
    /// How disks are reached without an option of their own.
    #[arg(long, value_name = "direct|buffered", default_value = "direct")]
    pub(crate) cache: varve_api::Cache,
    /// Memory for requests in flight, of which each FUSE export reserves 2 MiB, all together three quarters at most; an idle NBD
    /// connection has 8 KiB beside it.
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(4..=65536))]
    pub(crate) memory_mib: u32,
    /// NBD connections at a time; an export may have half of them.
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) connections: u16,
    /// How long an NBD client that has begun a message, or to fetch a reply, may take to go on before it is left.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) client_timeout: u16,
    /// Seconds that a stop may take; a disk that does not answer is left behind then.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) stop_timeout: u64,
    /// Minutes for which a disk may be missing before a spare takes the place of its members; it may only be slow to appear.
    #[arg(long, value_name = "MINUTES", default_value_t = 5, value_parser = clap::value_parser!(u16))]
    pub(crate) spare_after: u16,
    /// A folder in which the backing files of disk images may lie; repeated, several. Others are not opened.
    #[arg(long = "image-dir", value_name = "DIR")]
    pub(crate) image_dirs: Vec<PathBuf>,
    /// Form of the log on stderr [default: human on a terminal, else plain lines]; $VARVE_LOG filters it.
    #[arg(long, value_enum, default_value = "auto", hide_default_value = true)]
    pub(crate) log: LogChoice,
}

/// How requests reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IoChoice {
    /// One io_uring for each shard.
    Ring,
    /// Blocking workers.
    Pool,
    /// A ring where the kernel lets us have one.
    Auto,
}

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogChoice {
    /// Coloured on a terminal, plain elsewhere.
    Auto,
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}
