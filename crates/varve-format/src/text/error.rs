//! What is wrong with a group's text.

use super::{Area, PvName, TEXT_VERSION, TEXT_VERSION_MIN};
use crate::name::NameError;
use uuid::Uuid;

/// Why a text is not the description of a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// It is not TOML, or has a field that does not exist, or one of the wrong type. The message names the line.
    #[error("the description cannot be read: {0}")]
    Syntax(String),
    /// It does not say its version.
    #[error("the description does not begin with `version = {TEXT_VERSION}`")]
    NoVersion,
    /// It was written by a newer program.
    #[error("the description has version {0}; this varve knows version {TEXT_VERSION}: use the newer one")]
    Newer(i64),
    /// It was written by an older program.
    #[error(
        "the description has version {0}, of an older varve; this one knows versions {TEXT_VERSION_MIN} to {TEXT_VERSION}: use the older one"
    )]
    Older(i64),
    /// It was written by an older program, and moves, conversions or clearings go on in it, which this one reads in another form.
    #[error(
        "the description has version {0}, of an older varve, and a move, conversion or clearing goes on in it: let the older one end that first"
    )]
    WorkOfOlder(i64),
    /// TEXT1: a name that none may have.
    #[error("{place}: {error}")]
    Name {
        /// Whose name.
        place: String,
        /// What is wrong with it.
        error: NameError,
    },
    /// TEXT1: two things of one name.
    #[error("two of them are called {0}")]
    NameTwice(String),
    /// TEXT1: a nil id.
    #[error("{0} has no id")]
    IdNil(String),
    /// TEXT1: two things of one id.
    #[error("two things have the id {0}")]
    IdTwice(Uuid),
    /// An extent size that is not allowed (TEXT2).
    #[error("extent_size is {0}: it must be a power of two from 64 KiB to 1 GiB")]
    ExtentSize(u64),
    /// A physical volume that does not hold its extents (TEXT3).
    #[error("{0}: its extents do not lie between its data_offset and its size")]
    PhysicalVolume(PvName),
    /// TEXT4: an area of a disk that the group does not have.
    #[error("{place}: there is no {pv}")]
    NoSuchPv {
        /// Whose area.
        place: String,
        /// Which disk.
        pv: PvName,
    },
    /// TEXT4: an area beyond the disk's last extent.
    #[error("{place}: {area} ends behind the last extent of {}, or is empty", area.pv)]
    AreaOutside {
        /// Whose area.
        place: String,
        /// Which.
        area: Area,
    },
    /// An extent that is owned twice (TEXT5).
    #[error("extent {extent} of {pv} belongs to {first} and to {second}")]
    OwnedTwice {
        /// The disk.
        pv: PvName,
        /// The extent.
        extent: u64,
        /// One owner.
        first: String,
        /// The other.
        second: String,
    },
    /// TEXT6 to TEXT8 or TEXT10 to TEXT26.
    #[error("{place}: {problem}")]
    Shape {
        /// The group, disk, volume, store, set, image or job.
        place: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A number that no version has (TEXT9).
    #[error("sequence is {0}: it begins at 1 and ends at 2^63 - 1")]
    Sequence(u64),
}
