//! An array as a target: its members and the runs of disks that each of them is.
//!
//! Invariant TABLEARRAY1: a member's metadata comes first, then its data in the order of the volume; runs that follow each other
//! on one disk are one run.

use crate::model::{Area, ArrayLog, ArrayPolicy, Group, Layout, PvName, ReadPolicy, Space};
use std::fmt;
use uuid::Uuid;
use varve_target::array::ArrayLayout;

/// An array: all that is needed to open it but the devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayTarget {
    /// The volume or exception store that it is.
    pub id: Uuid,
    /// What the superblocks of its members call it: its id, or that of the exception store that it was.
    pub superblock_id: Uuid,
    /// How its bytes lie on its members.
    pub layout: ArrayLayout,
    /// Its members.
    pub members: Vec<ArrayMember>,
    /// The disk that has its log, if the members do not.
    pub log: Option<ArrayMember>,
    /// From which of them data is read.
    pub read_policy: ReadPolicy,
    /// What it does about slow members, and how fast it is made equal.
    pub policy: ArrayPolicy,
    /// Bytes of metadata in front of the data of each.
    pub metadata_size: u64,
    /// Whether what members return is checked by checksums.
    pub checksums: bool,
}

/// A member of an array, or the disk that has its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayMember {
    /// What it is.
    pub id: Uuid,
    /// Where it is (TABLEARRAY1).
    pub runs: Vec<Run>,
    /// Whether a disk of it is missing.
    pub is_missing: bool,
}

/// A run of bytes of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The disk.
    pub pv: PvName,
    /// First byte on it.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

impl ArrayTarget {
    /// The array `id` that is in `space`, and what its superblocks call it.
    pub(super) fn of(
        group: &Group,
        (id, superblock_id): (Uuid, Uuid),
        space: Space<'_>,
        (read_policy, policy): (ReadPolicy, ArrayPolicy),
    ) -> Self {
        let entries = space.layout.members();
        let layout = match space.layout {
            Layout::Ddraid { order, block_size, .. } => {
                ArrayLayout::Ddraid { order: *order, block_size: *block_size }
            }
            _ => ArrayLayout::Mirror { copies: entries.len() },
        };
        let found = (layout.problem(), layout.members(), layout.tolerates());
        assert_eq!(found, (None, entries.len(), space.layout.tolerates()), "GROUP1, TEXT16");
        let member = |index: usize| ArrayMember {
            id: entries[index].id,
            runs: runs(group, space.areas_of_member(index)),
            is_missing: group.is_member_missing(space, index),
        };
        let members = (0..entries.len()).map(member).collect();
        let is_apart = |log: &ArrayLog| space.disks_of_members().all(|disk| disk != log.area.pv);
        assert!(space.layout.log().is_none_or(is_apart), "GROUP1, TEXT24");
        let log = space.layout.log().map(|log| ArrayMember {
            id: log.id,
            runs: runs(group, std::iter::once(log.area)),
            is_missing: group.is_log_missing(space),
        });
        let metadata_size = group.bytes(entries[0].metadata.count);
        let checksums = space.layout.has_checksums();
        Self { id, superblock_id, layout, members, log, read_policy, policy, metadata_size, checksums }
    }

    /// Bytes that it holds, as each of its members says.
    pub fn size(&self) -> u64 {
        let of = |member: &ArrayMember| member.runs.iter().map(|run| run.length).sum::<u64>();
        let length = of(&self.members[0]);
        assert!(self.members.iter().all(|member| of(member) == length), "GROUP1, TEXT16: {self:?}");
        (length - self.metadata_size) * self.layout.data_members()
    }

    /// The disks of its members and of its log, missing ones included.
    pub fn disks(&self) -> impl Iterator<Item = PvName> {
        self.members.iter().chain(&self.log).flat_map(|member| &member.runs).map(|run| run.pv)
    }

    /// Whether every byte of `other`, metadata and log included, is where it is here, but for the members in the places of `away`, which
    /// hold nothing that counts; behind the last of them is the place of the log disk. Which members are missing does not matter.
    pub(super) fn begins_with(&self, other: &Self, away: &[usize]) -> bool {
        let begins = |own: &ArrayMember, old: &ArrayMember| {
            let last = old.runs.len().saturating_sub(1);
            let is_same = |(index, (own, old)): (usize, (&Run, &Run))| {
                let fits = if index == last { own.length >= old.length } else { own.length == old.length };
                (own.pv, own.offset) == (old.pv, old.offset) && fits
            };
            own.id == old.id
                && own.runs.len() >= old.runs.len()
                && own.runs.iter().zip(&old.runs).enumerate().all(is_same)
        };
        let what = |array: &Self| {
            (array.id, array.superblock_id, array.layout, array.metadata_size, array.checksums)
        };
        let is_log_there = match (&self.log, &other.log) {
            (_, None) => true,
            (Some(own), Some(old)) => begins(own, old),
            (None, Some(_)) => false,
        };
        what(self) == what(other)
            && (is_log_there || away.contains(&self.members.len()))
            && self.members.len() == other.members.len()
            && (self.members.iter().zip(&other.members).enumerate())
                .all(|(place, (own, old))| away.contains(&place) || begins(own, old))
    }

    /// Cuts off what is beyond its first `size` bytes, whole rows of extents.
    pub(super) fn truncate(&mut self, size: u64) {
        assert!(size.is_multiple_of(self.layout.data_members()), "TEXT16: whole rows, not {size}");
        let length = self.metadata_size + size / self.layout.data_members();
        for member in &mut self.members {
            let mut rest = length;
            member.runs.retain_mut(|run| {
                run.length = run.length.min(rest);
                rest -= run.length;
                run.length > 0
            });
            assert_eq!(rest, 0, "TABLEARRAY1: a member is not shorter than what is kept of it");
        }
    }
}

/// The areas of a member as runs: its metadata, then its data (TABLEARRAY1).
fn runs(group: &Group, areas: impl Iterator<Item = Area>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for area in areas {
        let pv = group.pv(area.pv).expect("GROUP1, TEXT4: an area names a disk of the group");
        let (offset, length) = (pv.data_offset + group.bytes(area.start), group.bytes(area.count));
        match runs.last_mut() {
            Some(last) if last.pv == area.pv && last.offset + last.length == offset => last.length += length,
            _ => runs.push(Run { pv: area.pv, offset, length }),
        }
    }
    runs
}

impl fmt::Display for ArrayTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layout {
            ArrayLayout::Mirror { copies } => write!(f, "mirror {copies}")?,
            ArrayLayout::Ddraid { order, block_size } => write!(f, "ddraid {order} {block_size}")?,
        }
        write!(f, " {}", self.metadata_size)?;
        let all =
            self.members.iter().map(|member| (member, "")).chain(self.log.iter().map(|log| (log, " log")));
        for (member, what) in all {
            let run = |run: &Run| format!("{} {} {}", run.pv, run.offset, run.length);
            let runs: Vec<String> = member.runs.iter().map(run).collect();
            write!(f, "{what}{}[{}]", if member.is_missing { " missing " } else { " " }, runs.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Description;
    use crate::table::{IncompleteVolume, Line, Parts, Table, Target, store_table, table};

    const TEXT: &str = include_str!("../../../varve-format/src/text/arrays.toml");

    fn group(missing: &[usize]) -> Group {
        let mut description = Description::decode(TEXT).expect("the golden text");
        description.physical_volumes[1].missing = false;
        missing.iter().for_each(|disk| description.physical_volumes[*disk].missing = true);
        Group::new(description).expect("sound")
    }

    fn text(table: Result<Table, IncompleteVolume>) -> String {
        let lines = table.expect("complete").lines;
        lines.iter().map(Line::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn an_array_is_one_line_with_the_runs_of_its_members() {
        let whole = group(&[]);
        let [mirror, ddraid] = ["vm1", "fast"].map(|name| whole.lv(name).expect("in the golden text"));
        assert_eq!(
            text(table(&whole, mirror, Parts::All)),
            "0 125829120 mirror 2 4194304 [pv0 1048576 88080384, pv0 126877696 41943040] [pv1 1048576 88080384, pv1 \
            126877696 41943040] log [pv3 1048576 4194304]",
            "TABLEARRAY1, TABLE3"
        );
        assert_eq!(
            text(table(&whole, ddraid, Parts::All)),
            "0 83886080 ddraid 1 8192 4194304 [pv0 252706816 46137344] [pv1 252706816 46137344] [pv2 252706816 46137344]"
        );
        let store = mirror.store.as_ref().expect("it has one");
        let lines = store_table(&whole, mirror, store).expect("complete");
        let array = lines.array().expect("a mirror");
        assert_eq!((array.id, array.size(), array.metadata_size), (store.id, 5 << 22, 1 << 22));
        assert_eq!(array.read_policy, ReadPolicy::Rotate);
        assert_eq!(lines.disks().into_iter().collect::<Vec<_>>(), [PvName(0), PvName(1)]);
    }

    #[test]
    fn as_many_members_may_be_missing_as_the_layout_tolerates() {
        let degraded = group(&[1]);
        let missing = |group: &Group, name: &str| {
            let table = table(group, group.lv(name).expect("golden"), Parts::All)?;
            let members = table.array().expect("an array").members.iter().map(|member| member.is_missing);
            Ok::<_, IncompleteVolume>(members.collect::<Vec<_>>())
        };
        assert_eq!(missing(&degraded, "vm1"), Ok(vec![false, true]));
        assert_eq!(missing(&degraded, "fast"), Ok(vec![false, true, false]));
        let lost = group(&[1, 2]);
        assert_eq!(missing(&lost, "vm1"), Ok(vec![false, true]));
        let refused = missing(&lost, "fast").expect_err("two members");
        assert_eq!(refused.disks, [PvName(1), PvName(2)]);
        assert_eq!(text(table(&lost, lost.lv("fast").expect("golden"), Parts::Some)), "0 83886080 missing");
    }

    #[test]
    fn a_log_disk_that_is_used_lies_where_the_group_says() {
        let of =
            |group: &Group| table(group, group.lv("vm1").expect("golden"), Parts::All).expect("complete");
        let with = of(&group(&[]));
        assert_eq!(with.disks().into_iter().collect::<Vec<_>>(), [PvName(0), PvName(1), PvName(3)]);
        let missing = of(&group(&[3]));
        let log = missing.array().and_then(|array| array.log.as_ref()).expect("it has one");
        assert!(log.is_missing && missing.begins_with(&with, &[]) && with.begins_with(&missing, &[]));
        let changed = |change: fn(&mut ArrayTarget)| {
            let mut table = with.clone();
            let Target::Array(array) = &mut table.lines[0].target else { unreachable!("an array") };
            change(array);
            table
        };
        let moved = changed(|array| array.log.as_mut().expect("it has one").runs[0].offset += 4096);
        let without = changed(|array| array.log = None);
        assert!(with.begins_with(&without, &[]), "it has got one");
        for other in [&moved, &without] {
            assert!(!other.begins_with(&with, &[]) && !other.begins_with(&with, &[0]));
            assert!(other.begins_with(&with, &[2]), "the log disk has no log");
        }
    }

    #[test]
    fn a_table_begins_with_what_the_array_was_whichever_members_are_missing() {
        let of = |group: &Group, name: &str| {
            table(group, group.lv(name).expect("golden"), Parts::All).expect("complete")
        };
        let (whole, degraded) = (group(&[]), group(&[1]));
        for name in ["vm1", "fast"] {
            let now = of(&whole, name);
            assert!(now.begins_with(&now, &[]) && now.begins_with(&of(&degraded, name), &[]));
            assert!(of(&degraded, name).begins_with(&now, &[]));
            for extents in [2, 18, 20] {
                let shorter = now.clone().up_to(extents << 22);
                let array = shorter.array().expect("an array");
                assert_eq!((array.size(), shorter.lines[0].length), (extents << 22, extents << 22), "TABLE3");
                assert!(
                    now.begins_with(&shorter, &[]) && (shorter == now || !shorter.begins_with(&now, &[]))
                );
            }
            let mut moved = now.clone();
            let Target::Array(array) = &mut moved.lines[0].target else { unreachable!("an array") };
            array.members[1].runs[0].offset += 4096;
            assert!(!now.begins_with(&moved, &[]) && !moved.begins_with(&now, &[0]));
            assert!(now.begins_with(&moved, &[1]), "a member that is away may lie elsewhere");
        }
        assert!(!of(&whole, "vm1").begins_with(&of(&whole, "fast"), &[]));
    }
}
