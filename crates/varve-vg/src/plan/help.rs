//! What a person does about a change that cannot be made.

use super::stores::SNAPSHOT_BLOCK;
use super::{PlanError, ScheduleError};

impl PlanError {
    /// What to do about it, with the command where there is one.
    pub fn help(&self) -> String {
        match self {
            Self::Name { .. } => "choose another name".into(),
            Self::VolumeNotFound { group, .. } => format!("`varve lv list {group}` shows its volumes"),
            Self::VolumeExists { group, volume, is_pool } => {
                let (noun, what) = (noun(*is_pool), if *is_pool { "pool" } else { "volume" });
                format!("choose another name, or give the {what} up: `varve {noun} remove {group}/{volume}`")
            }
            Self::VolumeHasStore { group, volume } => {
                format!(
                    "`varve snap list {group}/{volume}` shows them; `varve snap remove {group}/{volume}@SNAP` \
                    removes one"
                )
            }
            Self::SnapshotBlocks { group, volume, bytes } => help_blocks(group, volume, *bytes),
            Self::StoreNotFound { group, volume } => {
                format!("`varve snap create {group}/{volume}@SNAP` makes a snapshot and the store")
            }
            Self::Size { .. } => "give a size from one extent to 8 EiB, like 10G".into(),
            Self::ChecksumRoom { .. } => "make a larger volume, and copy what it holds".into(),
            Self::ShareTooSmall { .. } | Self::NoSpace { .. } => self.help_space(),
            Self::Direction { group, volume, direction, is_pool, .. } if *direction == "larger" => {
                format!("`varve {} extend {group}/{volume} --size +SIZE` adds to it", noun(*is_pool))
            }
            Self::Direction { group, volume, .. } => {
                format!("`varve lv extend {group}/{volume} --size SIZE` makes it larger")
            }
            Self::TooFewDisks { group, .. } => {
                format!("use fewer stripes, or add disks: `varve vg extend {group} PATH`")
            }
            Self::TooFewMembers { group, .. } => {
                format!("ask for less, or add disks: `varve vg extend {group} PATH`")
            }
            Self::Fragment { fits: Some(size), .. } => format!("--array-block-size {size} fits"),
            Self::Fragment { .. } => "choose other disks: --on PATH,…".into(),
            Self::Sectors { volume, is_pool, fits, .. } => {
                let (noun, other) = (noun(*is_pool), "name or add a disk with smaller sectors");
                match fits {
                    Some((order, size)) => format!(
                        "{other}, or give it larger blocks: \
                        `varve {noun} convert {volume} --type ddraid --order {order} --array-block-size {size}`"
                    ),
                    None => format!(
                        "{other}, or convert it, which takes such disks: `varve {noun} convert {volume} --type … --on PATH,…`"
                    ),
                }
            }
            Self::LogOnMember { .. } | Self::NoLogSpace { .. } => {
                "name another disk: --log PATH; `varve pv list` shows what is free".into()
            }
            Self::NoReplacement { group, .. } => format!("add a disk: `varve vg extend {group} PATH`"),
            Self::Layout(_) => "`varve lv create --help` shows the layouts".into(),
            Self::Backup { group, .. } => {
                format!(
                    "`varve vg history {group}` shows the versions; a backup fits the disks it was made with"
                )
            }
            Self::Invalid(_) => "mend what the message names".into(),
            Self::Granted { group, to, .. } => {
                format!("`varve lv remove {group}/{to}` lets go of it, and keeps what it holds")
            }
            Self::Conversion(error) => error.help(),
            Self::Schedule(error) => help_schedule(error),
            Self::Trash(error) => error.help(),
            Self::JobNotFound { .. } => "`varve job list` shows what goes on".into(),
            Self::JobsFull { .. } => "wait for one of them: `varve job list`; or name fewer snapshots".into(),
            _ => self.help_disks(),
        }
    }

    /// What to do about what is wrong with disks.
    fn help_disks(&self) -> String {
        match self {
            Self::VolumeDegraded { path, .. } => {
                format!(
                    "put a disk in its place: `varve pv replace {path}`; or bring it back and `varve pv scan PATH`"
                )
            }
            Self::DiskMissing { group, .. } => {
                format!("bring it back and `varve pv scan PATH`; `varve vg show {group}` shows the disks")
            }
            Self::Spare(path) => format!("`varve pv change {path} --spare no` lets volumes lie there"),
            Self::NoMember { group, .. } => format!("`varve vg show {group}` shows its disks"),
            Self::NotArray { group, path, volumes, is_pool, is_missing } => {
                let volume = volumes.first().map_or("LV", String::as_str);
                let remove = format!("`varve {} remove {group}/{volume}`", noun(*is_pool));
                match is_missing {
                    true => format!("bring the disk back and `varve pv scan PATH`, or give it up: {remove}"),
                    false => format!(
                        "`varve pv move {path}`; `varve array replace` replaces the member of one array"
                    ),
                }
            }
            Self::DiskNotFound { group, .. } => format!("`varve vg show {group}` shows its disks"),
            Self::DiskExists { group, .. } => format!("`varve vg show {group}` shows its disks"),
            Self::DiskTooSmall { .. } => {
                "a disk needs 1 MiB and one extent; use a larger disk, or a group with smaller extents".into()
            }
            Self::DiskBusy { .. } | Self::Moving { .. } | Self::NotMoving { .. } => self.help_move(),
            Self::NothingToMove { .. } | Self::NoPlace { .. } => self.help_move(),
            Self::DiskEndInUse { path, least, .. } => {
                format!(
                    "`varve pv resize {path} --size {least}B` is the least; `varve pv move {path}` empties it"
                )
            }
            Self::LastDisk { group, .. } => format!("`varve vg remove {group}` gives up the group"),
            Self::NothingMissing { group } => format!("`varve vg show {group}` shows its disks"),
            Self::GroupIncomplete { group, .. } => {
                format!(
                    "bring them back and `varve pv scan PATH`, or give them up: `varve vg reduce {group} --missing`"
                )
            }
            Self::VolumeIncomplete { group, .. } => {
                format!(
                    "bring the disk back and `varve pv scan PATH`, or give up what lies on it: `varve vg reduce \
                    {group} --missing --with-volumes`"
                )
            }
            _ => "`varve vg list` shows the groups, `varve pv list` the disks".into(),
        }
    }

    fn help_move(&self) -> String {
        match self {
            Self::DiskBusy { path, .. } => format!("`varve pv move {path}` moves it to other disks"),
            Self::NotMoving { .. } => "`varve job list` shows what is being moved".into(),
            Self::NothingToMove { group, path } => {
                format!("`varve vg reduce {group} {path}` takes it out of the group")
            }
            Self::NoPlace { group, .. } => format!(
                "`varve vg extend {group} PATH`: what is in stripes, or an array, and the log of an array need a disk of their own"
            ),
            _ => "wait for its job, or end it: `varve job list`, `varve job cancel ID`".into(),
        }
    }

    fn help_space(&self) -> String {
        match self {
            Self::NoSpace { group, .. } => format!("add a disk: `varve vg extend {group} PATH`"),
            _ => "ask for a larger share, or add a disk with `varve vg extend`".into(),
        }
    }
}

/// The noun of the commands about a volume of the group.
fn noun(is_pool: bool) -> &'static str {
    if is_pool { "pool" } else { "lv" }
}

fn help_blocks(group: &str, volume: &str, bytes: u64) -> String {
    let whole = bytes.next_multiple_of(SNAPSHOT_BLOCK);
    format!("`varve lv extend {group}/{volume} --size {whole}B` makes its blocks whole")
}

/// What to do about a schedule that is not possible.
fn help_schedule(error: &ScheduleError) -> String {
    match error {
        ScheduleError::Exists { group, name } => {
            format!("choose another name with --name, or `varve schedule remove {group}/{name}`")
        }
        ScheduleError::NotFound { group } => format!("`varve schedule list {group}` shows them"),
        ScheduleError::Full { group } => {
            format!("let schedules keep fewer: `varve schedule list {group}`, `varve schedule change`")
        }
    }
}
