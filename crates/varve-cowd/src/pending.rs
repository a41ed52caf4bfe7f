//! Clusters whose place was answered, or that were freed, since the last flush.

use std::collections::BTreeMap;

/// Where a cluster is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// At this byte of the image's file.
    At(u64),
    /// Nowhere: it is zeros.
    Zero,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    place: Place,
    /// The place was taken since the last flush: nothing leads to it yet.
    is_new: bool,
    /// The cluster had been made zeros before it got its place.
    was_zero: bool,
}

/// The changes, by the first byte of the cluster on the disk.
#[derive(Default)]
pub(crate) struct Pending {
    changes: BTreeMap<u64, Change>,
    /// Places that nothing leads to, and that are free after the next flush (COWD2).
    pending_free: Vec<u64>,
    /// Places of an earlier connection, by cluster, until it is known which of them hold.
    set_aside: BTreeMap<u64, u64>,
}

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.pending_free.is_empty()
    }

    pub(crate) fn get(&self, cluster: u64) -> Option<Place> {
        self.changes.get(&cluster).map(|change| change.place)
    }

    /// The first cluster behind `cluster` that has changed.
    pub(crate) fn next_after(&self, cluster: u64) -> Option<u64> {
        self.changes.range(cluster + 1..).next().map(|(at, _)| *at)
    }

    /// The cluster gets a place that was taken for it.
    pub(crate) fn take(&mut self, cluster: u64, place: u64) {
        let was_zero = self.get(cluster) == Some(Place::Zero);
        self.set(cluster, Change { place: Place::At(place), is_new: true, was_zero });
    }

    /// All of the cluster is in the place that it had.
    pub(crate) fn complete(&mut self, cluster: u64, place: u64) {
        self.set(cluster, Change { place: Place::At(place), is_new: false, was_zero: false });
    }

    /// The cluster is zeros.
    pub(crate) fn zero(&mut self, cluster: u64) {
        self.set(cluster, Change { place: Place::Zero, is_new: false, was_zero: true });
    }

    fn set(&mut self, cluster: u64, change: Change) {
        if let Some(Change { place: Place::At(place), is_new: true, .. }) =
            self.changes.insert(cluster, change)
        {
            self.pending_free.push(place);
        }
    }

    /// What the place of the cluster should have had copied was not: the cluster is as it was before.
    pub(crate) fn failed(&mut self, cluster: u64) {
        let Some(Change { place: Place::At(place), is_new: true, was_zero }) =
            self.changes.get(&cluster).copied()
        else {
            return;
        };
        self.pending_free.push(place);
        self.changes.remove(&cluster);
        if was_zero {
            self.zero(cluster);
        }
    }

    /// A connection has ended; what it left holds only if it is reported again.
    pub(crate) fn set_aside(&mut self) {
        for (cluster, change) in std::mem::take(&mut self.changes) {
            if let Change { place: Place::At(place), is_new: true, .. } = change {
                self.set_aside.insert(cluster, place);
            }
        }
    }

    /// Whether this place was the cluster's in an earlier connection: then it is so again.
    pub(crate) fn hold_again(&mut self, cluster: u64, place: u64) -> bool {
        if self.get(cluster) == Some(Place::At(place)) {
            return true;
        }
        if self.set_aside.get(&cluster) != Some(&place) {
            return false;
        }
        self.set_aside.remove(&cluster);
        self.take(cluster, place);
        true
    }

    /// All that holds was reported.
    pub(crate) fn forget_set_aside(&mut self) {
        self.pending_free.extend(std::mem::take(&mut self.set_aside).into_values());
    }

    /// The changes, with those that follow each other on the disk and in the file as one: first byte, bytes, place.
    pub(crate) fn runs(&self, cluster_size: u64) -> Vec<(u64, u64, Place)> {
        let mut runs: Vec<(u64, u64, Place)> = Vec::new();
        for (&at, change) in &self.changes {
            match runs.last_mut() {
                Some((start, length, place))
                    if *start + *length == at && follows(*place, *length, change.place) =>
                {
                    *length += cluster_size;
                }
                _ => runs.push((at, cluster_size, change.place)),
            }
        }
        runs
    }

    /// The image leads to all places; those that were freed are returned.
    pub(crate) fn flushed(&mut self) -> Vec<u64> {
        assert!(self.set_aside.is_empty(), "COWD2: what holds of an earlier connection is known");
        self.changes.clear();
        std::mem::take(&mut self.pending_free)
    }
}

fn follows(first: Place, length: u64, next: Place) -> bool {
    match (first, next) {
        (Place::At(first), Place::At(next)) => first + length == next,
        (first, next) => first == next,
    }
}
