//! Independent snapshots: several stores side by side on one origin, each with its own copy of what changes.
//!
//! The contrast to dependent snapshots, which share one store: with N stores a first touch is copied N times, and in
//! exchange the damage of one store touches no other. The copies of one change are under way at the same time.
//!
//! Invariants:
//! - SIBLINGS1. The origin is changed only when every store says that what it needs is durable (SNAPSHOT1 for each).
//! - SIBLINGS2. A change is inside the gates of all stores or of none: a change that waits at one gate keeps no other from
//!   draining, or two stores that are frozen for one instant would wait for each other.
//! - SIBLINGS3. The origin never changes without a store's knowledge: a store that has siblings refuses to roll it back.

use super::places::first_of;
use super::{SnapshotStore, StoreError};
use crate::fan_out::fan_out;
use crate::space_waiters::SpaceWait;
use futures_util::future::join_all;
use std::rc::Rc;
use varve_block::{
    BlockDevice, Checked, Completion, Device, Extent, Io, IoError, MapAnswer, MapFuture, MapGuard, MapIntent,
    MapPiece, Outcome, Shape, TrackerGuard,
};
use varve_format::store::PART_SIZE;

struct SideBySide {
    stores: Vec<Rc<SnapshotStore>>,
    device: Device,
}

/// The origin of `stores`, which were all opened on the same one, for clients to use in place of
/// [`SnapshotStore::origin`]. Its shape is the present one; ask again after a resize.
pub fn side_by_side(stores: &[Rc<SnapshotStore>]) -> Result<Device, StoreError> {
    let first = stores.first().ok_or(StoreError::Misfit("there is no store"))?;
    let device = first.origin_device();
    if stores.iter().any(|store| store.origin_device().shape().size != device.shape().size) {
        return Err(StoreError::Misfit("the stores have different origins"));
    }
    if stores.len() > 1 && stores.iter().any(|store| store.rollback_status().is_some()) {
        return Err(StoreError::Busy); // SIBLINGS3
    }
    stores.iter().for_each(|store| store.has_siblings.set(stores.len() > 1));
    if stores.len() == 1 {
        return Ok(first.origin());
    }
    Ok(Device::new(SideBySide { stores: stores.to_vec(), device }))
}

impl SideBySide {
    fn try_enter(&self) -> Option<Vec<TrackerGuard>> {
        self.stores.iter().map(|store| store.changes.try_enter()).collect() // SIBLINGS2: what was entered is left
    }

    async fn enter(&self) -> Vec<TrackerGuard> {
        loop {
            if let Some(inside) = self.try_enter() {
                assert_eq!(inside.len(), self.stores.len(), "SIBLINGS2");
                return inside;
            }
            for store in &self.stores {
                drop(store.changes.enter().await); // SIBLINGS2
            }
        }
    }

    /// Whether some store needs a copy, or may need one.
    fn may_need_a_copy(&self, extent: Extent) -> bool {
        self.stores.iter().any(|store| store.may_miss(extent))
    }

    async fn needs_a_copy(&self, extent: Extent) -> Result<bool, IoError> {
        for store in &self.stores {
            if store.missing(extent).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// SIBLINGS1: what no store misses is overwritten on the device, inside the gates of all.
    async fn lead_writer(&self, extent: Extent) -> Result<MapAnswer, IoError> {
        let inside = self.enter().await;
        if self.needs_a_copy(extent).await? {
            return Ok(MapAnswer::sent(extent.length));
        }
        let piece = MapPiece::on(&self.device, extent.offset, extent.length);
        Ok(MapAnswer::new(piece, MapGuard::holding(inside)))
    }

    /// Frees what no snapshot needs of `extent`.
    async fn discard(&self, extent: Extent, inside: Option<Vec<TrackerGuard>>) -> Outcome {
        let _inside = match inside {
            Some(inside) => inside,
            None => self.enter().await,
        };
        let mut spared = vec![extent];
        for store in &self.stores {
            let needed = store.missing(extent).await?.map(|(_, missing)| missing).unwrap_or_default();
            spared = spared.into_iter().flat_map(|extent| extent.without(&needed)).collect();
        }
        assert!(spared.iter().all(|part| extent.contains(*part)), "SIBLINGS1: what one of them needs stays");
        fan_out(spared.into_iter().map(|extent| (&self.device, Io::Discard { extent }))).await
    }

    async fn change(&self, io: Io, inside: Option<Vec<TrackerGuard>>) -> Outcome {
        let extent = io.extent();
        let (mut inside, mut attempts) = (inside, Vec::new());
        attempts.resize_with(self.stores.len(), SpaceWait::default);
        loop {
            let entered = match inside.take() {
                Some(inside) => inside,
                None => self.enter().await,
            };
            if let Io::Zero { options, .. } = &io
                && options.fast
                && self.needs_a_copy(extent).await?
            {
                return Err(IoError::Unsupported);
            }
            for (store, attempt) in self.stores.iter().zip(&mut attempts) {
                store.waiters.begin(attempt);
            }
            let copies = join_all(self.stores.iter().map(|store| store.preserve(extent))).await;
            match copies.iter().position(|copy| copy.is_err()) {
                None => {
                    if self.needs_a_copy(extent).await? {
                        let found = "some of it is not";
                        return Err(self.stores[0].contradicts(
                            0,
                            extent,
                            "SIBLINGS1: all of it is preserved",
                            &found,
                        ));
                    }
                    return self.device.submit(io).await;
                }
                Some(store) if copies[store] == Err(IoError::NoSpace) => {
                    drop(entered); // STOREFULL1
                    let bytes = extent.align_out(PART_SIZE).length;
                    self.stores[store].make_room(&mut attempts[store], bytes).await?;
                }
                Some(store) => copies[store]?,
            }
        }
    }
}

impl BlockDevice for SideBySide {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let io = io.into_io();
        match &io {
            Io::Flush | Io::Read { .. } => return self.device.submit(io),
            Io::Write { .. } | Io::Zero { .. } | Io::Discard { .. } => {}
        }
        let inside = self.try_enter();
        if inside.is_none() || self.may_need_a_copy(io.extent()) {
            return match io {
                Io::Discard { extent } => Completion::pending(self.discard(extent, inside)),
                io => Completion::pending(self.change(io, inside)),
            };
        }
        self.device.submit(io).keeping(inside)
    }

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        match intent {
            MapIntent::Inspect | MapIntent::Read => {
                MapAnswer::through(&self.device, extent.offset, extent.length).ready()
            }
            MapIntent::Overwrite => Box::pin(self.lead_writer(first_of(extent))),
        }
    }
}
