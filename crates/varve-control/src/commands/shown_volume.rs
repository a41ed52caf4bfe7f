//! A volume as it is shown to users and programs.

use super::layout::{shown_array, shown_image, state_with_array};
use super::policy::shown_policy;
use crate::backing::mappers::{shown_mapper, state_with_mapper};
use crate::find::LocatedVolume;
use crate::group::activation::state_of;
use crate::group::known_group::KnownGroup;
use crate::status::watch::Watch;
use varve_api::{Layout as ShownLayout, LogicalVolume as ShownVolume, Segment, SnapshotStore, ThinUse};
use varve_vg::model::{self, LogicalVolume, Store};
use varve_volume::volume_stack::VolumeFacts;

/// Where a volume or pool is.
pub(crate) fn shown_segments(known: &KnownGroup, volume: &LogicalVolume) -> Vec<Segment> {
    let mut offset = 0;
    let segments = volume.segments.iter().map(|segment| {
        let length = known.group.bytes(volume.layout.extents_of(segment));
        let shown = Segment { offset, length, areas: shown_areas(known, segment) };
        offset += length;
        shown
    });
    segments.collect()
}

fn shown_areas(known: &KnownGroup, segment: &model::Segment) -> Vec<String> {
    let place = |area: &model::Area| {
        let Some(disk) = known.group.pv(area.pv) else { return area.to_string() };
        let path = known.paths.get(&disk.id).unwrap_or(&disk.path);
        format!("{path}:{}", disk.data_offset + known.group.bytes(area.start))
    };
    segment.areas.iter().map(place).collect()
}

pub(crate) fn shown_volume(
    located: &LocatedVolume,
    known: &KnownGroup,
    facts: &VolumeFacts,
    watch: &Watch,
) -> ShownVolume {
    let (volume, group) = (&located.volume, known.group.name());
    let pool = known.group.logical_volumes().iter().find(|volume| volume.id == located.pool());
    let pool = pool.filter(|_| located.thin.is_some()).map(|pool| format!("{group}/{}", pool.name));
    let state = state_of(located.unusable.as_ref(), facts.failure);
    let mut state = state_with_array(state, ("its array", facts.array.as_ref()));
    for store in &facts.stores {
        state = state_with_array(state, ("the array of its snapshot store", store.array.as_ref()));
    }
    let (state, reason) = state_with_mapper(state, facts.mapper.as_ref());
    let (stripes, stripe_size) = match volume.layout {
        model::Layout::Striped { stripe_size } => {
            (volume.segments.last().map_or(1, |segment| segment.areas.len()), stripe_size)
        }
        _ => (1, 0),
    };
    ShownVolume {
        name: format!("{group}/{}", volume.name),
        id: volume.id.to_string(),
        group: group.to_owned(),
        layout: shown_layout(located),
        stripes: u32::try_from(stripes).unwrap_or(u32::MAX),
        stripe_size,
        size: located.size(),
        state,
        reason,
        created: volume.created.0,
        shard: u32::try_from(located.home.index()).unwrap_or(u32::MAX),
        snapshots: facts.snapshots,
        snapshot_store: volume.store.as_ref().map(|store| shown_store(located, facts, store)),
        independent_stores: volume
            .independent_stores
            .iter()
            .map(|store| shown_store(located, facts, store))
            .collect(),
        snapshot_policy: shown_policy(volume.store_policy.unwrap_or_default()),
        thin: facts.thin.zip(pool).map(|(thin, pool)| ThinUse {
            pool,
            mapped: thin.mapped,
            exclusive: thin.exclusive,
            shared: thin.shared,
            origin: None,
        }),
        exports: Vec::new(),
        image: shown_image(&volume.layout, watch),
        array: shown_array(known, volume, volume.space(), facts.array.as_ref()),
        mapper: shown_mapper(known, volume, facts.mapper.as_ref()),
        granted_to: known.group.granted_to(volume.id).map(|to| format!("{group}/{}", to.name)),
        segments: shown_segments(known, volume),
        traffic: facts.traffic.clone(),
    }
}

fn shown_layout(located: &LocatedVolume) -> ShownLayout {
    match located.volume.layout {
        _ if located.thin.is_some() => ShownLayout::Thin,
        model::Layout::Linear => ShownLayout::Linear,
        model::Layout::Striped { .. } => ShownLayout::Striped,
        model::Layout::Zero => ShownLayout::Zero,
        model::Layout::Error => ShownLayout::Error,
        model::Layout::Image { .. } => ShownLayout::Image,
        model::Layout::Mirror { .. } => ShownLayout::Mirror,
        model::Layout::Ddraid { .. } => ShownLayout::Ddraid,
        model::Layout::Mapper { .. } => ShownLayout::Mapper,
    }
}

fn shown_store(located: &LocatedVolume, facts: &VolumeFacts, store: &Store) -> SnapshotStore {
    match facts.stores.iter().find(|facts| facts.id == store.id) {
        Some(facts) => SnapshotStore {
            size: facts.size,
            used: facts.used,
            chunk_size: facts.chunk_size,
            paused: facts.is_paused,
            refusing: facts.is_refusing,
            can_grow: facts.can_grow,
            dropped: facts.dropped,
            timed_out: facts.timed_out,
        },
        None => SnapshotStore {
            size: store.extents * located.extent_size,
            used: 0,
            chunk_size: store.chunk_size,
            paused: false,
            refusing: false,
            can_grow: true,
            dropped: 0,
            timed_out: 0,
        },
    }
}
