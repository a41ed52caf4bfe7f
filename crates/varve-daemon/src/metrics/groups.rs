//! Groups, their disks, pools, and memory for metadata; and sums of the traffic of their volumes.

use super::tally::Sums;
use super::text::{Metric, Rows, TrafficNames, labels, traffic, traffic_names};
use std::collections::BTreeMap;
use varve_api::{
    Group, GroupMetadata, GroupState, PhysicalVolume, PhysicalVolumeState, Pool, Traffic, VolumeState,
};
use varve_block::host::DiskCounters;
use varve_control::{DiskFigures, Figures};
use varve_volume::doors::traffic::shown_latencies;

/// All of them, whatever volumes there are.
pub(super) fn all(figures: &Figures) -> Vec<Metric> {
    [groups, disks, caches, pools].into_iter().flat_map(|part| part(figures)).collect()
}

/// What went through the volumes of each group together.
pub(super) fn sums_of_groups(sums: &Sums) -> Vec<Metric> {
    let all = sums.iter().map(|(group, sum)| (labels(&[("group", group)]), sum)).collect();
    traffic(&traffic_names!("varve_group"), &all)
}

/// What went through the volumes of each pool together.
pub(super) fn sums_of_pools(sums: &Sums) -> Vec<Metric> {
    let all = sums.iter().map(|(pool, sum)| (labels(&[("pool", pool)]), sum)).collect();
    traffic(&traffic_names!("varve_pool"), &all)
}

/// Volume groups.
fn groups(figures: &Figures) -> Vec<Metric> {
    let mut volumes: BTreeMap<&str, u64> = BTreeMap::new();
    figures.volumes.iter().for_each(|volume| *volumes.entry(&volume.group).or_default() += 1);
    let rows: Rows<&Group> =
        figures.groups.iter().map(|group| (labels(&[("group", &group.name)]), group)).collect();
    let counted = |group: &&Group| volumes.get(group.name.as_str()).copied().unwrap_or(0);
    vec![
        rows.gauge("varve_group_bytes", "Bytes in all extents of the group.", |group| group.size),
        rows.gauge("varve_group_free_bytes", "Bytes in free extents.", |group| group.free),
        rows.gauge(
            "varve_group_ok",
            "Whether all disks of the group are there, and its last change reached them.",
            |group| u64::from(group.state == GroupState::Ok),
        ),
        rows.gauge("varve_group_volumes", "Volumes of the group.", counted),
    ]
}

/// Disks.
fn disks(figures: &Figures) -> Vec<Metric> {
    let label = |disk: &PhysicalVolume| {
        let path = disk.path.as_deref().unwrap_or(&disk.id);
        labels(&[("path", path), ("group", disk.group.as_deref().unwrap_or_default())])
    };
    let rows: Rows<&DiskFigures> = figures.disks.iter().map(|disk| (label(&disk.disk), disk)).collect();
    let mut metrics = vec![
        rows.gauge("varve_physical_volume_bytes", "Bytes for extents.", |disk| disk.disk.size),
        rows.gauge("varve_physical_volume_free_bytes", "Bytes in free extents.", |disk| disk.disk.free),
        rows.gauge("varve_physical_volume_ok", "Whether the disk is there and takes writes.", |disk| {
            u64::from(disk.disk.state == PhysicalVolumeState::Ok)
        }),
        rows.counter(
            "varve_physical_volume_slow_requests_total",
            "Requests on the disk that took a second or longer since it was opened.",
            |disk| disk.counters.slow,
        ),
        rows.counter(
            "varve_physical_volume_ejections_total",
            "How often arrays have gone on without what they have on the disk.",
            |disk| disk.disk.ejections,
        ),
    ];
    let shown: Vec<Traffic> = figures.disks.iter().map(|disk| disk_traffic(&disk.counters)).collect();
    let all = figures.disks.iter().map(|disk| label(&disk.disk)).zip(&shown).collect();
    metrics.extend(traffic(&traffic_names!("varve_physical_volume"), &all));
    metrics
}

fn disk_traffic(counters: &DiskCounters) -> Traffic {
    Traffic {
        reads: counters.reads,
        read_bytes: counters.read_bytes,
        writes: counters.writes,
        write_bytes: counters.written_bytes,
        flushes: counters.flushes,
        discards: counters.discards,
        errors: counters.errors,
        in_flight: counters.in_flight,
        latency: shown_latencies(&counters.latencies),
    }
}

/// What metadata of snapshot stores and pools takes in memory, by group.
fn caches(figures: &Figures) -> Vec<Metric> {
    let known = figures.groups.iter().filter_map(|group| Some((group, group.metadata.as_ref()?)));
    let rows: Rows<&GroupMetadata> =
        known.map(|(group, metadata)| (labels(&[("group", &group.name)]), metadata)).collect();
    vec![
        rows.gauge(
            "varve_metadata_cache_budget_bytes",
            "Metadata that the group's snapshot stores and pools may keep in memory.",
            |metadata| metadata.budget,
        ),
        rows.gauge("varve_metadata_cache_bytes", "Metadata that they keep in memory now.", |metadata| {
            metadata.memory.unwrap_or_default().in_use
        }),
        rows.counter(
            "varve_metadata_cache_hits_total",
            "How often metadata was wanted and was in memory, of the stores and pools now open.",
            |metadata| metadata.memory.unwrap_or_default().hits,
        ),
        rows.counter("varve_metadata_cache_misses_total", "How often it had to be read.", |metadata| {
            metadata.memory.unwrap_or_default().misses
        }),
        rows.counter(
            "varve_metadata_cache_evictions_total",
            "How often some was evicted to make room.",
            |metadata| metadata.memory.unwrap_or_default().evictions,
        ),
    ]
}

/// Thin pools.
fn pools(figures: &Figures) -> Vec<Metric> {
    let rows: Rows<&Pool> =
        figures.pools.iter().map(|pool| (labels(&[("pool", &pool.name)]), pool)).collect();
    vec![
        rows.gauge("varve_pool_bytes", "Size of the thin pool.", |pool| pool.size),
        rows.gauge("varve_pool_ok", "Whether the pool is active and takes changes.", |pool| {
            u64::from(pool.state == VolumeState::Active)
        }),
        rows.gauge("varve_pool_allocated_bytes", "Bytes that volumes and their maps take.", |pool| {
            pool.allocated
        }),
        rows.gauge("varve_pool_free_bytes", "Bytes that volumes may still take.", |pool| pool.free),
        rows.gauge("varve_pool_virtual_bytes", "Sum of the sizes of its volumes and snapshots.", |pool| {
            pool.virtual_size
        }),
        rows.gauge("varve_pool_paused", "Whether writes wait for space in the pool.", |pool| {
            u64::from(pool.paused)
        }),
        rows.counter("varve_pool_timeouts_total", "Writes that waited for space in vain.", |pool| {
            pool.timed_out
        }),
    ]
}
