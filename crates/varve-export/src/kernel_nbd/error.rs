//! Why a volume does not become a block device of this kernel, or does not end to be one.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// What went wrong.
#[derive(Debug)]
pub enum AttachError {
    /// The kernel has no NBD client, or its module is not loaded.
    NoDriver,
    /// Only root of the host itself may do this.
    NotPermitted,
    /// The kernel cannot tell whose a device is, so no later daemon would know it again.
    TooOld,
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
    pub(super) fn failed(doing: &'static str, path: PathBuf) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted,
            _ => Self::Failed { doing, path, source },
        }
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver => f.write_str("this kernel has no NBD client: its module nbd is not loaded"),
            Self::NotPermitted => f.write_str(
                "the kernel lets only root of the host attach devices (CAP_SYS_ADMIN outside of user namespaces)",
            ),
            Self::TooOld => {
                f.write_str("this kernel cannot tell whose an NBD device is: it is older than Linux 5.14")
            }
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
