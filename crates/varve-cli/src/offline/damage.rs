//! What damage means for users: which volume, which snapshots, which bytes.
//!
//! Invariants:
//! - DAMAGE1. Every reader of a damaged place is named: the snapshot for which it was preserved or to which it was written, and
//!   every older one that finds it there. So is a volume that is rolled back to one of them, where that is not restored yet, and
//!   each snapshot of it that was taken since and finds it there.
//! - DAMAGE2. Nothing else is named: zeros are stored nowhere, and nothing is read behind an end.

use std::collections::BTreeMap;
use varve_api::{ByteExtent, Finding};
use varve_block::{Arena, Device, Extent, joined};
use varve_vg::OpenGroup;
use varve_vg::model::{Area, LogicalVolume, Space};
use varve_vg::size::format_size;

/// How much is read as one.
const PIECE_BYTES: u64 = 1 << 20;
/// How much is lost when it cannot be read.
const PART_BYTES: u64 = 4096;
/// At most so many ranges are listed for users; programs get all of them.
const TOLD_MAX: usize = 4;

/// Stands for the volume, newer than all of its snapshots.
const VOLUME: u64 = u64::MAX;

/// Content of a store: whose it is, which bytes of it, where it is; 0 for zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    snapshot: u64,
    extent: Extent,
    place: u64,
}

impl Mapping {
    /// The part of it that is in `bytes` of the snapshot.
    fn clip(&self, bytes: Extent) -> Option<Extent> {
        self.extent.intersect(bytes)
    }
}

/// A snapshot that users can name.
#[derive(Debug)]
struct Snapshot {
    name: String,
    size: u64,
}

/// A rollback of the volume under way.
#[derive(Debug)]
struct Rollback {
    /// The snapshot to which the volume is being rolled back.
    target: u64,
    /// Snapshots from this id on were taken since.
    boundary: u64,
    /// What the volume has on its own device already.
    restored: Vec<Extent>,
}

/// What a store's metadata says, as `varve dump --store` prints it.
#[derive(Debug, Default)]
pub(super) struct Contents {
    snapshots: BTreeMap<u64, Snapshot>,
    preserved: Vec<Mapping>,
    written: Vec<Mapping>,
    rollback: Option<Rollback>,
}

/// Bytes that a snapshot or the volume cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loss {
    /// The snapshot; the volume itself if none.
    pub(super) snapshot: Option<String>,
    /// Which bytes, in order.
    pub(super) extents: Vec<Extent>,
}

impl Contents {
    /// What `text` says. Lines that say something else are passed over.
    pub(super) fn parse(text: &str) -> Self {
        let mut contents = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
            let mapping = || {
                let (snapshot, offset, length) = (number(1)?, number(2)?, number(3)?);
                Some(Mapping { snapshot, extent: Extent::checked(offset, length)?, place: number(4)? })
            };
            match (words[0], number(1)) {
                ("snapshot", Some(id)) => {
                    let named = |name: &&str| Snapshot {
                        name: (*name).to_owned(),
                        size: number(6).unwrap_or(u64::MAX),
                    };
                    contents.snapshots.extend(words.get(2).map(named).map(|named| (id, named)));
                }
                ("removed", Some(id)) => drop(contents.snapshots.remove(&id)),
                ("rollback", Some(target)) => {
                    let boundary = number(2).unwrap_or(VOLUME);
                    contents.rollback = Some(Rollback { target, boundary, restored: Vec::new() });
                }
                ("restored", _) => {
                    let extent =
                        number(2).zip(number(3)).and_then(|(at, length)| Extent::checked(at, length));
                    contents.rollback.iter_mut().for_each(|rollback| rollback.restored.extend(extent));
                }
                ("preserved", _) => contents.preserved.extend(mapping()),
                ("written", _) => contents.written.extend(mapping()),
                _ => {}
            }
        }
        contents
    }

    /// Everything that is in the store.
    fn stored(&self) -> impl Iterator<Item = &Mapping> {
        self.preserved.iter().chain(&self.written).filter(|mapping| mapping.place != 0)
    }

    /// What each snapshot, and the volume, loses when `places` of the store cannot be read.
    pub(super) fn losses(&self, places: &[Extent]) -> Vec<Loss> {
        let mut lost: BTreeMap<u64, Vec<Extent>> = BTreeMap::new();
        let gone = |mapping: &Mapping| {
            let whole = Extent::new(mapping.place, mapping.extent.length);
            let bytes = |place: Extent| {
                Extent::new(mapping.extent.offset + (place.offset - mapping.place), place.length)
            };
            places.iter().filter_map(move |place| place.intersect(whole)).map(bytes).collect::<Vec<Extent>>()
        };
        for mapping in self.written.iter().filter(|mapping| mapping.place != 0) {
            lost.entry(mapping.snapshot).or_default().extend(gone(mapping));
        }
        for mapping in &self.preserved {
            for bytes in gone(mapping) {
                for (id, found) in self.readers(mapping.snapshot, bytes) {
                    lost.entry(id).or_default().extend(found);
                }
            }
        }
        if let Some(rollback) = &self.rollback {
            self.lose_rolled_back(rollback, &mut lost);
        }
        let told = lost.into_iter().filter_map(|(id, extents)| {
            let (name, size) = match self.snapshots.get(&id) {
                Some(snapshot) => (Some(snapshot.name.clone()), snapshot.size),
                None if id == VOLUME => (None, u64::MAX),
                None => return None,
            };
            let inside = extents.iter().filter_map(|extent| extent.intersect(Extent::new(0, size)));
            Some(Loss { snapshot: name, extents: joined(inside.collect()) })
        });
        told.filter(|loss| !loss.extents.is_empty()).collect()
    }

    /// DAMAGE1: what the volume, and snapshots of it that were taken since a rollback began, find in what its target has lost.
    fn lose_rolled_back(&self, rollback: &Rollback, lost: &mut BTreeMap<u64, Vec<Extent>>) {
        let all = Extent::new(0, self.snapshots.get(&rollback.target).map_or(0, |target| target.size));
        let of_target = lost.get(&rollback.target).into_iter().flatten();
        let of_target = joined(of_target.filter_map(|extent| extent.intersect(all)).collect());
        let of_volume = without(&of_target, &joined(rollback.restored.clone()));
        for id in self.snapshots.range(rollback.boundary..).map(|(id, _)| *id) {
            let preserved = self.preserved.iter().filter(|mapping| mapping.snapshot >= id);
            let written = self.written.iter().filter(|mapping| mapping.snapshot == id);
            let own = joined(preserved.chain(written).map(|mapping| mapping.extent).collect());
            lost.entry(id).or_default().extend(without(&of_volume, &own));
        }
        lost.insert(VOLUME, of_volume);
    }

    /// DAMAGE1: which snapshots find what was preserved for `owner` in `bytes`, and which of these bytes.
    fn readers(&self, owner: u64, bytes: Extent) -> Vec<(u64, Vec<Extent>)> {
        let mut left = vec![bytes];
        let mut readers = Vec::new();
        let ids = self.stored().map(|mapping| mapping.snapshot).chain(self.snapshots.keys().copied());
        let mut ids: Vec<u64> = ids.filter(|id| *id <= owner).collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids.into_iter().rev() {
            let own = |list: &[Mapping]| {
                let own = list.iter().filter(|mapping| mapping.snapshot == id);
                joined(own.filter_map(|mapping| mapping.clip(bytes)).collect())
            };
            if id != owner {
                left = without(&left, &own(&self.preserved)); // what it has itself hides it from the older ones, too
            }
            readers.push((id, without(&left, &own(&self.written))));
        }
        readers
    }
}

/// `extents` without `holes`, both in order.
fn without(extents: &[Extent], holes: &[Extent]) -> Vec<Extent> {
    extents.iter().flat_map(|extent| extent.without(holes)).collect()
}

/// Reads all content of a store; the places that cannot be read.
pub(super) async fn unreadable(device: &Device, contents: &Contents, arena: &Arena) -> Vec<Extent> {
    let mut lost = Vec::new();
    let places = contents.stored().map(|mapping| Extent::new(mapping.place, mapping.extent.length));
    for place in joined(places.collect()) {
        for (_, piece) in place.pieces(PIECE_BYTES) {
            if can_be_read(device, piece, arena).await {
                continue;
            }
            for (_, part) in piece.pieces(PART_BYTES) {
                if !can_be_read(device, part, arena).await {
                    lost.push(part);
                }
            }
        }
    }
    joined(lost)
}

async fn can_be_read(device: &Device, extent: Extent, arena: &Arena) -> bool {
    let length = usize::try_from(extent.length).expect("a MiB fits");
    device.read(extent.offset, arena.take(length)).await.is_ok()
}

/// The bytes of a volume that lie on disks which are not here.
pub(super) fn absent(open: &OpenGroup, space: Space<'_>) -> Vec<Extent> {
    let (mut at, mut absent) = (0, Vec::new());
    let is_away = |area: &Area| open.group().pv(area.pv).and_then(|disk| open.path(disk.id)).is_none();
    let members = 0..space.layout.members().len();
    let away =
        members.clone().filter(|index| space.areas_of_member(*index).any(|area| is_away(&area))).count();
    for segment in space.segments {
        let length = open.group().bytes(space.layout.extents_of(segment));
        let is_absent = match members.is_empty() {
            true => segment.areas.iter().any(is_away),
            false => away > space.layout.tolerates(),
        };
        if is_absent {
            absent.push(Extent::new(at, length));
        }
        at += length;
    }
    joined(absent)
}

/// `128.0 MiB..192.0 MiB`, and how many more.
pub(super) fn ranges_text(extents: &[Extent]) -> String {
    let range = |extent: &Extent| format!("{}..{}", format_size(extent.offset), format_size(extent.end()));
    let told: Vec<String> = extents.iter().take(TOLD_MAX).map(range).collect();
    match extents.len().saturating_sub(TOLD_MAX) {
        0 => format!("bytes {}", told.join(", ")),
        more => format!("bytes {} and {more} more ranges", told.join(", ")),
    }
}

/// A finding about bytes of a volume or snapshot.
pub(super) fn finding(
    is_damage: bool,
    volume: &str,
    snapshot: Option<&str>,
    extents: &[Extent],
    why: &str,
) -> Finding {
    let whose =
        snapshot.map_or_else(|| volume.to_owned(), |snapshot| format!("{volume}, snapshot {snapshot}"));
    let bytes = |extent: &Extent| ByteExtent { offset: extent.offset, length: extent.length };
    Finding {
        damage: is_damage,
        structure: if snapshot.is_some() { "snapshot" } else { "volume" }.to_owned(),
        message: format!("{whose}, {}: {why}", ranges_text(extents)),
        volume: Some(volume.to_owned()),
        snapshot: snapshot.map(|snapshot| format!("{volume}@{snapshot}")),
        extents: extents.iter().map(bytes).collect(),
    }
}

/// All bytes of a volume.
pub(super) fn whole(open: &OpenGroup, volume: &LogicalVolume) -> Vec<Extent> {
    vec![Extent::new(0, open.group().bytes(volume.extents))]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "varve-exception-store 1\n\
        store 00000000-0000-0000-0000-000000000001 generation 3 chunk 65536 size 1048576 next 5\n\
        snapshot 1 one created 7 size 1048576\n\
        snapshot 2 two created 8 size 1048576 held\n\
        snapshot 3 gone created 8 size 1048576\n\
        snapshot 4 four created 9 size 1048576\n\
        preserved 2 4096 8192 40960\n\
        preserved 4 0 16384 65536\n\
        written 1 0 4096 90112\n\
        written 2 8192 4096 0\n\
        removed 3\n";

    fn lost(text: &str, offset: u64, length: u64) -> Vec<(String, Vec<(u64, u64)>)> {
        let losses = Contents::parse(text).losses(&[Extent::new(offset, length)]);
        let pair = |extent: &Extent| (extent.offset, extent.length);
        let tell = |loss: &Loss| {
            (loss.snapshot.clone().unwrap_or("volume".into()), loss.extents.iter().map(pair).collect())
        };
        losses.iter().map(tell).collect()
    }

    #[test]
    fn those_who_read_a_damaged_place_are_named_and_nobody_else() {
        let one = |name: &str, offset, length| (name.to_owned(), vec![(offset, length)]);
        // What `four` preserved is hidden from the older ones where `two` has it, and from `one` where it was written.
        assert_eq!(
            lost(TEXT, 65536, 16384),
            [
                one("one", 12288, 4096),
                ("two".to_owned(), vec![(0, 4096), (12288, 4096)]),
                one("four", 0, 16384)
            ],
            "DAMAGE1, DAMAGE2"
        );
        assert_eq!(lost(TEXT, 40960, 4096), [one("one", 4096, 4096), one("two", 4096, 4096)]);
        assert_eq!(lost(TEXT, 90112, 4096), [one("one", 0, 4096)]);
        assert_eq!(lost(TEXT, 0, 40960), [], "metadata, or nothing");
        let rolling = format!("{TEXT}rollback 2 5\n");
        assert_eq!(
            lost(&rolling, 40960, 4096)[2],
            one("volume", 4096, 4096),
            "it shows what its target does"
        );
    }

    #[test]
    fn zeros_lie_nowhere_and_hide_what_was_preserved_from_the_snapshot_that_has_them() {
        let one = ("one".to_owned(), vec![(8192, 4096)]);
        assert_eq!(lost(TEXT, 45056, 4096), [one], "DAMAGE2: `two` reads zeros there");
        assert!(
            Contents::parse(TEXT).stored().all(|mapping| mapping.place > 0),
            "DAMAGE2: nothing to be read"
        );
    }

    #[test]
    fn of_a_volume_that_is_rolled_back_only_what_is_not_restored_is_lost() {
        let named = |name: &str, extents: &[(u64, u64)]| (name.to_owned(), extents.to_vec());
        let rolling = format!(
            "{TEXT}snapshot 5 five created 9 size 1048576\nsnapshot 6 six created 9 size 14336\n\
            written 5 0 4096 0\nrollback 2 5\nrestored 2 4096 4096\n"
        );
        // `six` was taken since, and finds what the volume shows, as far as that reached.
        let expected = [
            named("one", &[(12288, 4096)]),
            named("two", &[(0, 4096), (12288, 4096)]),
            named("four", &[(0, 16384)]),
            named("five", &[(12288, 4096)]),
            named("six", &[(0, 4096), (12288, 2048)]),
            named("volume", &[(0, 4096), (12288, 4096)]),
        ];
        assert_eq!(lost(&rolling, 65536, 16384), expected, "DAMAGE1");
        let expected = [named("one", &[(4096, 4096)]), named("two", &[(4096, 4096)])];
        assert_eq!(lost(&rolling, 40960, 4096), expected, "DAMAGE2: the volume has it");
    }

    #[test]
    fn a_snapshot_loses_nothing_behind_its_end() {
        let text = "snapshot 1 small created 7 size 4096\nsnapshot 2 large created 8 size 16384\n\
            preserved 2 0 16384 40960\n";
        let mut expected =
            vec![("small".to_owned(), vec![(0, 4096)]), ("large".to_owned(), vec![(0, 16384)])];
        assert_eq!(lost(text, 40960, 16384), expected, "DAMAGE2");
        expected.push(("volume".to_owned(), vec![(0, 4096)]));
        let rolling = format!("{text}rollback 1 3\n");
        assert_eq!(lost(&rolling, 40960, 16384), expected, "DAMAGE2: it shows zeros behind it");
    }

    #[test]
    fn ranges_are_told_in_units() {
        let mib = |from: u64, to: u64| Extent::between(from << 20, to << 20);
        assert_eq!(ranges_text(&[mib(128, 192)]), "bytes 128.0 MiB..192.0 MiB");
        let many: Vec<Extent> = (0..9).map(|n| mib(2 * n, 2 * n + 1)).collect();
        assert!(ranges_text(&many).ends_with("6.0 MiB..7.0 MiB and 5 more ranges"), "{}", ranges_text(&many));
        assert_eq!(joined(vec![mib(3, 4), mib(1, 2), mib(2, 3)]), [mib(1, 4)]);
    }
}
