//! Calls that concern what moves: runs of a volume's extents to another disk, its whole content to another layout, a mirror
//! that is split.

use super::volumes::VolumeCalls;
use crate::context::ShardContext;
use crate::copies::movable::Moving;
use crate::copies::moves::Part;
use crate::copies::{moves, split};
use crate::handle::Answer;
use crate::spec::{Disks, Wanted};
use varve_api::Failure;

impl VolumeCalls<'_> {
    /// Begins to convert the volume: its parts with their new tables.
    pub fn begin_conversion(&self, parts: Vec<Part>, disks: Disks) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| moves::begin_conversion(&here, id, parts, disks).await)
    }

    /// Copies up to `bytes` of what moves, or is converted; bytes that are left.
    pub fn copy_moving(&self, what: Moving, bytes: u64) -> Answer<Result<u64, Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| moves::copy(&here, id, what, bytes).await)
    }

    /// Makes all durable before the new place is committed.
    pub fn prepare_moving(&self, what: Moving, wanted: Wanted) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| moves::prepare(&here, id, what, &wanted).await)
    }

    /// Leads requests to the place that counts, and no flush to the disk from which a run moves unless something of its space `is_left`.
    pub fn finish_moving(&self, what: Moving, is_switched: bool, is_left: bool) -> Answer<()> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| {
            moves::finish(&here, id, what, is_switched, is_left).await;
        })
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
