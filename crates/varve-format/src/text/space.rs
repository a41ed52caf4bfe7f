//! The space of a volume or exception store: its segments, the metadata of an array's members, and its log disk.

use super::{Area, Layout, PvName, Segment};

/// Where the bytes of a volume or exception store lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space<'a> {
    /// How its extents become its bytes.
    pub layout: &'a Layout,
    /// Its segments.
    pub segments: &'a [Segment],
}

impl<'a> Space<'a> {
    /// Every area that it owns: the metadata of an array's members, its log, then those of its segments.
    pub fn areas(self) -> impl Iterator<Item = Area> + 'a {
        let metadata = self.layout.members().iter().map(|member| member.metadata);
        let log = self.layout.log().map(|log| log.area);
        metadata.chain(log).chain(self.segments.iter().flat_map(|segment| segment.areas.iter().copied()))
    }

    /// The disks on which members of an array lie, some of them several times.
    pub fn disks_of_members(self) -> impl Iterator<Item = PvName> + 'a {
        (0..self.layout.members().len())
            .flat_map(move |index| self.areas_of_member(index))
            .map(|area| area.pv)
    }

    /// The areas of member `index` of an array: its metadata, then its data, in order.
    pub fn areas_of_member(self, index: usize) -> impl Iterator<Item = Area> + 'a {
        let metadata = self.layout.members().get(index).map(|member| member.metadata);
        let data = self.segments.iter().filter_map(move |segment| segment.areas.get(index).copied());
        metadata.into_iter().chain(data)
    }
}
