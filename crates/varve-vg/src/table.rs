//! How a volume is laid out on its disks, as lines from its first byte to its last: pure.
//!
//! Invariants:
//! - TABLE1. The lines follow each other without a gap; their lengths are the volume's size.
//! - TABLE2. Offsets are those of the disk, its label and ring included.
//! - TABLE3. An array is one line, from the volume's first byte to its last; each of its members has the metadata and its share
//!   of these bytes.

mod array;

pub use array::{ArrayMember, ArrayTarget, Run};

use crate::model::{
    Area, Conversion, ConvertedPart, Group, ImageFormat, Layout, LogicalVolume, PvName, Role, Segment, Space,
    Store,
};
use std::collections::BTreeSet;
use std::fmt;
use uuid::Uuid;

/// A volume's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The lines, in order.
    pub lines: Vec<Line>,
    /// Whether the volume may not be written.
    pub read_only: bool,
}

impl Table {
    /// Whether every byte of `other` is where it is here: both are one table, or this one has grown since. The members of an
    /// array in the places of `away` hold nothing that counts, and may lie elsewhere.
    pub fn begins_with(&self, other: &Table, away: &[usize]) -> bool {
        let pairs = self.lines.iter().zip(&other.lines);
        let last = other.lines.len().saturating_sub(1);
        let begins = |(index, (own, old)): (usize, (&Line, &Line))| {
            let fits = if index == last { own.length >= old.length } else { own.length == old.length };
            own.start == old.start && own.target.begins_with(&old.target, away) && fits
        };
        let is_long_enough = self.lines.len() >= other.lines.len();
        self.read_only == other.read_only && is_long_enough && pairs.enumerate().all(begins)
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        self.lines.iter().map(|line| line.length).sum()
    }

    /// The table of its first `bytes` bytes, which end a run of extents.
    #[must_use]
    pub fn up_to(mut self, bytes: u64) -> Table {
        self.lines.retain(|line| line.start < bytes);
        if let Some(last) = self.lines.last_mut() {
            last.length = last.length.min(bytes - last.start);
            if let Target::Array(array) = &mut last.target {
                array.truncate(last.length);
            }
        }
        self
    }

    /// The disks on which it is.
    pub fn disks(&self) -> BTreeSet<PvName> {
        let of = |line: &Line| match &line.target {
            Target::Linear { pv, .. } => vec![*pv],
            Target::Striped { members, .. } => members.iter().map(|(pv, _)| *pv).collect(),
            Target::Array(array) => array.disks().collect(),
            Target::Image(_) | Target::Mapper(_) | Target::Zero | Target::Error | Target::Missing => {
                Vec::new()
            }
        };
        self.lines.iter().flat_map(of).collect()
    }

    /// The image in which all of it is, if it is in one.
    pub fn image(&self) -> Option<&ImageTarget> {
        self.lines.iter().find_map(|line| match &line.target {
            Target::Image(image) => Some(image),
            _ => None,
        })
    }

    /// The array that it is, if it is one (TABLE3).
    pub fn array(&self) -> Option<&ArrayTarget> {
        self.lines.iter().find_map(|line| match &line.target {
            Target::Array(array) => Some(array),
            _ => None,
        })
    }

    /// The mapper that says where its bytes lie, if one does.
    pub fn mapper(&self) -> Option<&MapperTarget> {
        self.lines.iter().find_map(|line| match &line.target {
            Target::Mapper(mapper) => Some(mapper),
            _ => None,
        })
    }
}

/// A run of a volume's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// First byte in the volume.
    pub start: u64,
    /// Number of bytes.
    pub length: u64,
    /// Where they lie.
    pub target: Target,
}

/// Where a run of bytes is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// In a row on one disk.
    Linear {
        /// The disk.
        pv: PvName,
        /// First byte on it.
        offset: u64,
    },
    /// In stripes.
    Striped {
        /// Bytes of a stripe.
        stripe_size: u64,
        /// The disks, and the first byte on each.
        members: Vec<(PvName, u64)>,
    },
    /// On the members of an array.
    Array(ArrayTarget),
    /// In a disk image.
    Image(ImageTarget),
    /// Where a program says.
    Mapper(MapperTarget),
    /// Nowhere: it reads as zeros, and what is written is dropped.
    Zero,
    /// Nowhere: every read and write fails.
    Error,
    /// Nowhere: a disk is missing.
    Missing,
}

/// A disk image in which a volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageTarget {
    /// The volume.
    pub id: Uuid,
    /// Where the image is.
    pub path: String,
    /// How it is read and written.
    pub format: ImageFormat,
}

/// A program that says where the bytes of a volume lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapperTarget {
    /// The volume.
    pub id: Uuid,
    /// The path of the Unix socket at which it is asked.
    pub socket: String,
    /// How long a request waits for its answer, in milliseconds.
    pub wait_ms: u64,
}

impl Target {
    /// Whether what is in `other` is here in the same place.
    fn begins_with(&self, other: &Target, away: &[usize]) -> bool {
        match (self, other) {
            (Target::Array(own), Target::Array(old)) => own.begins_with(old, away),
            (own, old) => own == old,
        }
    }
}

/// Whether a volume with missing parts has a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// No: all its disks must be here.
    All,
    /// Yes; what is missing cannot be read or written.
    Some,
}

/// A volume that cannot be used, and the missing disks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{volume} is incomplete: it lies on {}, which is missing", disks_text(disks))]
pub struct IncompleteVolume {
    /// `VG/LV`.
    pub volume: String,
    /// The disks.
    pub disks: Vec<PvName>,
}

/// The table of `lv`.
pub fn table(group: &Group, lv: &LogicalVolume, parts: Parts) -> Result<Table, IncompleteVolume> {
    let missing = group.missing_disks_of(lv);
    // With its exception store away, the volume could be written past its snapshots.
    let store_missing = lv.stores().any(|store| group.is_incomplete(store.space()));
    if !missing.is_empty() && (parts == Parts::All || store_missing) {
        let volume = format!("{}/{}", group.name(), lv.name);
        return Err(IncompleteVolume { volume, disks: missing });
    }
    Ok(Table { lines: lines_of(group, lv, lv.id, (lv.space(), lv.extents)), read_only: lv.read_only })
}

/// The table of `store`, an exception store of `lv`. It needs all of the volume to be there.
pub fn store_table(group: &Group, lv: &LogicalVolume, store: &Store) -> Result<Table, IncompleteVolume> {
    assert!(lv.stores().any(|own| own.id == store.id), "the store is one of the volume");
    table(group, lv, Parts::All)?;
    Ok(Table { lines: lines_of(group, lv, store.id, (store.space(), store.extents)), read_only: false })
}

/// The table of the extents that a conversion owns of a part, on disks that are here.
pub fn part_table(group: &Group, conversion: &Conversion, part: &ConvertedPart) -> Table {
    let lv = group
        .logical_volumes()
        .iter()
        .find(|lv| lv.id == conversion.volume)
        .expect("TEXT20: a conversion is one of a volume");
    let extents = part.segments.iter().map(|segment| part.layout.extents_of(segment)).sum();
    Table { lines: lines_of(group, lv, part.of, (part.space(), extents)), read_only: false }
}

/// The lines of `lv` or a store of it, `id`, of so many extents.
fn lines_of(group: &Group, lv: &LogicalVolume, id: Uuid, (space, extents): (Space<'_>, u64)) -> Vec<Line> {
    let size = space.layout.size(extents, group.extent_size());
    let whole = |target| vec![Line { start: 0, length: size, target }];
    let lines = match space.layout {
        Layout::Linear => lines(group, space, None),
        Layout::Striped { stripe_size } => lines(group, space, Some(*stripe_size)),
        Layout::Zero => whole(Target::Zero),
        Layout::Error => whole(Target::Error),
        Layout::Image { path, format, .. } => {
            assert!(size <= group.bytes(extents), "TEXT21: the extents hold the image");
            whole(Target::Image(ImageTarget { id, path: path.clone(), format: *format }))
        }
        Layout::Mapper { socket, wait_ms, .. } => {
            whole(Target::Mapper(MapperTarget { id, socket: socket.clone(), wait_ms: *wait_ms }))
        }
        Layout::Mirror { .. } | Layout::Ddraid { .. } if group.is_incomplete(space) => whole(Target::Missing),
        Layout::Mirror { read_policy, .. } | Layout::Ddraid { read_policy, .. } => {
            let policy = lv.array_policy.unwrap_or_default();
            let array = ArrayTarget::of(group, (id, superblock_id(lv, id)), space, (*read_policy, policy));
            assert_eq!(array.size(), group.bytes(extents), "TABLE3");
            whole(Target::Array(array))
        }
    };
    assert_eq!(lines.iter().map(|line| line.length).sum::<u64>(), size, "TABLE1");
    lines
}

/// What superblocks of arrays call the array `id` that is `lv` or a store of it. A store that was replaced keeps the superblocks that
/// it had: nothing of it is written.
fn superblock_id(lv: &LogicalVolume, id: Uuid) -> Uuid {
    match lv.role {
        Role::StoreBackup { of } if lv.id == id => of,
        _ => id,
    }
}

fn lines(group: &Group, space: Space<'_>, stripe_size: Option<u64>) -> Vec<Line> {
    let mut start = 0;
    let mut lines = Vec::with_capacity(space.segments.len());
    for segment in space.segments {
        let length = group.bytes(space.layout.extents_of(segment));
        lines.push(Line { start, length, target: target(group, segment, stripe_size) });
        start += length;
    }
    assert!(lines.iter().all(|line| line.length > 0), "TABLE1");
    lines
}

fn target(group: &Group, segment: &Segment, stripe_size: Option<u64>) -> Target {
    let place = |area: &Area| {
        let pv = group.pv(area.pv).filter(|pv| !pv.missing)?;
        let offset = pv.data_offset + group.bytes(area.start);
        assert!(offset + group.bytes(area.count) <= pv.size, "TABLE2: {area} ends on its disk");
        Some((pv.name, offset))
    };
    let places: Option<Vec<_>> = segment.areas.iter().map(place).collect();
    match (places, stripe_size) {
        (None, _) => Target::Missing,
        (Some(members), Some(stripe_size)) => Target::Striped { stripe_size, members },
        (Some(members), None) => {
            assert_eq!(members.len(), 1, "GROUP1, TEXT6: a linear segment has one area");
            Target::Linear { pv: members[0].0, offset: members[0].1 }
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line { start, length, target } = self;
        write!(f, "{start} {length} ")?;
        match target {
            Target::Linear { pv, offset } => write!(f, "linear {pv} {offset}"),
            Target::Striped { stripe_size, members } => {
                write!(f, "striped {} {stripe_size}", members.len())?;
                members.iter().try_for_each(|(pv, offset)| write!(f, " {pv} {offset}"))
            }
            Target::Array(array) => array.fmt(f),
            Target::Image(ImageTarget { path, format, .. }) => write!(f, "{} {path}", format.name()),
            Target::Mapper(mapper) => write!(f, "mapper {}", mapper.socket),
            Target::Zero => f.write_str("zero"),
            Target::Error => f.write_str("error"),
            Target::Missing => f.write_str("missing"),
        }
    }
}

fn disks_text(disks: &[PvName]) -> String {
    let names: Vec<_> = disks.iter().map(ToString::to_string).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Description;

    const TEXT: &str = include_str!("../../varve-format/src/text/golden.toml");

    fn group(missing: bool) -> Group {
        let mut description = Description::decode(TEXT).expect("the golden text");
        description.physical_volumes[1].missing = missing;
        Group::new(description).expect("sound")
    }

    fn text(group: &Group, name: &str, parts: Parts) -> Result<String, IncompleteVolume> {
        let lv = group.lv(name).expect("in the golden text");
        let lines = table(group, lv, parts)?.lines;
        Ok(lines.iter().map(Line::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn tables_of_the_golden_group() {
        let group = group(false);
        let linear = "0 104857600 linear pv0 1048576\n104857600 20971520 linear pv1 420478976";
        assert_eq!(text(&group, "vm1", Parts::All).as_deref(), Ok(linear));
        let striped = "0 83886080 striped 2 65536 pv0 210763776 pv1 1048576";
        assert_eq!(text(&group, "fast", Parts::All).as_deref(), Ok(striped));
        let volume = group.lv("vm1").expect("golden");
        let store = volume.store.as_ref().expect("it has one");
        let store = store_table(&group, volume, store).expect("complete");
        assert_eq!(store.lines[0].to_string(), "0 20971520 linear pv0 126877696");
        assert_eq!(group.lv("fast").expect("golden").stores().count(), 0);
    }

    #[test]
    fn a_table_begins_with_what_it_was_before_it_grew_and_with_nothing_else() {
        let group = group(false);
        let now = |name: &str| table(&group, group.lv(name).expect("golden"), Parts::All).expect("complete");
        let (whole, other) = (now("vm1"), now("fast"));
        assert!(
            whole.begins_with(&whole, &[])
                && !whole.begins_with(&other, &[])
                && !other.begins_with(&whole, &[])
        );
        let mut shorter = whole.clone();
        shorter.lines[1].length -= 4096;
        assert!(whole.begins_with(&shorter, &[]) && !shorter.begins_with(&whole, &[]));
        shorter.lines.pop();
        assert!(whole.begins_with(&shorter, &[]) && !shorter.begins_with(&whole, &[]));
        shorter.lines[0].length -= 4096;
        assert!(
            whole.begins_with(&shorter, &[]),
            "the first line may have grown, too, while it was the last one"
        );
        let mut gap = whole.clone();
        gap.lines[0].length -= 4096;
        assert!(!whole.begins_with(&gap, &[]), "a line that is not the last one is as long as before");
        let mut moved = whole.clone();
        moved.lines[1].target = Target::Linear { pv: PvName(1), offset: 0 };
        assert!(!whole.begins_with(&moved, &[]) && !moved.begins_with(&whole, &[]));
        let protected = Table { read_only: true, ..whole.clone() };
        assert!(!whole.begins_with(&protected, &[]));
        assert_eq!(whole.disks().into_iter().collect::<Vec<_>>(), [PvName(0), PvName(1)]);
        assert_eq!(other.disks().len(), 2);
    }

    #[test]
    fn a_volume_that_a_program_maps_is_one_line_on_no_disk() {
        let mut description = Description::decode(TEXT).expect("the golden text");
        let volume = &mut description.logical_volumes[1];
        volume.layout =
            Layout::Mapper { socket: "/run/map.sock".to_owned(), wait_ms: 500, devices: Vec::new() };
        volume.segments.clear();
        let (name, id, extents) = (volume.name.clone(), volume.id, volume.extents);
        let group = Group::new(description).expect("sound");
        let table = table(&group, group.lv(&name).expect("it is there"), Parts::All).expect("on no disk");
        let mapper = table.mapper().expect("it has a mapper");
        assert_eq!((mapper.id, mapper.socket.as_str(), mapper.wait_ms), (id, "/run/map.sock", 500));
        assert_eq!(table.lines[0].to_string(), format!("0 {} mapper /run/map.sock", group.bytes(extents)));
        assert!(table.disks().is_empty() && table.size() == group.bytes(extents), "TABLE1");
    }

    #[test]
    fn missing_disks_make_a_volume_incomplete_unless_parts_are_asked_for() {
        let group = group(true);
        let refused = text(&group, "vm1", Parts::All).expect_err("pv1 is missing");
        assert_eq!(refused.to_string(), "data/vm1 is incomplete: it lies on pv1, which is missing");
        let part = "0 104857600 linear pv0 1048576\n104857600 20971520 missing";
        assert_eq!(text(&group, "vm1", Parts::Some).as_deref(), Ok(part));
        assert_eq!(text(&group, "fast", Parts::Some).as_deref(), Ok("0 83886080 missing"));
    }
}
