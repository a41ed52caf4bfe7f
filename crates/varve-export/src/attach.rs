//! What all drivers by which a volume is a block device of this kernel share: how it is offered, and why it is not.

use crate::bell::Spawn;
use crate::budget::Budget;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use varve_block::MIB;

/// A driver of the kernel for block devices that a program serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Driver {
    /// The client of network block devices.
    Nbd,
    /// User-space block devices.
    Ublk,
}

/// How a device is offered.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// What tells the volume from all others.
    pub identity: String,
    /// Bytes of requests that may be on their way at the same time.
    pub bytes_in_flight_max: u64,
    /// Memory that the clients of all doors share.
    pub budget: Budget,
    /// Starts a thread of a name.
    pub spawn: Spawn,
}

impl AttachOptions {
    /// With what is usual.
    pub fn new(identity: &str, budget: Budget, spawn: Spawn) -> Self {
        Self { identity: identity.to_owned(), bytes_in_flight_max: 64 * MIB, budget, spawn }
    }
}

/// What went wrong.
#[derive(Debug)]
pub enum AttachError {
    /// The kernel lacks the driver, or its module is not loaded.
    NoDriver(Driver),
    /// Only root of the host itself may do this.
    NotPermitted,
    /// The kernel's driver is too old: no later daemon could serve a device on.
    TooOld(Driver),
    /// The kernel let no ring for commands be made.
    NoRing(io::Error),
    /// The kernel carries a command out for longer than it may take.
    Stuck {
        /// The command.
        command: &'static str,
        /// The device that it is about, with its state.
        device: String,
    },
    /// A device keeps its size as long as it is there.
    KeepsSize,
    /// The kernel made the device, and its file does not appear.
    NoNode(PathBuf),
    /// Something else is where the link is to be.
    Taken(PathBuf),
    /// All devices that the kernel can have are in use.
    NoneFree,
    /// It is in use by these.
    Busy(PathBuf, Vec<String>),
    /// Something that was written through it was lost, and no program has heard of that.
    Lost(PathBuf, io::Error),
    /// A step failed.
    Failed {
        /// What was tried.
        doing: &'static str,
        /// With which device or file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl AttachError {
    /// A step that failed.
    pub(crate) fn failed(doing: &'static str, path: PathBuf) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted,
            _ => Self::Failed { doing, path, source },
        }
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver(Driver::Nbd) => {
                f.write_str("this kernel has no NBD client: its module nbd is not loaded")
            }
            Self::NoDriver(Driver::Ublk) => {
                f.write_str("this kernel has no user-space block devices: its module ublk_drv is not loaded")
            }
            Self::NotPermitted => f.write_str(
                "the kernel lets only root of the host attach devices (CAP_SYS_ADMIN outside of user namespaces)",
            ),
            Self::TooOld(Driver::Nbd) => {
                f.write_str("this kernel cannot tell whose an NBD device is: it is older than Linux 5.14")
            }
            Self::TooOld(Driver::Ublk) => f.write_str(
                "this kernel's ublk devices do not copy data by read and write: it is older than Linux 6.5",
            ),
            Self::NoRing(source) => write!(f, "ublk needs io_uring, which is refused: {source}"),
            Self::Stuck { command, device } => {
                write!(f, "the kernel does not end {command} of {device}")
            }
            Self::KeepsSize => f.write_str("this kernel's ublk devices keep their size: it is older than Linux 6.16"),
            Self::NoNode(path) => write!(f, "the kernel made a device, but {} did not appear", path.display()),
            Self::Taken(path) => write!(f, "{} is there already, and is no link", path.display()),
            Self::NoneFree => f.write_str("every NBD device of this kernel is in use"),
            Self::Busy(path, users) => write!(f, "{} is in use: {}", path.display(), users.join("; ")),
            Self::Lost(path, source) => {
                write!(f, "writes through {} failed, and no program was told: {source}", path.display())
            }
            Self::Failed { doing, path, source } => write!(f, "cannot {doing} {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for AttachError {}

/// Refuses a path at which something else than a link is.
pub(crate) fn check_link(link: &Path) -> Result<(), AttachError> {
    match link.symlink_metadata() {
        Ok(found) if !found.is_symlink() => Err(AttachError::Taken(link.to_owned())),
        _ => Ok(()),
    }
}
