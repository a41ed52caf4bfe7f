//! Why an image cannot be opened.

use varve_block::{Extent, IoError};
use varve_format::qcow2::Qcow2Error;

/// Why an image cannot be opened, or made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// What the file holds is no image that is understood.
    Format(Qcow2Error),
    /// The file cannot be read or written.
    Io(IoError),
    /// There is no internal snapshot of that id or name.
    NoSnapshot(String),
    /// Internal snapshots are only read.
    SnapshotReadOnly,
    /// The image says that it is corrupt.
    MarkedCorrupt,
    /// It has persistent bitmaps, which a writer would have to keep.
    Bitmaps,
    /// Two tables lie at one offset.
    Overlap(u64),
    /// Tables contradict each other: what, in words.
    Damaged(String),
    /// The file ends before something that tables lead to: it is a part of a copy.
    CutOff {
        /// What is missing.
        what: String,
        /// Where it should be.
        extent: Extent,
        /// Where the file ends.
        end: u64,
    },
    /// A new image cannot be like that.
    Invalid(&'static str),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OpenError::Format(error) => error.fmt(f),
            OpenError::Io(error) => error.fmt(f),
            OpenError::NoSnapshot(name) => write!(f, "the image has no snapshot {name}"),
            OpenError::SnapshotReadOnly => f.write_str("an internal snapshot can only be read"),
            OpenError::MarkedCorrupt => f.write_str("the image is marked corrupt, and can only be read"),
            OpenError::Bitmaps => f.write_str("the image has persistent bitmaps, and can only be read"),
            OpenError::Overlap(offset) => {
                write!(f, "two tables of the image lie at byte {offset}, so it can only be read")
            }
            OpenError::Damaged(what) => {
                write!(f, "the image is damaged, and can only be read: {what}")
            }
            OpenError::CutOff { what, extent, end } => {
                let Extent { offset, length } = extent;
                write!(
                    f,
                    "the image is truncated: {what} has {length} bytes at byte {offset}, and the file ends at byte {end}"
                )
            }
            OpenError::Invalid(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for OpenError {}

impl OpenError {
    pub(super) fn cut_off(what: &str, extent: Extent, end: u64) -> Self {
        OpenError::CutOff { what: what.to_owned(), extent, end }
    }

    /// The command that mends the image at `path`; empty if there is none.
    pub fn remedy(&self, path: &str) -> String {
        match self {
            OpenError::MarkedCorrupt | OpenError::Overlap(_) | OpenError::Damaged(_) => {
                format!("qemu-img check -r all {path}")
            }
            OpenError::Bitmaps => format!("qemu-img bitmap --remove {path} NAME"),
            OpenError::CutOff { extent, .. } => format!(
                "copy {path} again from where it is whole; if zeros are meant there: truncate -s {} {path}",
                extent.end()
            ),
            OpenError::NoSnapshot(_) => format!("varve image info {path}"),
            OpenError::Format(_) | OpenError::Io(_) | OpenError::SnapshotReadOnly | OpenError::Invalid(_) => {
                String::new()
            }
        }
    }
}

impl From<Qcow2Error> for OpenError {
    fn from(error: Qcow2Error) -> Self {
        OpenError::Format(error)
    }
}

impl From<IoError> for OpenError {
    fn from(error: IoError) -> Self {
        OpenError::Io(error)
    }
}
