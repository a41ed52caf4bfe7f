//! Work on a region that is under way: members are made equal there, one is caught up, or what is lost is verified.
//!
//! It takes long, and neither requests nor a growth of the array wait for its end. Where one of them has changed what the region is, or
//! what the work was to bring about, the work has been done for nothing (RESYNC4, RESYNC5).

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};
use varve_block::Extent;

/// Work on one region.
pub(in crate::array) struct RegionWork {
    region: u64,
    extent: Extent,
    counts: Cell<bool>,
}

impl RegionWork {
    /// The region that is worked on. It is another one, or none, if the work does not count.
    pub(in crate::array) fn region(&self) -> u64 {
        self.region
    }

    /// Its bytes when the work began.
    pub(in crate::array) fn extent(&self) -> Extent {
        self.extent
    }

    /// Whether what was done is valid when it ends.
    pub(in crate::array) fn counts(&self) -> bool {
        self.counts.get()
    }
}

/// All that is under way.
#[derive(Default)]
pub(in crate::array) struct RegionWorks(RefCell<Vec<Weak<RegionWork>>>);

impl RegionWorks {
    /// Work on `region` begins, which has these bytes.
    pub(in crate::array) fn begin(&self, region: u64, extent: Extent) -> Rc<RegionWork> {
        assert!(!extent.is_empty(), "RESYNC5: region {region} has no bytes");
        let work = Rc::new(RegionWork { region, extent, counts: Cell::new(true) });
        let mut works = self.0.borrow_mut();
        works.retain(|work| work.strong_count() > 0);
        works.push(Rc::downgrade(&work));
        work
    }

    /// A change of `regions` has failed on some members (RESYNC4).
    pub(in crate::array) fn disturb(&self, regions: &Range<u64>) {
        assert!(!regions.is_empty(), "RESYNC4: a change is of some region");
        self.end_where(|work| regions.contains(&work.region));
    }

    /// Regions are others from now on: of these bytes, if a region of the number is there (RESYNC5).
    pub(in crate::array) fn resize(&self, extent_of: impl Fn(u64) -> Option<Extent>) {
        self.end_where(|work| extent_of(work.region) != Some(work.extent));
        debug_assert!(
            self.0
                .borrow()
                .iter()
                .filter_map(Weak::upgrade)
                .all(|work| { !work.counts.get() || extent_of(work.region) == Some(work.extent) }),
            "RESYNC5"
        );
    }

    fn end_where(&self, is_for_nothing: impl Fn(&RegionWork) -> bool) {
        let works = self.0.borrow();
        let works = works.iter().filter_map(Weak::upgrade).filter(|work| is_for_nothing(work));
        works.for_each(|work| work.counts.set(false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_block::MIB;

    #[test]
    fn work_counts_while_its_region_keeps_its_bytes_and_no_change_of_it_fails() {
        let works = RegionWorks::default();
        let extent = |size: u64| move |region: u64| (region < 4).then(|| Extent::new(region * size, size));
        let begin = |region| works.begin(region, Extent::new(region * MIB, MIB));
        let [first, second, last] = [0, 1, 3].map(begin);
        works.resize(extent(MIB));
        works.disturb(&(1..3));
        assert_eq!([&first, &second, &last].map(|work| work.counts()), [true, false, true], "RESYNC4");
        let again = begin(1);
        assert!(again.counts(), "it is done again");
        works.resize(|region| extent(MIB)(region).filter(|_| region < 3));
        assert_eq!([&first, &again, &last].map(|work| work.counts()), [true, true, false], "RESYNC5");
        works.resize(extent(2 * MIB));
        assert_eq!([&first, &again].map(|work| work.counts()), [false; 2], "RESYNC5");
        drop((first, second, last, again));
        begin(0);
        assert_eq!(works.0.borrow().len(), 1, "what has ended is forgotten");
    }
}
