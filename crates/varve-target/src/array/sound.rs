//! What the members of an array should hold of a block, from what they hold and what their checksums say: pure.
//!
//! Invariants:
//! - SOUND1. What is returned fits every checksum by which a fragment was chosen; a fragment is computed only from others that are not
//!   known to be wrong.
//! - SOUND2. Nothing is guessed: where redundancy and checksums leave more than one answer there is none.

use super::checksums::Expected;
use super::combine;
use super::geometry::ArrayLayout;
use varve_block::{Arena, Bytes};

/// Why it is not known what members should hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unsound {
    /// Too much is wrong.
    Lost,
    /// Fragments do not fit each other, and checksums do not tell which is wrong.
    Undecided,
}

/// What each member should hold of a block, of which they hold `held` (nothing if a member is away or cannot read it).
pub(super) fn sound(
    layout: ArrayLayout,
    held: &[Option<Bytes>],
    expected: &[Expected],
    arena: &Arena,
) -> Result<Vec<Bytes>, Unsound> {
    assert_eq!((held.len(), expected.len()), (layout.members(), layout.members()), "SOUND1: of each member");
    match layout {
        ArrayLayout::Mirror { .. } => sound_copies(held, expected[0]),
        ArrayLayout::Ddraid { .. } => sound_fragments(held, expected, arena),
    }
}

/// What each member should hold of a block in which they hold `held`, where nothing tells what is wrong: of a mirror what the first one holds, of
/// ddraid its data with the parity of that.
pub(super) fn settled(
    layout: ArrayLayout,
    held: &[Option<Bytes>],
    arena: &Arena,
) -> Result<Vec<Bytes>, Unsound> {
    let all: Option<Vec<Bytes>> = held.iter().cloned().collect();
    let mut all = all.ok_or(Unsound::Lost)?;
    match layout {
        ArrayLayout::Mirror { .. } => {
            let first = all[0].clone();
            all.fill(first);
        }
        ArrayLayout::Ddraid { .. } => {
            let (parity, data) = all.split_last_mut().expect("an array has members");
            let data: Vec<&[u8]> = data.iter().map(|fragment| &fragment[..]).collect();
            *parity = combine::xor_all(&data, arena).freeze();
        }
    }
    Ok(all)
}

fn sound_copies(held: &[Option<Bytes>], expected: Expected) -> Result<Vec<Bytes>, Unsound> {
    let first = held.iter().flatten().find(|copy| expected.allows(copy)).ok_or(Unsound::Lost)?;
    if expected != Expected::Unknown {
        return Ok(vec![first.clone(); held.len()]);
    }
    let are_all_read = held.iter().all(Option::is_some);
    if are_all_read && held.iter().flatten().any(|copy| copy[..] != first[..]) {
        return Err(Unsound::Undecided);
    }
    // Those that can be read are as good as each other.
    Ok(held.iter().map(|copy| copy.as_ref().unwrap_or(first).clone()).collect())
}

fn sound_fragments(
    held: &[Option<Bytes>],
    expected: &[Expected],
    arena: &Arena,
) -> Result<Vec<Bytes>, Unsound> {
    let is_wrong = |place: &usize| !held[*place].as_ref().is_some_and(|held| expected[*place].allows(held));
    let is_unknown = |place: &usize| expected[*place] == Expected::Unknown;
    let places = 0..held.len();
    let wrong: Vec<usize> = places.clone().filter(is_wrong).collect();
    let others = |place: usize| {
        let runs: Vec<&[u8]> = places
            .clone()
            .filter(|other| *other != place)
            .filter_map(|other| held[other].as_deref())
            .collect();
        combine::xor_all(&runs, arena).freeze()
    };
    let place = match wrong[..] {
        [] => {
            let last = held.len() - 1;
            if held[last].as_deref() == Some(&others(last)[..]) {
                return Ok(held.iter().flatten().cloned().collect());
            }
            let mut unknown = places.clone().filter(is_unknown);
            match (unknown.next(), unknown.next()) {
                (Some(place), None) => place,
                _ => return Err(Unsound::Undecided),
            }
        }
        [place] => place,
        _ => return Err(Unsound::Lost),
    };
    assert!(wrong.len() <= 1, "SOUND1: {wrong:?} are wrong");
    let computed = others(place);
    let are_others_known = !places.clone().any(|other| other != place && is_unknown(&other));
    let fits = expected[place].allows(&computed);
    if !are_others_known && !fits {
        return Err(Unsound::Lost); // SOUND2: the one that is wrong may be another one.
    }
    let fragment = |other: usize| held[other].clone().filter(|_| other != place);
    Ok(places.clone().map(|other| fragment(other).unwrap_or_else(|| computed.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_format::array::fragment_checksum;

    fn bytes(members: &[Bytes]) -> Vec<Vec<u8>> {
        members.iter().map(|member| member.to_vec()).collect()
    }

    /// What is done to a member's fragment, and to its checksum.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Fault {
        None,
        Unread,
        Wrong,
    }
    const FAULTS: [Fault; 3] = [Fault::None, Fault::Unread, Fault::Wrong];

    /// Every combination of faults of fragments and of checksums (unread: not known) on all members.
    fn every(
        layout: ArrayLayout,
        mut look: impl FnMut(&[Fault], &[Fault], Result<Vec<Vec<u8>>, Unsound>, &[Vec<u8>]),
    ) {
        let arena = Arena::heap(1 << 20);
        let (members, data) = (layout.members(), layout.data_members() as usize);
        let block =
            arena.copy(&(0..data as u8 * 16).map(|byte| byte.wrapping_mul(37) ^ 11).collect::<Vec<_>>());
        let right = match layout {
            ArrayLayout::Mirror { .. } => vec![block; members],
            ArrayLayout::Ddraid { .. } => combine::fragments(&block, data, 16, &arena),
        };
        let is_mirror = matches!(layout, ArrayLayout::Mirror { .. });
        let digits = |number: usize, count: usize| -> Vec<Fault> {
            (0..count).map(|place| FAULTS[number / 3_usize.pow(place as u32) % 3]).collect()
        };
        let sums_count = if is_mirror { 1 } else { members };
        for number in 0..3_usize.pow((members + sums_count) as u32) {
            let all = digits(number, members + sums_count);
            let (fragments, sums) = all.split_at(members);
            let held = |place: usize| match fragments[place] {
                Fault::None => Some(right[place].clone()),
                Fault::Unread => None,
                Fault::Wrong => Some(arena.copy(&[place as u8 + 100; 16])),
            };
            let held: Vec<Option<Bytes>> = (0..members).map(held).collect();
            let expected = |place: usize| match sums[if is_mirror { 0 } else { place }] {
                Fault::None => Expected::Is(fragment_checksum(&right[place])),
                Fault::Unread => Expected::Unknown,
                Fault::Wrong => Expected::Is(77),
            };
            let expected: Vec<Expected> = (0..members).map(expected).collect();
            let found = sound(layout, &held, &expected, &arena).map(|found| bytes(&found));
            look(fragments, sums, found, &bytes(&right));
        }
    }

    /// Why every flush writes pages of checksums
    /// (`docs/decisions/0150-pages-with-every-flush.md`): zeros, then a write of the first half that was flushed, then a write of all
    /// that was under way. Of the latter only the parity has come, which is zero as it was at first.
    #[test]
    fn old_checksums_can_fit_although_what_they_show_was_overwritten_and_flushed() {
        let arena = Arena::heap(1 << 20);
        let layout = ArrayLayout::Ddraid { order: 1, block_size: 4096 };
        let version = |first: u8, second: u8| {
            let block: Vec<u8> = [[first; 16], [second; 16]].concat();
            combine::fragments(&arena.copy(&block), 2, 16, &arena)
        };
        let (zeros, flushed, under_way) = (version(0, 0), version(5, 0), version(9, 9));
        let held = [None, Some(flushed[1].clone()), Some(under_way[2].clone())];
        let expected: Vec<Expected> =
            zeros.iter().map(|fragment| Expected::Is(fragment_checksum(fragment))).collect();
        let found = sound(layout, &held, &expected, &arena).map(|found| bytes(&found));
        assert_eq!(found, Ok(bytes(&zeros)), "all checksums fit, and it must not be returned");
    }

    #[test]
    fn one_wrong_fragment_is_always_found_and_nothing_wrong_is_ever_chosen_by_known_checksums() {
        let layouts = [
            ArrayLayout::Mirror { copies: 2 },
            ArrayLayout::Mirror { copies: 3 },
            ArrayLayout::Ddraid { order: 1, block_size: 4096 },
            ArrayLayout::Ddraid { order: 2, block_size: 4096 },
        ];
        for layout in layouts {
            every(layout, |fragments, sums, found, right| {
                let wrong = fragments.iter().filter(|fault| **fault != Fault::None).count();
                let are_known = sums.iter().all(|sum| *sum == Fault::None);
                if are_known {
                    assert_eq!(found.is_ok(), wrong <= layout.tolerates(), "{layout:?}, {fragments:?}");
                }
                let is_undecided = matches!(layout, ArrayLayout::Ddraid { .. })
                    && wrong == 1
                    && fragments.contains(&Fault::Wrong)
                    && sums.iter().all(|sum| *sum == Fault::Unread);
                assert!(!is_undecided || found.is_err(), "SOUND2: {layout:?}, {fragments:?}");
                let no_false_sums = sums.iter().all(|sum| *sum != Fault::Wrong);
                if let Ok(found) = &found
                    && (are_known || (no_false_sums && wrong <= 1))
                {
                    assert_eq!(found, right, "SOUND1: {layout:?}, {fragments:?}, {sums:?}");
                }
                if wrong == 0 && matches!(layout, ArrayLayout::Ddraid { .. }) {
                    let false_sums = sums.iter().filter(|sum| **sum == Fault::Wrong).count();
                    if false_sums <= 1 && sums.iter().all(|sum| *sum != Fault::Unread) {
                        assert_eq!(found.as_deref(), Ok(right), "a page that is wrong alone costs nothing");
                    }
                }
            });
        }
    }
}
