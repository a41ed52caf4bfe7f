//! The trees below the volumes, pools and stores of a shard: what a tree leads to can be exchanged while it serves.
//!
//! Invariants:
//! - TREES1. Every request to the bytes of a volume, pool or store passes the switch at the top of its tree.
//! - TREES2. While a space is converted, each of its trees leads to the move of the conversion; one that is built meanwhile, too.
//! - TREES3. A volume that is out of use is not converted: where its bytes lie its group's text says (see SHARDMOVE3 of `movable.rs`).
//! - TREES4. What a tree leads to has blocks no larger than what it led to before: doors check requests against the shape that they were given.

use futures_util::future::join_all;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use uuid::Uuid;
use varve_block::{
    Arena, BlockDevice, Checked, Completion, Device, Extent, MapFuture, MapIntent, Shape, Suspended, Switch,
    accept_unaligned,
};

/// The trees of a shard.
#[derive(Default)]
pub(crate) struct Trees {
    tops: RefCell<Vec<(Uuid, Weak<Top>)>>,
    /// Trees of volumes that wait for their new inside.
    held: RefCell<BTreeMap<Uuid, Vec<Suspended>>>,
}

/// The top of a tree (TREES1).
struct Top(Switch);

impl Trees {
    /// A new tree of the space `of` over `inside`, with blocks no larger than those of the trees of it before (TREES4).
    pub(super) fn add(&self, of: Uuid, inside: Device, arena: &Arena) -> Device {
        let finest = self.tops_of(of).iter().map(|top| top.shape().block_size).min();
        let inside = as_fine_as(finest.unwrap_or(u32::MAX), inside, arena);
        let top = Rc::new(Top(Switch::new(inside)));
        let mut tops = self.tops.borrow_mut();
        tops.retain(|(_, top)| top.strong_count() > 0);
        tops.push((of, Rc::downgrade(&top)));
        Device::from_rc(top)
    }

    /// The inside of the newest tree of the space `of`.
    pub(super) fn inside(&self, of: Uuid) -> Option<Device> {
        self.tops_of(of).last().map(|top| top.0.current())
    }

    /// Leads all trees of the space `of` to `inside`. Afterwards no request is under way past that.
    pub(super) async fn lead(&self, of: Uuid, inside: &Device) {
        self.assert_as_fine(of, inside);
        for top in self.tops_of(of) {
            let suspended = top.0.suspend().await;
            suspended.replace(inside.clone());
        }
    }

    /// Holds back requests to the space `of`. Afterwards none is under way.
    pub(super) async fn suspend(&self, of: Uuid) -> Vec<Suspended> {
        join_all(self.tops_of(of).iter().map(|top| top.0.suspend())).await
    }

    /// Requests to the bytes of a volume are held back until [`Trees::release`].
    pub(super) fn hold(&self, volume: Uuid, suspended: Vec<Suspended>) {
        let replaced = self.held.borrow_mut().insert(volume, suspended);
        assert!(replaced.is_none(), "SPLIT1 of `split.rs`: a mirror is held once");
    }

    /// Requests to the bytes of a volume go to `inside` from now on.
    pub(super) fn release(&self, volume: Uuid, inside: &Device) {
        let suspended = self.held.borrow_mut().remove(&volume).unwrap_or_default();
        self.assert_as_fine(volume, inside);
        suspended.iter().for_each(|suspended| suspended.replace(inside.clone()));
    }

    /// The volume is taken out of use: no request waits any more.
    pub(super) fn resume(&self, volume: Uuid) {
        self.held.borrow_mut().remove(&volume);
    }

    /// Panics if blocks became larger than doors were opened with (TREES4).
    fn assert_as_fine(&self, of: Uuid, inside: &Device) {
        let block_size = inside.shape().block_size;
        assert!(self.tops_of(of).iter().all(|top| top.shape().block_size >= block_size), "TREES4");
    }

    fn tops_of(&self, of: Uuid) -> Vec<Rc<Top>> {
        let tops = self.tops.borrow();
        tops.iter().filter(|(known, _)| *known == of).filter_map(|(_, top)| top.upgrade()).collect()
    }
}

/// `device`, for requests in blocks of `block_size` (TREES4).
pub(super) fn as_fine_as(block_size: u32, device: Device, arena: &Arena) -> Device {
    if block_size < device.shape().block_size { accept_unaligned(device, arena.clone()) } else { device }
}

impl BlockDevice for Top {
    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        self.0.submit(io)
    }

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        self.0.map(extent, intent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_block::Durability;
    use varve_sim::{DiskOptions, SimDisk, World};

    #[test]
    fn a_tree_that_is_built_anew_takes_requests_that_fit_the_one_before() {
        let world = World::new(1);
        let (trees, of, arena) = (Trees::default(), Uuid::nil(), world.arena());
        let add = |block_size| {
            let disk = SimDisk::with(DiskOptions { block_size, ..DiskOptions::sized(64 << 10) });
            trees.add(of, disk.device(&world), &arena)
        };
        let fine = add(512);
        let coarse = add(4096);
        assert!(coarse.shape().block_size <= 512, "TREES4");
        world.run(async {
            coarse.write(512, arena.copy(&[7; 512]), Durability::Durable).await.expect("TREES4");
            let found = coarse.read(0, arena.take(1536)).await.expect("TREES4");
            assert_eq!((found[511], found[512], found[1023], found[1024]), (0, 7, 7, 0));
        });
        drop((fine, coarse));
        assert_eq!(add(4096).shape().block_size, 4096, "nothing was given a finer shape any more");
    }
}
