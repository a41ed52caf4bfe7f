//! Why an array cannot be made or used.

use std::fmt;
use varve_block::IoError;
use varve_format::array::ArrayFormatError;

/// Why an array cannot be made or used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayError {
    /// A member failed.
    Io(IoError),
    /// What is on a member is not what was looked for.
    Format {
        /// The member's place.
        place: usize,
        /// What is wrong.
        error: ArrayFormatError,
    },
    /// The device in one place is the member of another place of this array.
    Exchanged {
        /// Where it was looked for.
        place: usize,
        /// Where it belongs.
        found: usize,
    },
    /// Too few members are in sync and here.
    TooFew {
        /// How many there are.
        present: usize,
        /// How many must be there.
        needed: usize,
    },
    /// The members that are here may lack writes that those which are missing have.
    MaybeStale,
    /// The same, and a member is here as it was before: a copy, or left behind.
    Older {
        /// Its place.
        place: usize,
    },
    /// The disk that has the log is not here, or does not have it any more, and a data member of ddraid is not in sync:
    /// what the others hold is unknown.
    LogUnknown,
    /// The array on the members is not the one that was looked for.
    Mismatch(&'static str),
    /// A member is not in the state that this needs.
    Member {
        /// The member's place.
        place: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// A log disk is not in the state that this needs.
    LogDisk(&'static str),
}

impl From<IoError> for ArrayError {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for ArrayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Format { place, error } => write!(f, "member {place}: {error}"),
            Self::Exchanged { place, found } => {
                write!(f, "the device in place {place} is member {found}: members were exchanged")
            }
            Self::TooFew { present, needed } => {
                write!(f, "{present} members are in sync and here, and {needed} are needed")
            }
            Self::MaybeStale => {
                f.write_str("the members that are missing may have newer data than those that are here")
            }
            Self::Older { place } => {
                write!(f, "the disk of member {place} is in an older state than another one that is here")
            }
            Self::LogUnknown => {
                f.write_str("the log is missing, which has what was being written, and so is a data member")
            }
            Self::LogDisk(problem) => write!(f, "the log disk: {problem}"),
            Self::Mismatch(what) => write!(f, "the array on the members is not the one expected: {what}"),
            Self::Member { place, problem } => write!(f, "member {place}: {problem}"),
        }
    }
}

impl std::error::Error for ArrayError {}
