//! A device dealt out over members in stripes.
//!
//! Invariants:
//! - STRIPED1. Byte `at` is on member `at / stripe_size % members`, in its row `at / stripe_size / members`.
//! - STRIPED2. Every row is inside every member.

use crate::fan_out::{cut, fan_out, flush_all};
use crate::linear::common_shape;
use varve_block::{
    BlockDevice, Checked, Completion, Device, Extent, Io, MapAnswer, MapFuture, MapIntent, MapPiece, Shape,
    is_aligned,
};

/// How many stripes one answer about places names at most: it may cover less than was asked.
const MAP_STRIPES: usize = 1024;

/// Members in stripes.
pub struct Striped {
    members: Vec<(Device, u64)>,
    geometry: Geometry,
    shape: Shape,
}

/// How stripes are dealt out.
#[derive(Clone, Copy, Debug)]
struct Geometry {
    stripe_size: u64,
    members: u64,
}

impl Geometry {
    /// The member on which byte `at` is, the offset in that member's part, the bytes left in the stripe.
    fn locate(self, at: u64) -> (usize, u64, u64) {
        let (stripe, inside) = (at / self.stripe_size, at % self.stripe_size);
        let (row, member) = (stripe / self.members, stripe % self.members);
        let member = usize::try_from(member).expect("members are counted in memory");
        (member, row * self.stripe_size + inside, self.stripe_size - inside)
    }

    /// How many bytes of `member`'s part lie before byte `at`.
    fn before(self, member: u64, at: u64) -> u64 {
        let row_size = self.stripe_size * self.members;
        let in_row = (at % row_size).saturating_sub(member * self.stripe_size);
        at / row_size * self.stripe_size + in_row.min(self.stripe_size)
    }

    /// The run of `member`'s part that holds its bytes of `extent`: stripes of one member that follow each other
    /// are neighbours on it.
    fn run(self, member: u64, extent: Extent) -> Extent {
        Extent::between(self.before(member, extent.offset), self.before(member, extent.end()))
    }
}

impl Striped {
    /// Deals stripes of `stripe_size` bytes out over `members`, each a device and the offset in it of the first
    /// of its `member_length` bytes. `stripe_size` is a power of two and a multiple of the members' block sizes,
    /// `member_length` a multiple of `stripe_size`.
    pub fn new(members: Vec<(Device, u64)>, stripe_size: u64, member_length: u64) -> Self {
        assert!(
            stripe_size.is_power_of_two() && member_length.is_multiple_of(stripe_size),
            "STRIPED2: whole rows"
        );
        for (device, offset) in &members {
            let inside = Extent::checked(*offset, member_length)
                .is_some_and(|extent| device.shape().extent().contains(extent));
            assert!(
                inside,
                "STRIPED2: {member_length} bytes from {offset} on lie beyond {:?}",
                device.shape()
            );
        }
        let count = members.len() as u64;
        let shape = common_shape(member_length * count, members.iter().map(|(device, _)| device.shape()));
        let block = u64::from(shape.block_size);
        let aligned = |(_, offset): &(Device, u64)| is_aligned(*offset | stripe_size, block);
        assert!(members.iter().all(aligned), "stripes are made of whole blocks of {block} bytes");
        Self { members, geometry: Geometry { stripe_size, members: count }, shape }
    }

    /// Where byte `at` is: the index of its member, the offset in that member's device, and how many bytes from
    /// there on are in the same stripe.
    pub fn locate(&self, at: u64) -> (usize, u64, u64) {
        assert!(at < self.shape.size, "DEVICE1: {at} in a striped device of {} bytes", self.shape.size);
        let (member, offset, run) = self.geometry.locate(at);
        (member, self.members[member].1 + offset, run)
    }

    /// One request without data for each member.
    fn split_bare(&self, extent: Extent, make: impl Fn(Extent) -> Io) -> Completion<'_> {
        let pieces = self.members.iter().zip(0..).filter_map(|((device, start), member)| {
            let run = self.geometry.run(member, extent);
            (!run.is_empty()).then(|| (device, make(Extent::new(start + run.offset, run.length))))
        });
        fan_out(pieces)
    }
}

impl BlockDevice for Striped {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Flush => flush_all(self.members.iter().map(|(device, _)| device)),
            Io::Zero { extent, options } => self.split_bare(extent, |extent| Io::Zero { extent, options }),
            Io::Discard { extent } => self.split_bare(extent, |extent| Io::Discard { extent }),
            io => cut(io, |at| {
                let (member, offset, run) = self.locate(at);
                (&self.members[member].0, offset, run)
            }),
        }
    }

    fn map(&self, extent: Extent, _intent: MapIntent) -> MapFuture<'_> {
        let mut answer = MapAnswer::default();
        for (_, piece) in extent.pieces(self.geometry.stripe_size).take(MAP_STRIPES) {
            let (member, offset, _) = self.locate(piece.offset);
            answer.push(MapPiece::on(&self.members[member].0, offset, piece.length));
        }
        answer.ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ZeroTarget;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn striped(members: usize, stripe_size: u64, rows: u64) -> Striped {
        let member = |index: usize| {
            let offset = index as u64 * 512;
            (Device::new(ZeroTarget::new(offset + rows * stripe_size, 512)), offset)
        };
        Striped::new((0..members).map(member).collect(), stripe_size, rows * stripe_size)
    }

    proptest! {
        #[test]
        fn every_block_lies_in_exactly_one_place(members in 1_usize..6, shift in 0_u32..3, rows in 1_u64..5) {
            let stripe_size = 512 << shift;
            let striped = striped(members, stripe_size, rows);
            let mut seen = BTreeSet::new();
            for at in (0..striped.shape().size).step_by(512) {
                let (member, offset, run) = striped.locate(at);
                prop_assert_eq!(member as u64, at / stripe_size % members as u64, "STRIPED1");
                prop_assert!(offset + run <= striped.members[member].0.shape().size, "STRIPED2");
                prop_assert_eq!((at + run) % stripe_size, 0);
                prop_assert!(seen.insert((member, offset)), "{at} shares its place");
            }
        }

        #[test]
        fn runs_hold_the_same_blocks_as_the_pieces(
            members in 1_usize..6, shift in 0_u32..3, ends in (0_u64..200, 1_u64..200)
        ) {
            let geometry = Geometry { stripe_size: 512 << shift, members: members as u64 };
            let extent = Extent::new(ends.0 * 512, ends.1 * 512);
            let place = |at: u64| { let (member, offset, _) = geometry.locate(at); (member, offset) };
            let wanted: BTreeSet<_> = (extent.offset..extent.end()).step_by(512).map(place).collect();
            let mut found = BTreeSet::new();
            for member in 0..members {
                let run = geometry.run(member as u64, extent);
                found.extend((run.offset..run.end()).step_by(512).map(|offset| (member, offset)));
            }
            prop_assert_eq!(wanted, found);
        }
    }

    #[test]
    #[should_panic(expected = "STRIPED2")]
    fn a_member_that_is_too_short_is_refused() {
        let _ = Striped::new(vec![(Device::new(ZeroTarget::new(1024, 512)), 0)], 512, 2048);
    }
}
