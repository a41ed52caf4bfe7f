//! Volumes, what they have beside their traffic, and the exports that lead to them.

use super::text::{Metric, TrafficNames, counter, gauge, labels, traffic, traffic_names};
use varve_api::{Export, ExportState, LogicalVolume, Mapper, SnapshotStore, VolumeState};
use varve_control::Figures;

/// Volumes and their snapshot stores.
pub(super) fn volumes(figures: &Figures) -> Vec<Metric> {
    let sample = |value: fn(&LogicalVolume) -> u64| {
        let volumes = figures.volumes.iter();
        volumes.map(|volume| (labels(&[("volume", &volume.name)]), value(volume))).collect()
    };
    // Of all stores of a volume together.
    let store = |value: fn(&SnapshotStore) -> u64| {
        let of = |volume: &LogicalVolume| -> Option<u64> {
            let stores = || volume.snapshot_store.iter().chain(&volume.independent_stores);
            stores().next().map(|_| stores().map(value).sum())
        };
        let volumes = figures.volumes.iter();
        volumes
            .filter_map(|volume| Some((labels(&[("volume", &volume.name)]), of(volume)?)))
            .collect::<Vec<_>>()
    };
    let mut metrics = vec![
        gauge("varve_volume_bytes", "Size of the volume.", sample(|volume| volume.size)),
        gauge(
            "varve_volume_ok",
            "Whether the volume is active and takes changes.",
            sample(|volume| u64::from(volume.state == VolumeState::Active)),
        ),
        gauge(
            "varve_volume_snapshots",
            "Snapshots of the volume.",
            sample(|volume| u64::from(volume.snapshots)),
        ),
        gauge(
            "varve_snapshot_store_bytes",
            "Size of the volume's snapshot stores.",
            store(|store| store.size),
        ),
        gauge("varve_snapshot_store_used_bytes", "Bytes in use in them.", store(|store| store.used)),
        gauge(
            "varve_snapshot_store_paused",
            "Stores for which writes of the volume wait for space.",
            store(|store| u64::from(store.paused)),
        ),
        counter(
            "varve_snapshots_dropped_total",
            "Snapshots that were dropped for want of space.",
            store(|store| store.dropped),
        ),
        counter(
            "varve_snapshot_store_timeouts_total",
            "Writes that waited for space in vain.",
            store(|store| store.timed_out),
        ),
    ];
    let all: Vec<_> =
        figures.volumes.iter().map(|volume| (labels(&[("volume", &volume.name)]), &volume.traffic)).collect();
    metrics.extend(traffic(&traffic_names!("varve_volume"), &all));
    metrics
}

/// Of volumes that programs map.
pub(super) fn mappers(figures: &Figures) -> Vec<Metric> {
    let sample = |value: fn(&Mapper) -> u64| {
        let mapped = figures.volumes.iter().filter_map(|volume| Some((volume, volume.mapper.as_ref()?)));
        mapped.map(|(volume, mapper)| (labels(&[("volume", &volume.name)]), value(mapper))).collect()
    };
    vec![
        gauge(
            "varve_mapper_connected",
            "Whether there is a connection to the volume's mapper.",
            sample(|mapper| u64::from(mapper.connected)),
        ),
        gauge(
            "varve_mapper_answers",
            "Ranges of which the mapper's answers are kept.",
            sample(|mapper| mapper.answers),
        ),
        gauge(
            "varve_mapper_answers_unflushed",
            "Those of them that the mapper has not made durable.",
            sample(|mapper| mapper.unflushed),
        ),
        counter(
            "varve_mapper_questions_total",
            "Questions that the mapper was asked.",
            sample(|mapper| mapper.questions),
        ),
        counter(
            "varve_mapper_refused_total",
            "Answers of the mapper that named what they must not.",
            sample(|mapper| mapper.refused),
        ),
        counter(
            "varve_mapper_timeouts_total",
            "Requests that failed because the mapper did not answer in time.",
            sample(|mapper| mapper.timeouts),
        ),
    ]
}

/// Exports.
pub(super) fn exports(figures: &Figures) -> Vec<Metric> {
    let label = |export: &Export| {
        labels(&[("export", &export.id), ("volume", &export.volume), ("door", export.door.word())])
    };
    let sample = |value: fn(&Export) -> u64| {
        figures.exports.iter().map(|export| (label(export), value(export))).collect()
    };
    let mut metrics = vec![
        gauge(
            "varve_export_up",
            "Whether the export serves.",
            sample(|export| u64::from(export.state == ExportState::Serving)),
        ),
        gauge("varve_export_connections", "Connections now open.", sample(|export| export.connections)),
    ];
    let all: Vec<_> = figures.exports.iter().map(|export| (label(export), &export.traffic)).collect();
    metrics.extend(traffic(&traffic_names!("varve_export"), &all));
    metrics
}
