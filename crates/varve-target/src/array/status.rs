//! How an array does.

use super::regions::region_size_for;
use super::{Array, LogDiskStatus, MemberState, Uuid};
use varve_block::IoError;

/// How an array does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayStatus {
    /// Its members, in their places.
    pub members: Vec<MemberStatus>,
    /// Bytes of a region.
    pub region_size: u64,
    /// Number of regions.
    pub regions: u64,
    /// Regions in which members may differ, if the power failed now.
    pub dirty: u64,
    /// Of these, regions in which they may differ since a crash or a failed write, and are being made equal.
    pub unsynced: u64,
    /// Regions that were ever written.
    pub written: u64,
    /// Whether regions that are not in sync cannot be read: a data member is missing (`unsynced` says how many).
    pub is_content_lost: bool,
    /// Those of them that wait for the member, or for a person, and not only until they are made equal.
    pub lost_regions: Vec<u64>,
    /// Why nothing can be read or written any more, if too many members have failed.
    pub failure: Option<IoError>,
    /// Requests that were refused because what is there cannot be known.
    pub refused: u64,
    /// Reads and scrubbed blocks whose parity did not fit the data, or whose copies differed.
    pub mismatches: u64,
    /// Bytes of the array that are made equal, or that a member is caught up in, a second; none if that rests or has only begun.
    pub rate: Option<u64>,
    /// Records of the log since the array was opened.
    pub log_records: u64,
    /// The disk that is to have the log, if it is not with the members.
    pub log_disk: Option<LogDiskStatus>,
}

/// How a member of an array does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Which one.
    pub id: Uuid,
    /// What it is worth.
    pub state: MemberState,
    /// Whether it is away because a request on it took too long.
    pub is_slow: bool,
    /// Regions that it lacks.
    pub lacks: u64,
    /// Requests that failed since the array was opened.
    pub errors: u64,
    /// Blocks that it could not read, or held wrong, and that were written again since then.
    pub healed: u64,
    /// Blocks of which it held something else than what was written, by their checksums.
    pub wrong: u64,
}

impl ArrayStatus {
    /// Bytes of the array in which members are to be made equal or caught up.
    pub fn left(&self) -> u64 {
        let catching_up = self.members.iter().filter(|member| member.state == MemberState::CatchingUp);
        (self.unsynced + catching_up.map(|member| member.lacks).sum::<u64>()) * self.region_size
    }

    /// Whether there are regions that cannot be read now and come back by themselves: a data member has returned, and is caught up.
    pub fn has_returning_regions(&self) -> bool {
        self.failure.is_none() && self.is_content_lost && (self.lost_regions.len() as u64) < self.unsynced
    }

    /// Whether regions become larger in an array of `size` bytes, so that those which cannot be read now take others with them.
    pub fn widens_lost_regions(&self, size: u64) -> bool {
        self.is_content_lost && region_size_for(size) > self.region_size
    }

    /// Whether all members are in sync, and nothing is to be made equal.
    pub fn is_whole(&self) -> bool {
        self.failure.is_none()
            && self.unsynced == 0
            && self.members.iter().all(|member| member.state == MemberState::InSync)
    }
}

impl Array {
    /// How the array does now.
    pub fn status(&self) -> ArrayStatus {
        let unsynced = self.regions.unsynced().count();
        ArrayStatus {
            members: (0..self.members.count()).map(|place| self.member_status(place)).collect(),
            region_size: self.regions.size(),
            regions: self.regions.count(),
            dirty: self.regions.dirty(),
            unsynced,
            written: self.regions.written().count(),
            is_content_lost: unsynced > 0 && self.lacks_data_member(),
            lost_regions: self.lost_regions(),
            failure: self.latch.failure(),
            refused: self.counters.refused.get(),
            mismatches: self.counters.mismatches.get(),
            rate: self.pace.rate(self.options.clock.now()),
            log_records: self.log.records(),
            log_disk: self.log_disk.status(self.log.is_on_log_disk() || self.has_closed_log()),
        }
    }

    /// Whether the log disk had the log when the array was closed: that its members have it now is no trouble.
    fn has_closed_log(&self) -> bool {
        self.is_closed.get() && self.log_disk.usable().is_some()
    }

    fn member_status(&self, place: usize) -> MemberStatus {
        let (entry, counters) = (self.members.entries()[place], self.members.counters(place));
        MemberStatus {
            id: entry.id,
            state: entry.state,
            is_slow: self.members.was_slow(place),
            lacks: self.members.lacks(place).count(),
            errors: counters.errors.get(),
            healed: counters.healed.get(),
            wrong: counters.wrong.get(),
        }
    }

    /// Whether it makes members equal or catches one up: not what waits for a member.
    pub fn has_work(&self) -> bool {
        let is_unequal = || !self.lacks_data_member() && !self.regions.unsynced().is_empty();
        self.latch.failure().is_none()
            && (!self.members.in_state(MemberState::CatchingUp).is_empty() || is_unequal())
    }

    /// How often something has changed that [`Array::status`] shows.
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Waits until [`Array::changes`] is not `seen` any more.
    pub async fn changed(&self, seen: u64) {
        self.changed.until(|| self.changes.get() != seen).await;
    }
}
