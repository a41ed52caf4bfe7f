//! Disks that arrays may do without, and when spares are to take their places.
//!
//! Invariant LOSTDISKS1: a disk that is only missing is not replaced before the time for that has passed: it may be slow to appear.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;
use varve_block::Moment;

/// How long to wait before what was refused is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// Disks that arrays may do without.
pub(crate) struct LostDisks {
    /// For how long a disk may be missing.
    after: Duration,
    disks: RefCell<BTreeMap<Uuid, Lost>>,
}

/// One of them.
#[derive(Default)]
struct Lost {
    /// Whether an array has ejected what it has there.
    is_ejected: bool,
    /// Since when it is missing, if it is.
    missing_since: Option<Moment>,
    /// When what was refused is tried again.
    retry: Moment,
    /// Where it is, or was, and why no spare takes its place.
    refused: Option<(String, String)>,
}

impl LostDisks {
    pub(crate) fn new(after: Duration) -> Self {
        Self { after, disks: RefCell::default() }
    }

    /// For how long a disk may be missing before a spare replaces it, or jobs stop waiting for it.
    pub(crate) fn after(&self) -> Duration {
        self.after
    }

    /// An array goes on without what it has on a disk.
    pub(crate) fn note_ejection(&self, disk: Uuid) {
        self.disks.borrow_mut().entry(disk).or_default().is_ejected = true;
    }

    /// Where disks are that no spare replaces, and why.
    pub(crate) fn refusals(&self) -> Vec<(String, String)> {
        self.disks.borrow().values().filter_map(|lost| lost.refused.clone()).collect()
    }

    /// Whether an array has ejected what it has on a disk, and that was not made good.
    pub(crate) fn is_ejected(&self, disk: Uuid) -> bool {
        self.disks.borrow().get(&disk).is_some_and(|lost| lost.is_ejected)
    }

    /// `lost` are all disks with members of arrays that are missing (`true`), or were ejected. Those of which spares are to
    /// take the places now.
    pub(crate) fn due(&self, lost: &[(Uuid, bool)], now: Moment) -> Vec<Uuid> {
        let mut disks = self.disks.borrow_mut();
        disks.retain(|disk, _| lost.iter().any(|(lost, _)| lost == disk));
        let mut due = Vec::new();
        for (disk, is_missing) in lost {
            let known = disks.entry(*disk).or_default();
            known.missing_since = is_missing.then(|| known.missing_since.unwrap_or(now));
            let is_late = known.missing_since.is_none_or(|since| since.after(self.after) <= now); // LOSTDISKS1
            due.extend((is_late && known.retry <= now).then_some(*disk));
        }
        due
    }

    /// A spare has taken the place of a disk, or need not.
    pub(crate) fn remove(&self, disk: Uuid) {
        self.disks.borrow_mut().remove(&disk);
    }

    /// There is no spare that could take the place of a disk: that is no refusal.
    pub(crate) fn forget_refusal(&self, disk: Uuid) {
        self.disks.borrow_mut().entry(disk).or_default().refused = None;
    }

    /// No spare takes the place of a disk at `path`, for this reason, which is looked at again later. Returns whether that is new.
    pub(crate) fn refuse(&self, disk: Uuid, path: &str, reason: &str, now: Moment) -> bool {
        let (mut disks, refused) = (self.disks.borrow_mut(), Some((path.to_owned(), reason.to_owned())));
        let lost = disks.entry(disk).or_default();
        lost.retry = now.after(RETRY);
        std::mem::replace(&mut lost.refused, refused.clone()) != refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_missing_is_replaced_later_than_one_that_was_ejected() {
        let (gone, failed) = (Uuid::from_u128(2), Uuid::from_u128(3));
        let lost = LostDisks::new(Duration::from_secs(300));
        let at = |seconds: u64| Moment(seconds * 1_000_000_000);
        [gone, failed].into_iter().for_each(|disk| lost.note_ejection(disk));
        let both = [(gone, true), (failed, false)];
        assert_eq!(lost.due(&both, at(10)), [failed], "LOSTDISKS1");
        assert_eq!(lost.due(&both, at(309)), [failed], "LOSTDISKS1");
        assert_eq!(lost.due(&both, at(310)), [gone, failed]);
        assert!(
            lost.refuse(failed, "/d", "because", at(310)) && !lost.refuse(failed, "/d", "because", at(310))
        );
        assert_eq!(lost.due(&both, at(319)), [gone], "it is tried again later");
        assert_eq!(lost.due(&both, at(320)), [gone, failed]);
        assert!(lost.due(&[], at(321)).is_empty() && !lost.is_ejected(failed), "nothing lies there any more");
        assert!(lost.due(&both[..1], at(400)).is_empty(), "LOSTDISKS1: it is missing since now");
        lost.note_ejection(gone);
        assert_eq!(lost.due(&[(gone, false)], at(500)), [gone], "it is back, and was ejected");
        assert!(lost.due(&both[..1], at(700)).is_empty(), "LOSTDISKS1: it is missing again");
    }
}
