//! Calls that concern what moves: runs of a volume's extents to another disk, its whole content to another layout, a mirror
//! that is split.

use super::volumes::VolumeCalls;
use crate::context::ShardContext;
use crate::copies::conversions::{self, Part};
use crate::copies::{moves, split};
use crate::handle::Answer;
use crate::spec::Disks;
use crate::spec::Wanted;
use varve_api::Failure;
use varve_vg::model::PvName;

impl VolumeCalls<'_> {
    /// Copies up to `bytes` of the run that moves off `disk`; bytes that are left.
    pub fn copy_move(&self, disk: PvName, bytes: u64) -> Answer<Result<u64, Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| moves::copy(&here, id, disk, bytes).await)
    }

    /// Makes all durable before the move off `disk` is committed.
    pub fn prepare_move(&self, disk: PvName, wanted: Wanted) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| moves::prepare(&here, id, disk, &wanted).await)
    }

    /// Leads requests to where the run that moves off `disk` is now, and no flush there unless something of its space `is_left`.
    pub fn finish_move(&self, disk: PvName, is_switched: bool, is_left: bool) -> Answer<()> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| {
            moves::finish(&here, id, disk, is_switched, is_left).await;
        })
    }

    /// Begins to convert the volume: its parts with their new tables.
    pub fn begin_conversion(&self, parts: Vec<Part>, disks: Disks) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| conversions::begin(&here, id, parts, disks).await)
    }

    /// Copies up to `bytes` to the new layout; bytes that are left.
    pub fn copy_conversion(&self, bytes: u64) -> Answer<Result<u64, Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| conversions::copy(&here, id, bytes).await)
    }

    /// Makes all durable before the new layout is committed.
    pub fn prepare_conversion(&self, wanted: Wanted) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| conversions::prepare(&here, id, &wanted).await)
    }

    /// Leads requests to the layout that counts.
    pub fn finish_conversion(&self, is_switched: bool) -> Answer<()> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| conversions::finish(&here, id, is_switched).await)
    }

    /// Holds the requests of a mirror that is about to lose a member.
    pub fn hold_for_split(&self, wanted: Wanted) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| split::hold(&here, id, &wanted).await)
    }

    /// Lets the requests of a mirror go on after a split, or after none.
    pub fn release_after_split(&self, is_split: bool, wanted: Wanted) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| split::release(&here, id, is_split, &wanted).await)
    }

    /// Lets the requests of a mirror fail after a split of which it is not known whether it counts.
    pub fn give_up_after_split(&self) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| split::give_up(&here, id))
    }
}
