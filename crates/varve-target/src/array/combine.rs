//! Blocks cut into fragments and put together again, and parity: pure.
//!
//! Invariant COMBINE1: the exclusive or of the fragments of a block on all members, parity included, is zero.

use varve_block::{Arena, Buffer, Bytes, is_zero};

/// `data`, whole blocks, as what is on each of `data_members` members, and the parity behind them.
pub(super) fn fragments(
    data: &Bytes,
    data_members: usize,
    fragment_size: usize,
    arena: &Arena,
) -> Vec<Bytes> {
    let block_size = data_members * fragment_size;
    assert!(data.len().is_multiple_of(block_size), "COMBINE1: whole blocks");
    let mut members: Vec<Bytes> =
        (0..data_members).map(|member| gather(data, member, data_members, fragment_size, arena)).collect();
    let mut parity = arena.take(data.len() / data_members);
    parity.copy_from_slice(&members[0]);
    members[1..].iter().for_each(|fragment| xor(&mut parity, fragment));
    members.push(parity.freeze());
    members
}

/// What of `data` is on data member `member`.
fn gather(data: &Bytes, member: usize, data_members: usize, fragment_size: usize, arena: &Arena) -> Bytes {
    let block_size = data_members * fragment_size;
    if data.len() == block_size {
        return data.slice(member * fragment_size, fragment_size); // One block: nothing is copied.
    }
    let mut run = arena.take(data.len() / data_members);
    for (fragment, block) in run.chunks_exact_mut(fragment_size).zip(data.chunks_exact(block_size)) {
        fragment.copy_from_slice(&block[member * fragment_size..][..fragment_size]);
    }
    run.freeze()
}

/// Puts the run of data member `member` where it belongs in `blocks`.
pub(super) fn scatter(
    run: &[u8],
    member: usize,
    data_members: usize,
    fragment_size: usize,
    blocks: &mut [u8],
) {
    let block_size = data_members * fragment_size;
    assert_eq!(run.len() * data_members, blocks.len(), "COMBINE1: a fragment of each block");
    for (fragment, block) in run.chunks_exact(fragment_size).zip(blocks.chunks_exact_mut(block_size)) {
        block[member * fragment_size..][..fragment_size].copy_from_slice(fragment);
    }
}

/// The exclusive or of `runs`: what the missing member has, or zeros if none is missing (COMBINE1).
pub(super) fn xor_all(runs: &[&[u8]], arena: &Arena) -> Buffer {
    let (first, rest) = runs.split_first().expect("COMBINE1: an array has members");
    let mut sum = arena.take(first.len());
    sum.copy_from_slice(first);
    rest.iter().for_each(|run| xor(&mut sum, run));
    sum
}

/// Whether COMBINE1 holds for the `runs` of all members.
pub(super) fn is_consistent(runs: &[&[u8]], arena: &Arena) -> bool {
    is_zero(&xor_all(runs, arena))
}

fn xor(sum: &mut [u8], other: &[u8]) {
    assert_eq!(sum.len(), other.len(), "COMBINE1: runs are equally long");
    sum.iter_mut().zip(other).for_each(|(sum, other)| *sum ^= other);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_member_can_be_computed_from_the_others(
            order in 1_u32..4, blocks in 1_usize..5, seed in any::<u64>(), lost in 0_usize..9,
        ) {
            let arena = Arena::heap(1 << 20);
            let (data_members, fragment_size) = (1_usize << order, 4096_usize >> order);
            let mut state = seed | 1;
            let mut next = || { state ^= state << 13; state ^= state >> 7; state ^= state << 17; state as u8 };
            let data = arena.copy(&(0..blocks * 4096).map(|_| next()).collect::<Vec<_>>());
            let runs = fragments(&data, data_members, fragment_size, &arena);
            let all: Vec<&[u8]> = runs.iter().map(|run| &run[..]).collect();
            prop_assert!(is_consistent(&all, &arena), "COMBINE1");
            let lost = lost % runs.len();
            let others: Vec<&[u8]> = (0..runs.len()).filter(|place| *place != lost).map(|place| all[place]).collect();
            prop_assert_eq!(&xor_all(&others, &arena)[..], all[lost], "COMBINE1");
            let mut whole = vec![0; data.len()];
            for (member, run) in all.iter().enumerate().take(data_members) {
                scatter(run, member, data_members, fragment_size, &mut whole);
            }
            prop_assert_eq!(&whole[..], &data[..]);
        }
    }
}
