//! Where the bytes of an array lie on its members: pure arithmetic.
//!
//! A mirror has every byte on every member. A ddraid array of order K has 2^K data members and one parity member: each block
//! is cut into 2^K fragments, fragment `i` is on member `i`, and the exclusive or of all of them on the last one. A member
//! of ddraid is a picture of the array at the scale of 1 to 2^K.
//!
//! Invariants:
//! - GEOMETRY1. Block `b` of a ddraid array is at byte `b * fragment_size` of the data of every member.
//! - GEOMETRY2. Whole blocks that follow each other are one run on every member.

use varve_block::Extent;
use varve_format::array::Kind;
use varve_format::text::{DDRAID_BLOCK_SIZES, DDRAID_ORDERS, MIRROR_COPIES};

/// How an array lays its bytes out over its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayLayout {
    /// Every byte on every member.
    Mirror {
        /// Members: 2 to 8.
        copies: usize,
    },
    /// Every block over all members, the last of which holds the parity.
    Ddraid {
        /// 2^order data members: 1 to 3.
        order: u32,
        /// Bytes of a block: a power of two from 4 KiB to 64 KiB.
        block_size: u64,
    },
}

impl ArrayLayout {
    /// The fewest and the most copies of a mirror.
    pub const COPIES: std::ops::RangeInclusive<usize> = MIRROR_COPIES;
    /// The orders of ddraid.
    pub const ORDERS: std::ops::RangeInclusive<u32> = DDRAID_ORDERS;
    /// The smallest and the largest block of ddraid, in bytes.
    pub const BLOCK_SIZES: std::ops::RangeInclusive<u64> = DDRAID_BLOCK_SIZES;

    /// What is wrong with it, if anything is.
    pub fn problem(self) -> Option<&'static str> {
        match self {
            Self::Mirror { copies } => {
                (!Self::COPIES.contains(&copies)).then_some("a mirror has 2 to 8 copies")
            }
            Self::Ddraid { order, .. } if !Self::ORDERS.contains(&order) => {
                Some("the order of a ddraid volume is 1, 2 or 3")
            }
            Self::Ddraid { block_size, .. } => (!block_size.is_power_of_two()
                || !Self::BLOCK_SIZES.contains(&block_size))
            .then_some("a block of a ddraid volume is a power of two from 4 KiB to 64 KiB"),
        }
    }

    /// How many members it has.
    pub fn members(self) -> usize {
        match self {
            Self::Mirror { copies } => copies,
            Self::Ddraid { order, .. } => (1 << order) + 1,
        }
    }

    /// How many bytes of the array a byte of each member holds.
    pub fn data_members(self) -> u64 {
        match self {
            Self::Mirror { .. } => 1,
            Self::Ddraid { order, .. } => 1 << order,
        }
    }

    /// How many members may be missing while everything can be read.
    pub fn tolerates(self) -> usize {
        match self {
            Self::Mirror { copies } => copies - 1,
            Self::Ddraid { .. } => 1,
        }
    }

    /// Bytes of the fragment of a block that is on one member; any number of bytes on a mirror.
    pub fn fragment_size(self) -> u64 {
        match self {
            Self::Mirror { .. } => 1,
            Self::Ddraid { order, block_size } => block_size >> order,
        }
    }

    /// Bytes of a block: what is written to all members as one. Any number of bytes on a mirror.
    pub fn block_size(self) -> u64 {
        match self {
            Self::Mirror { .. } => 1,
            Self::Ddraid { block_size, .. } => block_size,
        }
    }

    /// Where `extent`, whole blocks of the array, is in the data of every member (GEOMETRY1, GEOMETRY2).
    pub fn on_members(self, extent: Extent) -> Extent {
        assert!(extent.is_aligned(self.block_size()), "GEOMETRY2: whole blocks, not {extent:?}");
        Extent::new(extent.offset / self.data_members(), extent.length / self.data_members())
    }
}

/// A layout as a superblock has it: its kind, and bytes of a block.
pub(super) fn kind_of(layout: ArrayLayout) -> (Kind, u64) {
    match layout {
        ArrayLayout::Mirror { .. } => (Kind::Mirror, 1),
        ArrayLayout::Ddraid { block_size, .. } => (Kind::Ddraid, block_size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_cut_into_fragments_of_equal_size() {
        let mirror = ArrayLayout::Mirror { copies: 3 };
        assert_eq!((mirror.members(), mirror.data_members(), mirror.tolerates()), (3, 1, 2));
        assert_eq!(mirror.on_members(Extent::new(513, 7)), Extent::new(513, 7));
        for order in ArrayLayout::ORDERS {
            let layout = ArrayLayout::Ddraid { order, block_size: 4096 };
            let data = 1_u64 << order;
            assert_eq!((layout.members() as u64, layout.tolerates()), (data + 1, 1));
            assert_eq!(layout.fragment_size(), 4096 / data);
            let run = layout.on_members(Extent::new(3 * 4096, 5 * 4096));
            assert_eq!(run, Extent::new(3 * 4096 / data, 5 * 4096 / data), "GEOMETRY1, GEOMETRY2");
        }
    }

    #[test]
    fn layouts_that_cannot_be_are_named() {
        let sound = [ArrayLayout::Mirror { copies: 2 }, ArrayLayout::Ddraid { order: 3, block_size: 65_536 }];
        assert!(sound.iter().all(|layout| layout.problem().is_none()));
        let wrong = [
            ArrayLayout::Mirror { copies: 1 },
            ArrayLayout::Mirror { copies: 9 },
            ArrayLayout::Ddraid { order: 0, block_size: 4096 },
            ArrayLayout::Ddraid { order: 4, block_size: 4096 },
            ArrayLayout::Ddraid { order: 1, block_size: 2048 },
            ArrayLayout::Ddraid { order: 1, block_size: 12_288 },
        ];
        assert!(wrong.iter().all(|layout| layout.problem().is_some()));
    }
}
