//! A change of some entries of a leaf, made up before anything is changed.

use std::ops::Range;
use varve_format::pdata::node::{Key, Value};

/// A change of some entries of a leaf: those in `range` make way for `entries`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    /// Which of the entries go.
    pub range: Range<usize>,
    /// What comes in their place.
    pub entries: Vec<(Key, Value)>,
}

impl Splice {
    /// What makes `new` of the entries `old` of a leaf. What is the same at both ends stays: a leaf that becomes too long
    /// is then cut where it has grown.
    pub(super) fn of(old: &[(Key, Value)], mut new: Vec<(Key, Value)>) -> Splice {
        let before = old.iter().zip(&new).take_while(|(one, two)| one == two).count();
        let rest = old[before..].iter().rev().zip(new[before..].iter().rev());
        let behind = rest.take_while(|(one, two)| one == two).count();
        assert!(before + behind <= old.len().min(new.len()), "what stays is in both");
        new.truncate(new.len() - behind);
        new.drain(..before);
        Splice { range: before..old.len() - behind, entries: new }
    }

    /// What sets the value of `key` in a leaf of these entries.
    pub(super) fn put(entries: &[(Key, Value)], key: Key, value: Value) -> Splice {
        let range = match entries.binary_search_by_key(&key, |entry| entry.0) {
            Ok(found) => found..found + 1,
            Err(at) => at..at,
        };
        Splice { range, entries: vec![(key, value)] }
    }

    /// What removes `key`, if it is there, from a leaf of these entries.
    pub(super) fn remove(entries: &[(Key, Value)], key: Key) -> Option<Splice> {
        let found = entries.binary_search_by_key(&key, |entry| entry.0).ok()?;
        Some(Splice { range: found..found + 1, entries: Vec::new() })
    }

    /// How many entries a leaf has more then.
    pub(super) fn added(&self) -> usize {
        self.entries.len().saturating_sub(self.range.len())
    }

    /// Whether a leaf has fewer entries then.
    pub(super) fn shrinks(&self) -> bool {
        self.entries.len() < self.range.len()
    }

    /// Whether `entries` with this change are in order (NODE2).
    pub(super) fn keeps_order(&self, entries: &[(Key, Value)]) -> bool {
        assert!(self.range.start <= self.range.end && self.range.end <= entries.len(), "it is of this leaf");
        let before = self.range.start.checked_sub(1).map(|index| entries[index].0);
        let behind = entries.get(self.range.end).map(|entry| entry.0);
        let keys = before.into_iter().chain(self.entries.iter().map(|entry| entry.0)).chain(behind);
        keys.is_sorted_by(|one, two| one < two)
    }
}
