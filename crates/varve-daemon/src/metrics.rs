//! Counters in Prometheus' text exposition form.

use std::fmt::Write;
use varve_api::{
    Export, ExportState, Group, GroupMetadata, GroupState, LogicalVolume, Mapper, PhysicalVolume,
    PhysicalVolumeState, Pool, Problem, SnapshotStore, Traffic, VolumeState,
};
use varve_control::Figures;

/// One metric: its samples are label texts and values.
struct Metric {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    samples: Vec<(String, u64)>,
}

/// The text.
pub(crate) fn render(figures: &Figures) -> String {
    let mut text = String::new();
    let metrics = program(figures).into_iter().chain(groups(figures)).chain(caches(figures));
    let metrics = metrics.chain(volumes(figures));
    for metric in metrics.chain(pools(figures)).chain(exports(figures)) {
        let _ =
            writeln!(text, "# HELP {} {}\n# TYPE {} {}", metric.name, metric.help, metric.name, metric.kind);
        for (labels, value) in &metric.samples {
            let _ = writeln!(text, "{}{labels} {value}", metric.name);
        }
    }
    text
}

fn gauge(name: &'static str, help: &'static str, samples: Vec<(String, u64)>) -> Metric {
    Metric { name, help, kind: "gauge", samples }
}

fn counter(name: &'static str, help: &'static str, samples: Vec<(String, u64)>) -> Metric {
    Metric { name, help, kind: "counter", samples }
}

fn program(figures: &Figures) -> Vec<Metric> {
    let version = labels(&[("version", &figures.status.version), ("io", &figures.status.io)]);
    let one = |value: u64| vec![(String::new(), value)];
    let problems = &figures.status.attention;
    let of_problem = |problem: &Problem| {
        let group = problem.group.as_deref().unwrap_or_default();
        let what = [("noun", problem.noun.as_str()), ("name", &problem.name), ("group", group)];
        let severity = ("severity", problem.severity.word());
        labels(&[("kind", problem.kind.word()), what[0], what[1], what[2], severity])
    };
    let each = problems.iter().map(|problem| (of_problem(problem), 1)).collect();
    vec![
        gauge("varve_build_info", "Always 1; the labels tell what runs.", vec![(version, 1)]),
        gauge("varve_start_time_seconds", "When the daemon began to serve.", one(figures.status.started)),
        gauge("varve_shards", "Threads that serve volumes.", one(u64::from(figures.status.shards))),
        gauge("varve_problems", "Things that are not as they should be.", one(problems.len() as u64)),
        gauge("varve_problem", "Always 1: one for each of these, as long as it lasts.", each),
        gauge("varve_jobs_running", "Jobs at work.", one(figures.jobs_running)),
        gauge("varve_buffer_bytes_capacity", "Memory set aside for requests.", one(figures.arena.capacity)),
        gauge("varve_buffer_bytes_in_use", "Memory that requests hold now.", one(figures.arena.in_use)),
        gauge(
            "varve_buffer_bytes_overflow",
            "Memory beyond what was set aside.",
            one(figures.arena.overflow),
        ),
    ]
}

fn groups(figures: &Figures) -> Vec<Metric> {
    let sample = |value: fn(&Group) -> u64| {
        figures.groups.iter().map(|group| (labels(&[("group", &group.name)]), value(group))).collect()
    };
    vec![
        gauge("varve_group_bytes", "Bytes in all extents of the group.", sample(|group| group.size)),
        gauge("varve_group_bytes_free", "Bytes in free extents.", sample(|group| group.free)),
        gauge(
            "varve_group_ok",
            "Whether all disks of the group are there, and its last change reached them.",
            sample(|group| u64::from(group.state == GroupState::Ok)),
        ),
        gauge(
            "varve_physical_volume_ok",
            "Whether the disk is there and takes writes.",
            of_disks(figures, |disk| u64::from(disk.state == PhysicalVolumeState::Ok)),
        ),
        counter(
            "varve_physical_volume_errors_total",
            "Requests on the disk that failed since it was opened.",
            of_disks(figures, |disk| disk.errors),
        ),
        counter(
            "varve_physical_volume_slow_requests_total",
            "Requests on the disk that took a second or longer since it was opened.",
            of_disks(figures, |disk| disk.slow),
        ),
        counter(
            "varve_physical_volume_ejections_total",
            "How often arrays have gone on without what they have on the disk.",
            of_disks(figures, |disk| disk.ejections),
        ),
    ]
}

/// A value of each disk of each group.
fn of_disks(figures: &Figures, value: fn(&PhysicalVolume) -> u64) -> Vec<(String, u64)> {
    let disks = figures.groups.iter().flat_map(|group| &group.physical_volumes);
    let sample = |disk: &PhysicalVolume| {
        let path = disk.path.as_deref().unwrap_or(&disk.id);
        let group = disk.group.as_deref().unwrap_or_default();
        (labels(&[("path", path), ("group", group)]), value(disk))
    };
    disks.map(sample).collect()
}

/// What metadata of snapshot stores and pools takes in memory, by group.
fn caches(figures: &Figures) -> Vec<Metric> {
    let sample = |value: fn(&GroupMetadata) -> u64| {
        let known = figures.groups.iter().filter_map(|group| Some((group, group.metadata.as_ref()?)));
        known.map(|(group, metadata)| (labels(&[("group", &group.name)]), value(metadata))).collect()
    };
    vec![
        gauge(
            "varve_metadata_cache_budget_bytes",
            "Metadata that the group's snapshot stores and pools may keep in memory.",
            sample(|metadata| metadata.budget),
        ),
        gauge(
            "varve_metadata_cache_bytes",
            "Metadata that they keep in memory now.",
            sample(|metadata| metadata.memory.unwrap_or_default().in_use),
        ),
        counter(
            "varve_metadata_cache_hits_total",
            "How often metadata was wanted and was in memory, of the stores and pools now open.",
            sample(|metadata| metadata.memory.unwrap_or_default().hits),
        ),
        counter(
            "varve_metadata_cache_misses_total",
            "How often it had to be read.",
            sample(|metadata| metadata.memory.unwrap_or_default().misses),
        ),
        counter(
            "varve_metadata_cache_evictions_total",
            "How often some was evicted to make room.",
            sample(|metadata| metadata.memory.unwrap_or_default().evictions),
        ),
    ]
}

fn volumes(figures: &Figures) -> Vec<Metric> {
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
    let mut metrics = mappers(figures);
    metrics.extend([
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
        gauge("varve_snapshot_store_bytes_used", "Bytes in use in them.", store(|store| store.used)),
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
    ]);
    let traffic: Vec<_> = figures
        .volumes
        .iter()
        .map(|volume| (labels(&[("volume", &volume.name)]), volume.traffic.clone()))
        .collect();
    metrics.extend(counters(VOLUME_NAMES, &traffic));
    metrics
}

/// Of volumes that programs map.
fn mappers(figures: &Figures) -> Vec<Metric> {
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

fn pools(figures: &Figures) -> Vec<Metric> {
    let sample = |value: fn(&Pool) -> u64| {
        figures.pools.iter().map(|pool| (labels(&[("pool", &pool.name)]), value(pool))).collect::<Vec<_>>()
    };
    let timeouts = Metric {
        name: "varve_pool_timeouts_total",
        help: "Writes that waited for space in vain.",
        kind: "counter",
        samples: sample(|pool| pool.timed_out),
    };
    vec![
        gauge("varve_pool_bytes", "Size of the thin pool.", sample(|pool| pool.size)),
        gauge(
            "varve_pool_ok",
            "Whether the pool is active and takes changes.",
            sample(|pool| u64::from(pool.state == VolumeState::Active)),
        ),
        gauge(
            "varve_pool_bytes_allocated",
            "Bytes that volumes and their maps take.",
            sample(|pool| pool.allocated),
        ),
        gauge("varve_pool_bytes_free", "Bytes that volumes may still take.", sample(|pool| pool.free)),
        gauge(
            "varve_pool_bytes_virtual",
            "Sum of the sizes of its volumes and snapshots.",
            sample(|pool| pool.virtual_size),
        ),
        gauge(
            "varve_pool_paused",
            "Whether writes wait for space in the pool.",
            sample(|pool| u64::from(pool.paused)),
        ),
        timeouts,
    ]
}

fn exports(figures: &Figures) -> Vec<Metric> {
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
    let traffic: Vec<_> =
        figures.exports.iter().map(|export| (label(export), export.traffic.clone())).collect();
    metrics.extend(counters(EXPORT_NAMES, &traffic));
    metrics
}

const VOLUME_NAMES: [&str; 7] = [
    "varve_volume_reads_total",
    "varve_volume_read_bytes_total",
    "varve_volume_writes_total",
    "varve_volume_written_bytes_total",
    "varve_volume_flushes_total",
    "varve_volume_discards_total",
    "varve_volume_errors_total",
];

const EXPORT_NAMES: [&str; 7] = [
    "varve_export_reads_total",
    "varve_export_read_bytes_total",
    "varve_export_writes_total",
    "varve_export_written_bytes_total",
    "varve_export_flushes_total",
    "varve_export_discards_total",
    "varve_export_errors_total",
];

fn counters(names: [&'static str; 7], traffic: &[(String, Traffic)]) -> Vec<Metric> {
    type Value = fn(&Traffic) -> u64;
    let kinds: [(&'static str, Value); 7] = [
        ("Read requests.", |traffic| traffic.reads),
        ("Bytes read.", |traffic| traffic.read_bytes),
        ("Write requests, zeroes included.", |traffic| traffic.writes),
        ("Bytes written, zeroes included.", |traffic| traffic.write_bytes),
        ("Flushes.", |traffic| traffic.flushes),
        ("Discards.", |traffic| traffic.discards),
        ("Requests that failed.", |traffic| traffic.errors),
    ];
    let metric = |(name, (help, value)): (&'static str, (&'static str, Value))| {
        let samples = traffic.iter().map(|(labels, traffic)| (labels.clone(), value(traffic))).collect();
        Metric { name, help, kind: "counter", samples }
    };
    names.into_iter().zip(kinds).map(metric).collect()
}

/// `{name="value",…}` with what must be escaped escaped.
fn labels(pairs: &[(&str, &str)]) -> String {
    let escape = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_api::{DaemonStatus, Health};
    use varve_block::ArenaUse;

    #[test]
    fn every_sample_follows_its_help_and_type() {
        let status = DaemonStatus {
            version: "0.1.0".into(),
            pid: 1,
            started: 5,
            shards: 2,
            io: "ring".into(),
            state_dir: "/s".into(),
            health: Health::Ok,
            problems: vec![],
            attention: vec![],
            events: vec![],
        };
        let arena = ArenaUse { capacity: 10, in_use: 3, overflow: 0 };
        let figures = Figures {
            status,
            groups: vec![],
            volumes: vec![],
            pools: vec![],
            exports: vec![],
            arena,
            jobs_running: 0,
        };
        let text = render(&figures);
        let mut kind = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                kind = rest.split(' ').next().unwrap_or_default().to_owned();
            } else if !line.starts_with('#') {
                assert!(line.starts_with(&kind), "{line} follows the type of {kind}");
            }
        }
        assert!(text.contains("varve_buffer_bytes_in_use 3\n"));
        assert!(text.contains(r#"varve_build_info{version="0.1.0",io="ring"} 1"#));
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(labels(&[("a", "x\"\\\n")]), r#"{a="x\"\\\n"}"#);
    }
}
