//! Byte ranges and alignment: the only arithmetic on addresses that the engine does.

use std::fmt;

/// 1024 bytes.
pub const KIB: u64 = 1 << 10;
/// 1024 KiB.
pub const MIB: u64 = 1 << 20;
/// 1024 MiB.
pub const GIB: u64 = 1 << 30;

/// Rounds `value` down to a multiple of `unit`, a power of two.
pub const fn align_down(value: u64, unit: u64) -> u64 {
    assert!(unit.is_power_of_two());
    value & !(unit - 1)
}

/// Rounds `value` up to a multiple of `unit`, a power of two. Panics if the result does not fit.
pub const fn align_up(value: u64, unit: u64) -> u64 {
    assert!(unit.is_power_of_two());
    match value.checked_add(unit - 1) {
        Some(sum) => sum & !(unit - 1),
        None => panic!("aligned address does not fit in 64 bits"),
    }
}

/// Whether `value` is a multiple of `unit`, a power of two.
pub const fn is_aligned(value: u64, unit: u64) -> bool {
    assert!(unit.is_power_of_two());
    value & (unit - 1) == 0
}

/// A run of bytes on a device. Invariant: `offset + length` fits in 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

impl Extent {
    /// The `length` bytes from `offset` on. Panics if their end does not fit in 64 bits.
    pub const fn new(offset: u64, length: u64) -> Self {
        assert!(offset.checked_add(length).is_some(), "an extent ends beyond 64 bits");
        Self { offset, length }
    }

    /// Like [`Extent::new`], for values that come from outside.
    pub const fn checked(offset: u64, length: u64) -> Option<Self> {
        match offset.checked_add(length) {
            Some(_) => Some(Self { offset, length }),
            None => None,
        }
    }

    /// The bytes from `start` up to, not including, `end`.
    pub const fn between(start: u64, end: u64) -> Self {
        assert!(start <= end);
        Self { offset: start, length: end - start }
    }

    /// The first byte after the extent.
    pub const fn end(self) -> u64 {
        self.offset + self.length
    }

    /// Whether there is no byte in it.
    pub const fn is_empty(self) -> bool {
        self.length == 0
    }

    /// Whether every byte of `other` is in `self`.
    pub const fn contains(self, other: Extent) -> bool {
        self.offset <= other.offset && other.end() <= self.end()
    }

    /// Whether a byte is in both. An empty extent overlaps nothing.
    pub const fn overlaps(self, other: Extent) -> bool {
        self.offset < other.end() && other.offset < self.end() && self.length > 0 && other.length > 0
    }

    /// The bytes that are in both, if any.
    pub fn intersect(self, other: Extent) -> Option<Extent> {
        let start = self.offset.max(other.offset);
        let end = self.end().min(other.end());
        (start < end).then(|| Extent::between(start, end))
    }

    /// Whether both ends are multiples of `unit`, a power of two.
    pub const fn is_aligned(self, unit: u64) -> bool {
        is_aligned(self.offset | self.length, unit)
    }

    /// The smallest extent aligned to `unit` that contains `self`.
    pub const fn align_out(self, unit: u64) -> Extent {
        Extent::between(align_down(self.offset, unit), align_up(self.end(), unit))
    }

    /// The largest extent aligned to `unit` inside `self`; empty at its start if there is none.
    pub fn align_in(self, unit: u64) -> Extent {
        let (start, end) = (align_up(self.offset, unit), align_down(self.end(), unit));
        if start < end { Extent::between(start, end) } else { Extent::new(self.offset, 0) }
    }

    /// The parts before and from `length` bytes on.
    pub const fn split_at(self, length: u64) -> (Extent, Extent) {
        assert!(length <= self.length);
        (Extent::new(self.offset, length), Extent::between(self.offset + length, self.end()))
    }

    /// What is left of it without `holes`, which are in order.
    pub fn without(self, holes: &[Extent]) -> Vec<Extent> {
        assert!(holes.is_sorted(), "holes are in order");
        let (mut left, mut at) = (Vec::new(), self.offset);
        for hole in holes.iter().filter_map(|hole| hole.intersect(self)) {
            left.push(Extent::between(at, hole.offset.max(at)));
            at = hole.end().max(at);
        }
        left.push(Extent::between(at, self.end()));
        left.retain(|part| !part.is_empty());
        left
    }

    /// Cut at every multiple of `unit`: `(index of the unit, the part of self in it)`, in order.
    pub fn pieces(self, unit: u64) -> impl Iterator<Item = (u64, Extent)> {
        assert!(unit > 0);
        let mut at = self.offset;
        std::iter::from_fn(move || {
            if at >= self.end() {
                return None;
            }
            let index = at / unit;
            let end = self.end().min((index + 1).saturating_mul(unit));
            let piece = Extent::between(at, end);
            at = end;
            Some((index, piece))
        })
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{:#x}", self.offset, self.length)
    }
}

/// The bytes that are in any of `extents`: in order, neighbours joined, nothing empty.
pub fn joined(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable();
    let mut joined: Vec<Extent> = Vec::new();
    for extent in extents.into_iter().filter(|extent| !extent.is_empty()) {
        match joined.last_mut() {
            Some(last) if extent.offset <= last.end() => {
                *last = Extent::between(last.offset, last.end().max(extent.end()));
            }
            _ => joined.push(extent),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pairs: &[(u64, u64)]) -> Vec<Extent> {
        pairs.iter().map(|(offset, length)| Extent::new(*offset, *length)).collect()
    }

    #[test]
    fn joined_extents_are_in_order_and_do_not_touch() {
        let one = list(&[(0, 4), (10, 2), (20, 5)]);
        let two = list(&[(4, 2), (11, 4), (21, 1), (30, 1)]);
        assert_eq!(joined([one, two].concat()), list(&[(0, 6), (10, 5), (20, 5), (30, 1)]));
        assert!(joined(Vec::new()).is_empty() && joined(list(&[(7, 0)])).is_empty());
    }

    #[test]
    fn holes_are_cut_out_however_they_lie() {
        let extent = Extent::new(10, 10);
        assert_eq!(extent.without(&[]), [extent]);
        assert_eq!(extent.without(&list(&[(0, 12), (11, 2), (15, 1), (19, 5)])), list(&[(13, 2), (16, 3)]));
        assert!(extent.without(&list(&[(10, 10)])).is_empty());
    }

    #[test]
    fn pieces_cover_the_extent_once_and_in_order() {
        let extent = Extent::new(100, 1000);
        let pieces: Vec<_> = extent.pieces(256).collect();
        assert_eq!(pieces.first(), Some(&(0, Extent::new(100, 156))));
        assert_eq!(pieces.last(), Some(&(4, Extent::new(1024, 76))));
        assert_eq!(pieces.iter().map(|(_, piece)| piece.length).sum::<u64>(), 1000);
    }

    #[test]
    fn edges_of_the_address_space_do_not_overflow() {
        let last = Extent::new(u64::MAX - 10, 10);
        assert_eq!(last.end(), u64::MAX);
        assert_eq!(Extent::checked(u64::MAX, 1), None);
        assert_eq!(last.pieces(4096).map(|(_, piece)| piece.length).sum::<u64>(), 10);
        assert!(!last.overlaps(Extent::new(0, 10)));
    }

    #[test]
    fn alignment_inwards_of_a_small_extent_is_empty() {
        assert!(Extent::new(1, 4096).align_in(4096).is_empty());
        assert_eq!(Extent::new(1, 8192).align_in(4096), Extent::new(4096, 4096));
        assert_eq!(Extent::new(1, 4096).align_out(4096), Extent::new(0, 8192));
    }
}
