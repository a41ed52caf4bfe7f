//! What an open group has to say: notes about its disks, and why it cannot be changed.

use crate::plan::PlanError;
use uuid::Uuid;
use varve_block::IoError;
use varve_format::SlotError;

/// Something that users should know about a group that was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Note {
    /// The group counts on a disk that is not here.
    #[error("the disk {pv} is missing; it was last seen at {path}")]
    Missing {
        /// Which.
        pv: Uuid,
        /// Where it was.
        path: String,
    },
    /// A crash kept the last version from the disk; it is written again.
    #[error("{path} holds version {holds} of the description, the newest is {newest}: it is brought forward")]
    Behind {
        /// Where it is.
        path: String,
        /// The newest that it holds.
        holds: u64,
        /// The newest.
        newest: u64,
    },
    /// The disk was missing and is back.
    #[error("{path} was missing and is back with version {holds} of the description; the newest is {newest}")]
    Returned {
        /// Where it is.
        path: String,
        /// The newest that it holds.
        holds: u64,
        /// The newest.
        newest: u64,
    },
    /// The disk has lost what it had acknowledged: it is old, or a copy of an old one.
    #[error(
        "{path} is stale: it holds version {holds} of the description, and the group has gone on to {newest} \
        without it; it is not used"
    )]
    Stale {
        /// Where it is.
        path: String,
        /// The newest that it holds; 0 if none.
        holds: u64,
        /// The newest.
        newest: u64,
    },
    /// The disk was removed from the group.
    #[error("{path} says that it belongs to {group}, which has given it up")]
    Removed {
        /// Where it is.
        path: String,
        /// The group.
        group: String,
    },
    /// The group's description and the disk's label disagree about the disk's size or where its data begins.
    #[error(
        "{path} is not as the description of its group says: its label has another size or data offset; it is \
        not used"
    )]
    OtherShape {
        /// Where it is.
        path: String,
    },
    /// A disk that lags behind, or was missing, holds a number that leaves the group too few (VERSION3).
    #[error(
        "{path} holds version {holds} of the description, a number that no group reaches by changes; it is not used"
    )]
    NumberForged {
        /// Where it is.
        path: String,
        /// The number.
        holds: u64,
    },
    /// A copy of the label is damaged or old; it is written again.
    #[error("{path}: a copy of the label was damaged and is written again")]
    LabelWorn {
        /// Where it is.
        path: String,
    },
    /// A slot of the ring that may have been newer than the newest whole one on this disk is damaged: the remains of a
    /// crash, or damage of the medium.
    #[error("{path}: a slot at byte {address} is damaged ({error})")]
    SlotDamaged {
        /// Where it is.
        path: String,
        /// Where on it.
        address: u64,
        /// What is wrong.
        error: SlotError,
    },
    /// The second copy of a disk's metadata is not what the first one is: it was overwritten, could not be written, or is new.
    #[error(
        "{path}: the copy of its metadata in its last MiB is absent or out of date, and is written again"
    )]
    TailBehind {
        /// Where it is.
        path: String,
    },
    /// There is no room for a second copy of a disk's metadata.
    #[error("{path} has no copy of its metadata in its last MiB: extents of the group reach there")]
    NoTail {
        /// Where it is.
        path: String,
    },
}

impl Note {
    /// What to do about it, if anything is to be done; `group` is the group's name.
    pub fn help(&self, group: &str) -> Option<String> {
        match self {
            Self::Missing { .. } => Some("`varve pv scan PATH` when the disk is back".into()),
            Self::Stale { path, .. } => Some(format!(
                "`varve vg extend {group} {path} --yes` takes it back with data that may be old"
            )),
            Self::OtherShape { .. } => Some(format!(
                "attach the right disk and `varve pv scan PATH`, or give it up: `varve vg reduce {group} --missing`"
            )),
            Self::Removed { path, .. } | Self::NumberForged { path, .. } => {
                Some(format!("`varve pv create {path} --yes -n` says what a new label destroys"))
            }
            Self::Behind { .. }
            | Self::Returned { .. }
            | Self::LabelWorn { .. }
            | Self::SlotDamaged { .. }
            | Self::TailBehind { .. }
            | Self::NoTail { .. } => None,
        }
    }
}

/// Whether a group may be used while disks are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// Not if they are not recorded as missing.
    Refuse,
    /// Yes; they are recorded as missing first, and what they say later is not believed.
    Accept,
}

/// Why a group could not be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The change is not possible.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Disks are missing.
    #[error("{group} is incomplete: {} missing", paths.join(", "))]
    Incomplete {
        /// The group.
        group: String,
        /// Where the missing disks were last seen.
        paths: Vec<String>,
    },
    /// The description has become too long for the metadata area of a disk.
    #[error("the description of {group} would be {length} bytes long; {path} takes {length_max}")]
    TextTooLong {
        /// The group.
        group: String,
        /// Bytes of the text.
        length: usize,
        /// Bytes that the disk takes.
        length_max: u64,
        /// The disk.
        path: String,
    },
    /// Disks failed; the group is not changed further before it is scanned again.
    #[error("writing the description of {group} failed: {}", failed_text(disks))]
    Disks {
        /// The group.
        group: String,
        /// Where they are, and how they failed.
        disks: Vec<(String, IoError)>,
    },
    /// OPEN2: an earlier change failed half way.
    #[error("an earlier change of {group} failed half way")]
    Broken {
        /// The group.
        group: String,
    },
    /// The description has a number on these disks that no group reaches, and that leaves too few (VERSION3).
    #[error("the description of {group} has the number {sequence} on {}, which no group reaches", paths.join(", "))]
    NumbersUsedUp {
        /// The group.
        group: String,
        /// The number.
        sequence: u64,
        /// Where the disks are.
        paths: Vec<String>,
    },
    /// The group has changed since the plan was made.
    #[error("{group} has changed since this was planned")]
    PlanOutdated {
        /// The group.
        group: String,
    },
}

impl CommitError {
    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            Self::Plan(error) => error.help(),
            Self::Incomplete { group, .. } => {
                format!(
                    "bring the disks back and `varve pv scan PATH`, or go on without: `varve vg reduce {group} \
                    --missing`"
                )
            }
            Self::TextTooLong { group, .. } => {
                format!(
                    "the group has too many volumes or fragments: `varve lv list {group}`, and remove some, or \
                    use a second group"
                )
            }
            Self::Disks { .. } | Self::Broken { .. } => {
                "look at the disks, then `varve pv scan`, which finds out whether the change counts".into()
            }
            Self::NumbersUsedUp { paths, .. } => {
                let paths = paths.join(" ");
                format!(
                    "no group changes so many times: detach {paths} and `varve pv scan`, and `varve pv create {paths} \
                    --yes` makes free what is not needed; if the group lies there only, copy its volumes to a new group"
                )
            }
            Self::PlanOutdated { .. } => "try again".into(),
        }
    }
}

fn failed_text(disks: &[(String, IoError)]) -> String {
    let texts: Vec<_> = disks.iter().map(|(path, error)| format!("{path}: {error}")).collect();
    texts.join(", ")
}
