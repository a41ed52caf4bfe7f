//! The settings with which a daemon starts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use varve_api::Cache;
use varve_os::FileAccess;

/// How requests reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IoMode {
    /// One io_uring for each shard, or refuse to start.
    Ring,
    /// Blocking workers.
    Pool,
    /// A ring where the kernel lets us have one, else workers.
    #[default]
    Auto,
}

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogForm {
    /// For users; coloured on a terminal.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The socket of the HTTP interface: who may connect to it may do everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlSocket {
    /// The socket file.
    pub path: PathBuf,
    /// Its permissions and group.
    pub access: FileAccess,
}

/// Of which volumes, and exports, metrics have series of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeMetrics {
    /// Of all.
    All,
    /// Of so many that had the most requests lately; and sums by group.
    Busiest(usize),
    /// Sums by group alone.
    Group,
    /// Not even sums.
    None,
}

impl FromStr for VolumeMetrics {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self::All),
            "group" => Ok(Self::Group),
            "none" => Ok(Self::None),
            number => {
                number.parse().map(Self::Busiest).map_err(|_| "neither a number nor all, group or none")
            }
        }
    }
}

/// Listeners on TCP, without authentication.
#[derive(Clone, Copy, Debug)]
pub struct TcpListeners {
    /// Of the whole HTTP interface.
    pub http: Option<SocketAddr>,
    /// Of metrics, which can do nothing else.
    pub metrics: Option<SocketAddr>,
    /// What metrics have, on all listeners.
    pub volume_metrics: VolumeMetrics,
}

impl TcpListeners {
    /// Their addresses.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        [self.http, self.metrics].into_iter().flatten()
    }
}

/// The daemon's configuration; what the command line does not say has been filled in by the caller.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the paths of disks and the exports are remembered; made if missing.
    pub state: PathBuf,
    /// Where the HTTP interface listens, and who may connect.
    pub socket: ControlSocket,
    /// Where it listens too.
    pub tcp: TcpListeners,
    /// Threads that serve volumes; the number of cores if not given.
    pub shards: Option<usize>,
    /// How requests reach the kernel.
    pub io: IoMode,
    /// How disks are reached that have no setting of their own.
    pub cache: Cache,
    /// Bytes for requests in flight.
    pub memory: usize,
    /// NBD connections at a time; an export may have half of them.
    pub connections: usize,
    /// How long a client that has begun a message may take to go on.
    pub client_timeout: Duration,
    /// How long a stop may take; what does not end is left behind.
    pub stop_timeout: Duration,
    /// For how long a disk may be missing before a spare takes the place of its members.
    pub spare_after: Duration,
    /// Folders in which the backing files of images may lie.
    pub image_dirs: Vec<PathBuf>,
    /// Form of the log on stderr.
    pub log: LogForm,
    /// Which events are logged, in the syntax of `tracing`'s filters; `info` if not given.
    pub log_filter: Option<String>,
}
