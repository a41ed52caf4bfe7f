//! Volumes, what they have beside their traffic, and the exports that lead to them.

use super::text::{Metric, Rows, TrafficNames, labels, traffic, traffic_names};
use varve_api::{Export, ExportState, LogicalVolume, Mapper, SnapshotStore, VolumeState};
use varve_control::Figures;

/// Volumes and their snapshot stores.
pub(super) fn volumes(figures: &Figures) -> Vec<Metric> {
    let label = |volume: &LogicalVolume| labels(&[("volume", &volume.name)]);
    let rows: Rows<&LogicalVolume> = figures.volumes.iter().map(|volume| (label(volume), volume)).collect();
    let of = |volume| -> Vec<&SnapshotStore> { stores_of(volume).collect() };
    let stored = figures.volumes.iter().filter(|volume| stores_of(volume).next().is_some());
    let stores: Rows<Vec<&SnapshotStore>> = stored.map(|volume| (label(volume), of(volume))).collect();
    let sum = |value: fn(&SnapshotStore) -> u64| {
        move |stores: &Vec<&SnapshotStore>| stores.iter().map(|store| value(store)).sum()
    };
    let mut metrics = vec![
        rows.gauge("varve_volume_bytes", "Size of the volume.", |volume| volume.size),
        rows.gauge("varve_volume_ok", "Whether the volume is active and takes changes.", |volume| {
            u64::from(volume.state == VolumeState::Active)
        }),
        rows.gauge("varve_volume_snapshots", "Snapshots of the volume.", |volume| {
            u64::from(volume.snapshots)
        }),
        stores.gauge(
            "varve_snapshot_store_bytes",
            "Size of the volume's snapshot stores.",
            sum(|store| store.size),
        ),
        stores.gauge("varve_snapshot_store_used_bytes", "Bytes in use in them.", sum(|store| store.used)),
        stores.gauge(
            "varve_snapshot_store_paused",
            "Stores for which writes of the volume wait for space.",
            sum(|store| u64::from(store.paused)),
        ),
        stores.counter(
            "varve_snapshots_dropped_total",
            "Snapshots that were dropped for want of space.",
            sum(|store| store.dropped),
        ),
        stores.counter(
            "varve_snapshot_store_timeouts_total",
            "Writes that waited for space in vain.",
            sum(|store| store.timed_out),
        ),
    ];
    let all = figures.volumes.iter().map(|volume| (label(volume), &volume.traffic)).collect();
    metrics.extend(traffic(&traffic_names!("varve_volume"), &all));
    metrics
}

/// All stores of a volume.
fn stores_of(volume: &LogicalVolume) -> impl Iterator<Item = &SnapshotStore> {
    volume.snapshot_store.iter().chain(&volume.independent_stores)
}

/// Of volumes that programs map.
pub(super) fn mappers(figures: &Figures) -> Vec<Metric> {
    let mapped = figures.volumes.iter().filter_map(|volume| Some((volume, volume.mapper.as_ref()?)));
    let rows: Rows<&Mapper> =
        mapped.map(|(volume, mapper)| (labels(&[("volume", &volume.name)]), mapper)).collect();
    vec![
        rows.gauge(
            "varve_mapper_connected",
            "Whether there is a connection to the volume's mapper.",
            |mapper| u64::from(mapper.connected),
        ),
        rows.gauge("varve_mapper_answers", "Ranges of which the mapper's answers are kept.", |mapper| {
            mapper.answers
        }),
        rows.gauge(
            "varve_mapper_answers_unflushed",
            "Those of them that the mapper has not made durable.",
            |mapper| mapper.unflushed,
        ),
        rows.counter("varve_mapper_questions_total", "Questions that the mapper was asked.", |mapper| {
            mapper.questions
        }),
        rows.counter(
            "varve_mapper_refused_total",
            "Answers of the mapper that named what they must not.",
            |mapper| mapper.refused,
        ),
        rows.counter(
            "varve_mapper_timeouts_total",
            "Requests that failed because the mapper did not answer in time.",
            |mapper| mapper.timeouts,
        ),
    ]
}

/// Exports.
pub(super) fn exports(figures: &Figures) -> Vec<Metric> {
    let label = |export: &Export| {
        labels(&[("export", &export.id), ("volume", &export.volume), ("door", export.door.word())])
    };
    let rows: Rows<&Export> = figures.exports.iter().map(|export| (label(export), export)).collect();
    let mut metrics = vec![
        rows.gauge("varve_export_up", "Whether the export serves.", |export| {
            u64::from(export.state == ExportState::Serving)
        }),
        rows.gauge("varve_export_connections", "Connections now open.", |export| export.connections),
    ];
    let all = figures.exports.iter().map(|export| (label(export), &export.traffic)).collect();
    metrics.extend(traffic(&traffic_names!("varve_export"), &all));
    metrics
}
