//! A device made of runs of other devices, one after the other.
//!
//! Invariants:
//! - LINEAR1. Segments follow each other without a gap from 0 to the size, and none is empty.
//! - LINEAR2. Every byte of a segment is inside its device.

use crate::fan_out::{cut, flush_all};
use varve_block::{
    Access, BlockDevice, Checked, Completion, Device, Extent, Io, MapAnswer, MapFuture, MapIntent, MapPiece,
    Shape, is_aligned,
};

/// How many segments one answer about places names at most: it may cover less than was asked.
const SEGMENTS_MAX: usize = 1024;

/// Runs of devices in a row.
pub struct Linear {
    segments: Vec<Segment>,
    shape: Shape,
}

struct Segment {
    /// First byte in the linear device.
    start: u64,
    length: u64,
    device: Device,
    /// First byte in `device`.
    offset: u64,
}

impl Linear {
    /// Joins `segments`, each a length in bytes, a device, and the offset in it of the segment's first byte.
    /// Lengths and offsets are multiples of the largest block size among the devices.
    pub fn new(segments: Vec<(u64, Device, u64)>) -> Self {
        let mut start = 0;
        let mut placed = Vec::with_capacity(segments.len());
        for (length, device, offset) in segments {
            assert!(length > 0, "LINEAR1: an empty segment at {start}");
            let inside = Extent::checked(offset, length)
                .is_some_and(|extent| device.shape().extent().contains(extent));
            assert!(inside, "LINEAR2: {length} bytes from {offset} on lie beyond {:?}", device.shape());
            placed.push(Segment { start, length, device, offset });
            start += length;
        }
        let shape = common_shape(start, placed.iter().map(|segment| segment.device.shape()));
        let block = u64::from(shape.block_size);
        let aligned = |segment: &Segment| is_aligned(segment.length | segment.offset, block);
        assert!(placed.iter().all(aligned), "segments are made of whole blocks of {block} bytes");
        Self { segments: placed, shape }
    }

    /// Where byte `at` is: the index of its segment, the offset in that segment's device, and how many bytes from
    /// there on are in the same segment.
    pub fn locate(&self, at: u64) -> (usize, u64, u64) {
        assert!(at < self.shape.size, "DEVICE1: {at} in a linear device of {} bytes", self.shape.size);
        let index = self.segments.partition_point(|segment| segment.start <= at) - 1;
        let segment = &self.segments[index];
        let inside = at - segment.start;
        (index, segment.offset + inside, segment.length - inside)
    }
}

/// The shape of a device of `size` bytes all of which lie on devices of these shapes.
pub(crate) fn common_shape(size: u64, children: impl IntoIterator<Item = Shape>) -> Shape {
    let mut common: Option<Shape> = None;
    for child in children {
        let so_far = common.unwrap_or(Shape { size, ..child });
        let read_only = so_far.access == Access::ReadOnly || child.access == Access::ReadOnly;
        common = Some(Shape {
            size,
            block_size: so_far.block_size.max(child.block_size),
            optimal_size: so_far.optimal_size.max(child.optimal_size),
            access: if read_only { Access::ReadOnly } else { Access::ReadWrite },
            discard: so_far.discard || child.discard,
            fast_zero: so_far.fast_zero && child.fast_zero,
        });
    }
    common.expect("a device is made of at least one other")
}

impl BlockDevice for Linear {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Flush => flush_all(self.segments.iter().map(|segment| &segment.device)),
            io => cut(io, |at| {
                let (index, offset, run) = self.locate(at);
                (&self.segments[index].device, offset, run)
            }),
        }
    }

    fn map(&self, extent: Extent, _intent: MapIntent) -> MapFuture<'_> {
        let (mut answer, mut at) = (MapAnswer::default(), extent.offset);
        while at < extent.end() && answer.pieces.len() < SEGMENTS_MAX {
            let (index, offset, run) = self.locate(at);
            let length = run.min(extent.end() - at);
            answer.push(MapPiece::on(&self.segments[index].device, offset, length));
            at += length;
        }
        answer.ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ZeroTarget;
    use proptest::prelude::*;

    fn linear(lengths: &[u64]) -> Linear {
        let segment = |(index, length): (usize, &u64)| {
            let offset = index as u64 * 512;
            (length * 512, Device::new(ZeroTarget::new(length * 512 + offset, 512)), offset)
        };
        Linear::new(lengths.iter().enumerate().map(segment).collect())
    }

    proptest! {
        #[test]
        fn every_byte_lies_in_exactly_one_place(lengths in prop::collection::vec(1_u64..9, 1..9), at in any::<u64>()) {
            let linear = linear(&lengths);
            let at = at % linear.shape().size;
            let (index, offset, run) = linear.locate(at);
            let start: u64 = lengths[..index].iter().sum::<u64>() * 512;
            let length = lengths[index] * 512;
            prop_assert!(start <= at && at < start + length, "LINEAR1");
            prop_assert_eq!(offset, at - start + index as u64 * 512);
            prop_assert_eq!(at + run, start + length, "the run ends with the segment");
            prop_assert!(offset + run <= linear.segments[index].device.shape().size, "LINEAR2");
        }
    }

    #[test]
    #[should_panic(expected = "LINEAR2")]
    fn a_segment_beyond_its_device_is_refused() {
        let _ = Linear::new(vec![(1024, Device::new(ZeroTarget::new(1024, 512)), 512)]);
    }
}
