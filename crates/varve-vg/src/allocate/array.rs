//! Which free extents the members of an array get: each on disks of its own.
//!
//! Invariants:
//! - ALLOCATEARRAY1. A disk serves one member only. A member keeps to the disks that it has as long as they have room.
//! - ALLOCATEARRAY2. If there are as many disks as members on each of which a new member fits, the array fits.

use super::{FreeMap, Shortage};
use crate::model::{Area, PvName, Segment};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// What each member of an array is to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberNeed {
    /// Extents of data.
    pub rows: u64,
    /// Extents of metadata, in one run; none if the members have theirs.
    pub metadata: u64,
}

/// What the members of an array got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayAreas {
    /// The metadata areas of new members.
    pub metadata: Vec<Area>,
    /// An area for each member in each of them.
    pub segments: Vec<Segment>,
}

impl FreeMap {
    /// Takes what `need` says for each of `members`, which have these areas already, in order.
    pub fn take_array(&mut self, need: MemberNeed, members: &[Vec<Area>]) -> Result<ArrayAreas, Shortage> {
        assert!(need.rows > 0 && members.len() >= 2, "an array grows by whole rows");
        let disks = self.assign(need, members).ok_or_else(|| self.shortage_of_members(need))?;
        let before = self.total();
        let mut taken = ArrayAreas { metadata: Vec::new(), segments: Vec::new() };
        let mut data = Vec::with_capacity(members.len());
        for (own, disks) in members.iter().zip(&disks) {
            let (metadata, areas) = self.take_member(need, own.last().copied(), disks);
            taken.metadata.extend(metadata);
            data.push(areas);
        }
        taken.segments = side_by_side(data);
        assert_eq!(self.total() + (need.rows + need.metadata) * members.len() as u64, before, "ALLOCATE2");
        self.assert_consistent();
        Ok(taken)
    }

    /// Takes what `need` says for one member, on the emptiest of `disks`: on as few as hold it.
    pub fn take_replacement(
        &mut self,
        need: MemberNeed,
        disks: &[PvName],
    ) -> Result<(Option<Area>, Vec<Area>), Shortage> {
        let mut usable = self.clone().on_disks(disks).disks();
        usable.sort_by_key(|(pv, free)| (Reverse(*free), *pv));
        let first = usable.iter().position(|(pv, _)| self.best_fit(need.metadata, Some(&[*pv])).is_some());
        let (mut chosen, mut lacking) = (Vec::new(), need.rows + need.metadata);
        if let Some(first) = first {
            usable[..=first].rotate_right(1); // It holds the metadata.
            for (pv, free) in &usable {
                if lacking > 0 {
                    chosen.push(*pv);
                    lacking = lacking.saturating_sub(*free);
                }
            }
        }
        if lacking > 0 {
            return Err(Shortage {
                free: usable.iter().map(|(_, free)| free).sum(),
                disks: usable.len() as u64,
            });
        }
        let before = self.total();
        let taken = self.take_member(need, None, &chosen);
        assert_eq!(self.total() + need.rows + need.metadata, before, "ALLOCATE2");
        self.assert_consistent();
        Ok(taken)
    }

    /// The metadata and the data of a member on `disks`, which have room for both; behind `last` if that is possible.
    fn take_member(
        &mut self,
        need: MemberNeed,
        mut last: Option<Area>,
        disks: &[PvName],
    ) -> (Option<Area>, Vec<Area>) {
        let mut metadata = None;
        if need.metadata > 0 {
            let run =
                self.best_fit(need.metadata + need.rows, Some(disks)).or_else(|| self.largest(Some(disks)));
            let run = run.expect("ALLOCATEARRAY1: the first disk of a new member holds its metadata");
            metadata = Some(self.take_front(run, need.metadata));
            last = metadata;
        }
        match need.rows {
            0 => (metadata, Vec::new()),
            rows => (metadata, self.take_runs(rows, last, Some(disks))),
        }
    }

    /// The most extents of data for each of `members` that fit, with `metadata` extents of metadata.
    pub fn rows_max(&self, metadata: u64, members: &[Vec<Area>]) -> u64 {
        let (mut fits, mut too_many) = (0, self.total() + 1);
        while too_many - fits > 1 {
            let rows = fits.midpoint(too_many);
            let fit = self.assign(MemberNeed { rows, metadata }, members).is_some();
            *(if fit { &mut fits } else { &mut too_many }) = rows;
        }
        fits
    }

    /// The disks of each member, its own and new ones: the emptiest disk goes to the member that lacks most. To find out whether
    /// small disks can be joined so that all members fit is a search through all combinations; this is not one.
    fn assign(&self, need: MemberNeed, members: &[Vec<Area>]) -> Option<Vec<Vec<PvName>>> {
        let own = |areas: &Vec<Area>| areas.iter().map(|area| area.pv).collect::<BTreeSet<_>>();
        let mut assigned: Vec<Vec<PvName>> =
            members.iter().map(|areas| own(areas).into_iter().collect()).collect();
        let mut others = self.disks();
        let mut lacking = vec![need.rows + need.metadata; members.len()];
        others.retain(|(pv, free)| match assigned.iter().position(|disks| disks.contains(pv)) {
            Some(member) => {
                lacking[member] = lacking[member].saturating_sub(*free);
                false
            }
            None => true,
        });
        others.sort_by_key(|(pv, free)| (Reverse(*free), *pv));
        for (pv, free) in others {
            let holds_metadata = self.best_fit(need.metadata, Some(&[pv])).is_some();
            let may_have =
                |member: &usize| lacking[*member] > 0 && (holds_metadata || !assigned[*member].is_empty());
            let most =
                (0..members.len()).filter(may_have).max_by_key(|member| (lacking[*member], Reverse(*member)));
            if let Some(member) = most {
                assigned[member].push(pv);
                lacking[member] = lacking[member].saturating_sub(free);
            }
        }
        lacking.iter().all(|lacking| *lacking == 0).then_some(assigned)
    }

    /// How many disks have room for a member.
    fn shortage_of_members(&self, need: MemberNeed) -> Shortage {
        let fits = |(pv, free): &(PvName, u64)| {
            *free >= need.rows + need.metadata && self.best_fit(need.metadata, Some(&[*pv])).is_some()
        };
        let disks = self.disks().iter().filter(|disk| fits(disk)).count();
        Shortage { free: self.total(), disks: disks as u64 }
    }
}

/// The areas of all members, equally many extents each, cut so that they are segments.
pub(crate) fn side_by_side(mut members: Vec<Vec<Area>>) -> Vec<Segment> {
    members.iter_mut().for_each(|areas| areas.reverse());
    let mut segments = Vec::new();
    while let Some(count) = members.iter().map(|areas| areas.last().map_or(0, |area| area.count)).min()
        && count > 0
    {
        let cut = |areas: &mut Vec<Area>| {
            let area = areas.pop().expect("its count is not 0");
            if area.count > count {
                areas.push(Area { start: area.start + count, count: area.count - count, ..area });
            }
            Area { count, ..area }
        };
        segments.push(Segment { areas: members.iter_mut().map(cut).collect() });
    }
    assert!(members.iter().all(Vec::is_empty), "ALLOCATE2: all members got equally many extents");
    segments
}
