//! What the disk of a machine is like: the features that are offered, and its configuration space, as virtio has them.

use varve_block::{Access, GIB, KIB, MIB, Shape};

/// Bytes of a sector, in which all positions are given.
pub(super) const SECTOR: u64 = 512;
/// Bytes of a segment of a request at most.
const SEGMENT_BYTES_MAX: u32 = 128 * KIB as u32;
/// Segments of a request at most: with header and status as many as a queue of 128 places has.
const REQUEST_SEGMENTS_MAX: u32 = 126;
/// Bytes of a request at most.
pub(super) const REQUEST_BYTES_MAX: u64 = SEGMENT_BYTES_MAX as u64 * REQUEST_SEGMENTS_MAX as u64;
/// Bytes of one discard at most.
const DISCARD_MAX: u64 = GIB;
/// Bytes that one request zeroes at most: they may have to be written.
const ZERO_MAX: u64 = 64 * MIB;
/// Queues at most. A machine chooses as many as it has processors; without requests a queue costs a thread that sleeps.
pub(super) const QUEUES_MAX: u16 = 64;
/// Bytes of the configuration space.
const SPACE: usize = 256;

/// A descriptor may lead to a table of descriptors.
pub(super) const RING_INDIRECT: u64 = 1 << 28;
/// Both sides of a queue state when they are to be notified.
pub(super) const RING_EVENTS: u64 = 1 << 29;
/// There are protocol features.
pub(super) const PROTOCOL_FEATURES: u64 = 1 << 30;
/// The device is one of version 1 of virtio.
const VERSION_1: u64 = 1 << 32;
const SIZE_MAX: u64 = 1 << 1;
const SEG_MAX: u64 = 1 << 2;
const READ_ONLY: u64 = 1 << 5;
const BLK_SIZE: u64 = 1 << 6;
const FLUSH: u64 = 1 << 9;
const TOPOLOGY: u64 = 1 << 10;
const MULTIPLE_QUEUES: u64 = 1 << 12;
const DISCARD: u64 = 1 << 13;
const WRITE_ZEROES: u64 = 1 << 14;

/// What is offered for a device of this shape. There is always a cache that is to be flushed: virtio knows no write that is durable.
pub(super) fn features(shape: Shape) -> u64 {
    let common = RING_INDIRECT | RING_EVENTS | PROTOCOL_FEATURES | VERSION_1;
    let disk = SIZE_MAX | SEG_MAX | BLK_SIZE | FLUSH | TOPOLOGY | MULTIPLE_QUEUES;
    let more = match shape.access {
        Access::ReadOnly => READ_ONLY,
        Access::ReadWrite if shape.discard => DISCARD | WRITE_ZEROES,
        Access::ReadWrite => WRITE_ZEROES,
    };
    common | disk | more
}

/// The configuration space.
pub(super) fn space(shape: Shape) -> [u8; SPACE] {
    let block = u64::from(shape.block_size).max(SECTOR);
    let optimal = u64::from(shape.optimal_size).max(block);
    let physical = optimal.min(4 * KIB).max(block);
    let exponent = u8::try_from((physical / block).trailing_zeros()).expect("at most 64");
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let blocks = u16::try_from(physical / block).unwrap_or(u16::MAX);
    let mut space = [0; SPACE];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(shape.size / SECTOR).to_le_bytes());
    put(8, &SEGMENT_BYTES_MAX.to_le_bytes());
    put(12, &REQUEST_SEGMENTS_MAX.to_le_bytes());
    put(20, &small(block).to_le_bytes());
    put(24, &[exponent, 0]);
    put(26, &blocks.to_le_bytes());
    put(28, &small(optimal / block).to_le_bytes());
    put(34, &QUEUES_MAX.to_le_bytes());
    put(36, &small(DISCARD_MAX / SECTOR).to_le_bytes());
    put(40, &1_u32.to_le_bytes());
    put(44, &small(physical / SECTOR).to_le_bytes());
    put(48, &small(ZERO_MAX / SECTOR).to_le_bytes());
    put(52, &1_u32.to_le_bytes());
    put(56, &[u8::from(shape.discard || shape.fast_zero)]);
    space
}

/// A part of the configuration space; none if it is not in it.
pub(super) fn part(shape: Shape, offset: u32, length: u32) -> Option<Vec<u8>> {
    let (start, length) = (usize::try_from(offset).ok()?, usize::try_from(length).ok()?);
    space(shape).get(start..start.checked_add(length)?).map(<[u8]>::to_vec)
}

/// Bytes that a request of this kind covers at most.
pub(super) fn covered_max(is_discard: bool) -> u64 {
    if is_discard { DISCARD_MAX } else { ZERO_MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_space_is_as_virtio_has_it() {
        let shape = Shape { optimal_size: 64 * KIB as u32, discard: true, ..Shape::new(10 * MIB, 1) };
        let space = space(shape);
        assert_eq!(space[..8], 20480_u64.to_le_bytes(), "sectors");
        assert_eq!(space[20..24], 512_u32.to_le_bytes(), "bytes of a block");
        assert_eq!(space[24..32], [3, 0, 8, 0, 128, 0, 0, 0], "blocks of 4 KiB, best of 64 KiB");
        assert_eq!(part(shape, 34, 2), Some(vec![64, 0]));
        assert_eq!(part(shape, 200, 57), None);
        assert_eq!(part(shape, u32::MAX, u32::MAX), None);
        assert_eq!(features(shape) & (DISCARD | READ_ONLY), DISCARD);
        let read_only = Shape { access: Access::ReadOnly, ..shape };
        assert_eq!(features(read_only) & (DISCARD | WRITE_ZEROES | READ_ONLY), READ_ONLY);
    }
}
