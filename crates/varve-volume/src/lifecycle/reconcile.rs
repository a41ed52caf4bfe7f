//! What is served of a volume on its shard, compared with what the versions of its group say that may count.
//!
//! What differs is served no more: its gate is closed (VOLGATE1 of `gate.rs`).

use super::placement::PlacementState;
use crate::ShardContext;
use crate::fault;
use crate::spec::Wanted;
use crate::volume_stack::VolumeStack;
use uuid::Uuid;
use varve_vg::model::PvName;
use varve_vg::tree::StoreNode;

/// Compares what is served of a volume or pool with all that may count; `None` among these is a version that has no such
/// volume, or has it on missing disks. If it differs from one of them its gate is closed. Waits for nothing.
pub fn fence(context: &ShardContext, volume: Uuid, versions: &[Option<Wanted>]) -> PlacementState {
    let Some(served) = context.served(volume) else { return PlacementState::Same };
    context.done_with_all(); // Others are compared by the same work.
    let Some(own) = served.own() else { return PlacementState::Same }; // Its pool is compared.
    let compared = |wanted: &Wanted| served.compared(wanted);
    let each = versions.iter().map(|wanted| wanted.as_ref().map_or(PlacementState::Fenced, compared));
    let state = own.health.guard(|| {
        fault::panic_at(&volume.to_string(), "fence");
        each.max().unwrap_or(PlacementState::Fenced)
    });
    let Ok(state) = state else {
        own.gate.close();
        return PlacementState::Same; // It has failed: nothing is served of it any more.
    };
    if own.gate.is_closed() {
        return PlacementState::Fenced;
    }
    if state == PlacementState::Fenced {
        own.gate.close();
    }
    state
}

/// Members of the arrays of a volume or pool that lie on `disk` and are away catch up, as far as it is in use.
pub async fn take_back(context: &ShardContext, volume: Uuid, wanted: &Wanted, disk: PvName) {
    let Some(opened) = context.in_use(volume) else { return };
    let tables =
        std::iter::once(&wanted.node.table).chain(wanted.node.stores.iter().map(|store| &store.table));
    for target in tables.filter_map(|table| table.array()) {
        opened.take_back(target, &wanted.disks, disk).await;
    }
}

impl VolumeStack {
    /// The stores are compared by what they are and where they lie.
    pub(crate) fn compared(&self, wanted: &Wanted) -> PlacementState {
        let Some(main) =
            self.placement.borrow().as_ref().map(|placement| {
                placement.compared(&wanted.node.table, &wanted.disks, &self.opened().arrays)
            })
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
                open.placement.borrow().compared(&known.table, &wanted.disks, &self.opened().arrays)
            })
        };
        wanted.node.stores.iter().map(store).max().map_or(main, |worst| worst.max(main))
    }
}
