//! What is served of a volume on its shard, compared with what the versions of its group say that may count.
//!
//! What differs is served no more: its gate is closed (VOLGATE1 of `gate.rs`).

use super::health::Health;
use super::placement::PlacementState;
use crate::ShardContext;
use crate::doors::views::lead_to_errors;
use crate::fault;
use crate::opened::open_array::take_back_from;
use crate::spec::Disks;
use crate::volume_stack::VolumeStack;
use uuid::Uuid;
use varve_block::IoError;
use varve_target::snapshot::FullPolicy;
use varve_target::thin::WhenFull;
use varve_vg::model::PvName;
use varve_vg::tree::{StoreNode, VolumeNode};

/// What a version of a group says of a volume or pool.
#[derive(Clone)]
pub struct Wanted {
    /// What it is made of.
    pub node: VolumeNode,
    /// The group's disks.
    pub disks: Disks,
}

/// Compares what is served of a volume or pool with all that may count; `None` among these is a version that has no such
/// volume, or has it on missing disks. If it differs from one of them its gate is closed. Waits for nothing.
pub fn fence(context: &ShardContext, volume: Uuid, versions: &[Option<Wanted>]) -> PlacementState {
    let state = |health: &Health, compared: &dyn Fn(&Wanted) -> PlacementState| {
        let each = versions.iter().map(|wanted| wanted.as_ref().map_or(PlacementState::Fenced, compared));
        health.guard(|| {
            fault::panic_at(&volume.to_string(), "fence");
            each.max().unwrap_or(PlacementState::Fenced)
        })
    };
    let (state, gate) = if let Some(open) = context.pool(volume) {
        let compared = |wanted: &Wanted| {
            open.placement.borrow().compared(&wanted.node.table, &wanted.disks, &context.arrays)
        };
        (state(&open.health, &compared), open.gate.clone())
    } else if let Some(stack) = context.stack(volume) {
        (state(stack.health(), &|wanted| stack.compared(wanted)), stack.gate.clone())
    } else {
        return PlacementState::Same;
    };
    context.done_with_all(); // Others are compared by the same work.
    let Ok(state) = state else {
        gate.close();
        return PlacementState::Same; // It has failed: nothing is served of it any more.
    };
    if gate.is_closed() {
        return PlacementState::Fenced;
    }
    if state == PlacementState::Fenced {
        gate.close();
    }
    state
}

/// Lets what is served of a volume or pool be as large as its group says, which is more than before.
pub async fn grow(context: &ShardContext, volume: Uuid, wanted: &Wanted) -> Result<(), varve_api::Failure> {
    if let Some(open) = context.pool(volume) {
        return open.grown(&wanted.node.table, &wanted.disks).await;
    }
    let Some(stack) = context.stack(volume) else { return Ok(()) };
    stack.resize(&wanted.node.table, &wanted.disks).await?;
    for store in &wanted.node.stores {
        stack.grow_store(store.id, &store.table, &wanted.disks).await?;
    }
    Ok(())
}

/// Members of the arrays of a volume or pool that lie on `disk` and are away catch up, as far as it is in use.
pub async fn take_back(context: &ShardContext, volume: Uuid, wanted: &Wanted, disk: PvName) {
    let gate = match (context.pool(volume), context.stack(volume)) {
        (Some(open), _) => open.gate.clone(),
        (None, Some(stack)) => stack.gate.clone(),
        (None, None) => return,
    };
    let tables =
        std::iter::once(&wanted.node.table).chain(wanted.node.stores.iter().map(|store| &store.table));
    for target in tables.filter_map(|table| table.array()) {
        take_back_from(context, &gate, target, &wanted.disks, disk).await;
    }
}

/// Takes a volume or pool out of use whose gate is closed, or that is not to be written any more: requests under way end
/// first, later ones are answered `Gone`, until the volume is used again. Nothing happens if it is not in use.
pub async fn retire(context: &ShardContext, volume: Uuid) {
    context.moves.stop_copying(volume);
    let pool = context.state().pools.borrow_mut().remove(&volume);
    let stacks = context.state().take_stacks(volume);
    if let Some(open) = &pool {
        context.using(&open.health); // SHARDCALL1 of `handle.rs`: a panic is this pool's.
        open.gate.close();
        open.pool.set_when_full(WhenFull::Error);
    }
    for stack in stacks {
        context.using(stack.health());
        fault::panic_at(&volume.to_string(), "retire");
        stack.gate.close();
        stack.shut().await;
    }
    if let Some(open) = pool {
        open.close().await;
        open.pool.drop_origins();
        let _gone = context.arrays.close(volume).await; // Its gate is closed.
    }
    context.moves.forget(volume);
}

impl VolumeStack {
    /// The stores are compared by what they are and where they lie.
    fn compared(&self, wanted: &Wanted) -> PlacementState {
        let Some(main) = self
            .placement
            .borrow()
            .as_ref()
            .map(|placement| placement.compared(&wanted.node.table, &wanted.disks, &self.host.arrays))
        else {
            return PlacementState::Same; // Its pool is compared.
        };
        let stores = self.stores.borrow();
        if stores.len() != wanted.node.stores.len() {
            return PlacementState::Fenced;
        }
        let store = |known: &StoreNode| {
            let open = stores.iter().find(|open| open.id == known.id && open.kind == known.kind);
            open.map_or(PlacementState::Fenced, |open| {
                open.placement.borrow().compared(&known.table, &wanted.disks, &self.host.arrays)
            })
        };
        wanted.node.stores.iter().map(store).max().map_or(main, |worst| worst.max(main))
    }

    /// Answers `Gone` from now on; its top is kept for when the volume is used again.
    async fn shut(&self) {
        for open in self.stores.borrow().iter() {
            open.store.set_full_policy(FullPolicy::Error); // No request waits for space any more.
        }
        self.host.mappers.let_fail(self.id(), true);
        let suspended = self.suspend_doors().await;
        lead_to_errors(&suspended, IoError::Gone);
        self.note_loss();
        self.close().await;
    }
}
