//! Volumes of a pool as they were at one instant, to be walked through while everything goes on.
//!
//! A walk closes no gate and holds no epoch guard: no write, clone or checkpoint waits for it. When others need the room
//! that it keeps it begins again, at a later instant; what was freed before can be taken then.

use super::super::committing::keeping::Keeping;
use super::super::{Pool, PoolError};
use super::ref_counts::RefCounts;
use crate::pdata::{self, Tree};
use std::cell::Cell;
use varve_block::yield_now;
use varve_format::thin::Origin;

/// How often a walk begins before it takes the pool for too full to be walked through.
const WALKS_MAX: u32 = 8;
/// After so many nodes a walk yields to other tasks.
const NODES_AT_ONCE: u64 = 4;

/// A volume at that instant.
#[derive(Clone, Copy)]
pub(in crate::thin) struct VolumeView {
    pub(in crate::thin) tree: Tree,
    /// Parts mapped to data.
    pub(in crate::thin) mapped: u64,
    pub(in crate::thin) over: Option<Origin>,
}

/// The maps of some volumes, and how many hold their nodes and blocks, at one instant.
pub(in crate::thin) struct ReadView<'a> {
    pub(in crate::thin) volumes: Vec<VolumeView>,
    pub(in crate::thin) ref_counts: RefCounts,
    nodes: Cell<u64>,
    _maps: pdata::ReadView,
    keeping: Keeping<'a>,
}

impl<'a> ReadView<'a> {
    fn open(pool: &'a Pool, ids: &[u64]) -> Result<Self, PoolError> {
        let volume = |id: &u64| {
            let volume = pool.volumes.find(*id)?;
            Ok(VolumeView { tree: volume.tree.get(), mapped: volume.mapped.get(), over: volume.over.get() })
        };
        let volumes = ids.iter().map(volume).collect::<Result<Vec<_>, PoolError>>()?;
        let ref_counts = pool.ref_counts.as_they_are();
        let roots: Vec<_> = volumes
            .iter()
            .map(|volume| volume.tree)
            .chain([ref_counts.root()])
            .map(|tree| tree.root)
            .collect();
        let keeping = Keeping::new(pool);
        let maps = pool.map.pages().read_view(&roots);
        assert_eq!(volumes.len(), ids.len(), "a view has each volume that was asked for");
        Ok(Self { volumes, ref_counts, nodes: Cell::new(0), _maps: maps, keeping })
    }

    /// Called before each node; every few nodes it yields to other tasks. `NoSpace` says that others need the room that is kept.
    pub(in crate::thin) async fn breathe(&self) -> Result<(), PoolError> {
        self.nodes.set(self.nodes.get() + 1);
        if self.nodes.get().is_multiple_of(NODES_AT_ONCE) {
            yield_now().await;
        }
        if self.keeping.is_room_needed() { Err(PoolError::NoSpace) } else { Ok(()) }
    }
}

impl Pool {
    /// Carries out `walk` over these volumes as they are at one instant. `NoSpace` says that the pool is so full that others
    /// need the room that walks keep, again and again.
    pub(in crate::thin) async fn walk<T>(
        &self,
        ids: &[u64],
        walk: impl AsyncFn(&ReadView<'_>) -> Result<T, PoolError>,
    ) -> Result<T, PoolError> {
        for _ in 0..WALKS_MAX {
            let outcome = {
                let view = ReadView::open(self, ids)?;
                walk(&view).await
            };
            match outcome {
                Err(PoolError::NoSpace) => self.checkpoint().await?,
                outcome => return outcome,
            }
        }
        Err(PoolError::NoSpace)
    }
}
