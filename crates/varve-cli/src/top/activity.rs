//! What went through the daemon between two samples of its counters, as data.

use crate::session::Session;
use serde::Serialize;
use std::collections::HashMap;
use tokio::time::Instant;
use varve_api::{
    DaemonStatus, Door, Export, Failure, Health, InGroup, Job, JobState, LogicalVolume, PhysicalVolume, Pool,
    Problem, Traffic, calls,
};

/// What the daemon says at one moment.
pub(super) struct Sample {
    at: Instant,
    status: DaemonStatus,
    volumes: Vec<LogicalVolume>,
    exports: Vec<Export>,
    disks: Vec<PhysicalVolume>,
    pools: Vec<Pool>,
    jobs: Vec<Job>,
}

/// What was done between two samples, and how things stand at the second.
#[derive(Serialize)]
pub(super) struct Activity {
    /// Seconds since 1970 when the daemon began to serve.
    pub(super) started: u64,
    /// Seconds between the samples.
    pub(super) seconds: f64,
    /// Whether anything needs a person.
    pub(super) health: Health,
    /// What does.
    pub(super) attention: Vec<Problem>,
    /// What went through all volumes.
    pub(super) total: Rates,
    /// The volumes, the busiest first.
    pub(super) volumes: Vec<VolumeActivity>,
    /// The exports, the busiest first.
    pub(super) exports: Vec<ExportActivity>,
    /// The disks.
    pub(super) disks: Vec<PhysicalVolume>,
    /// The pools.
    pub(super) pools: Vec<Pool>,
    /// The jobs that run.
    pub(super) jobs: Vec<Job>,
}

/// Requests and bytes in a second.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub(super) struct Rates {
    pub(super) reads: f64,
    pub(super) read_bytes: f64,
    pub(super) writes: f64,
    pub(super) write_bytes: f64,
    pub(super) flushes: f64,
    pub(super) discards: f64,
    pub(super) errors: f64,
}

/// What went through a volume.
#[derive(Serialize)]
pub(super) struct VolumeActivity {
    pub(super) name: String,
    pub(super) per_second: Rates,
    /// Of all its exports.
    pub(super) connections: u64,
    pub(super) snapshots: u32,
}

/// What went through an export.
#[derive(Serialize)]
pub(super) struct ExportActivity {
    pub(super) id: String,
    pub(super) volume: String,
    pub(super) door: Door,
    pub(super) connections: u64,
    pub(super) per_second: Rates,
}

impl Sample {
    /// Asks for everything.
    pub(super) async fn take(session: &Session) -> Result<Self, Failure> {
        Ok(Self {
            at: Instant::now(),
            status: session.ask(&calls::DaemonStatus()).await?,
            volumes: session.ask(&calls::ListVolumes(InGroup::default())).await?,
            exports: session.ask(&calls::ListExports()).await?,
            disks: session.ask(&calls::ListDisks()).await?,
            pools: session.ask(&calls::ListPools(InGroup::default())).await?,
            jobs: session.ask(&calls::ListJobs()).await?,
        })
    }

    /// What went through each volume and export until then, by identity. Another daemon has counters of its own.
    fn counts(&self, started: u64) -> HashMap<&str, &Traffic> {
        if self.status.started != started {
            return HashMap::new();
        }
        let volumes = self.volumes.iter().map(|volume| (volume.id.as_str(), &volume.traffic));
        volumes.chain(self.exports.iter().map(|export| (export.id.as_str(), &export.traffic))).collect()
    }
}

impl Activity {
    /// What was done between `before` and `now`.
    pub(super) fn between(before: &Sample, now: &Sample) -> Self {
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64();
        let counts = before.counts(now.status.started);
        let nothing = Traffic::default();
        let rates = |id: &str, traffic: &Traffic| {
            Rates::between(counts.get(id).copied().unwrap_or(&nothing), traffic, seconds)
        };
        let mut connections: HashMap<&str, u64> = HashMap::new();
        for export in &now.exports {
            *connections.entry(&export.volume).or_default() += export.connections;
        }
        let mut volumes: Vec<VolumeActivity> = now
            .volumes
            .iter()
            .map(|volume| VolumeActivity {
                name: volume.name.clone(),
                per_second: rates(&volume.id, &volume.traffic),
                connections: connections.get(volume.name.as_str()).copied().unwrap_or_default(),
                snapshots: volume.snapshots,
            })
            .collect();
        let mut exports: Vec<ExportActivity> = now
            .exports
            .iter()
            .map(|export| ExportActivity {
                id: export.id.clone(),
                volume: export.volume.clone(),
                door: export.door,
                connections: export.connections,
                per_second: rates(&export.id, &export.traffic),
            })
            .collect();
        volumes.sort_by(|one, other| other.per_second.by_load(&one.per_second));
        exports.sort_by(|one, other| other.per_second.by_load(&one.per_second));
        let total = volumes.iter().fold(Rates::default(), |total, volume| total.and(&volume.per_second));
        let is_running = |job: &&Job| job.state == JobState::Running;
        Self {
            started: now.status.started,
            seconds,
            health: now.status.health,
            attention: now.status.attention.clone(),
            total,
            volumes,
            exports,
            disks: now.disks.clone(),
            pools: now.pools.clone(),
            jobs: now.jobs.iter().filter(is_running).cloned().collect(),
        }
    }
}

impl Rates {
    /// Counters of a volume that was opened anew begin at nothing: what they count since is all that is known.
    fn between(before: &Traffic, now: &Traffic, seconds: f64) -> Self {
        let per_second = |count: fn(&Traffic) -> u64| {
            let (before, now) = (count(before), count(now));
            let more = if now < before { now } else { now - before };
            if seconds > 0.0 { more as f64 / seconds } else { 0.0 }
        };
        Self {
            reads: per_second(|it| it.reads),
            read_bytes: per_second(|it| it.read_bytes),
            writes: per_second(|it| it.writes),
            write_bytes: per_second(|it| it.write_bytes),
            flushes: per_second(|it| it.flushes),
            discards: per_second(|it| it.discards),
            errors: per_second(|it| it.errors),
        }
    }

    fn and(self, other: &Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            writes: self.writes + other.writes,
            write_bytes: self.write_bytes + other.write_bytes,
            flushes: self.flushes + other.flushes,
            discards: self.discards + other.discards,
            errors: self.errors + other.errors,
        }
    }

    /// Whether anything was asked.
    pub(super) fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    /// Bytes and requests in a second.
    fn load(&self) -> (f64, f64) {
        (self.read_bytes + self.write_bytes, self.reads + self.writes + self.flushes + self.discards)
    }

    /// In the order of their loads.
    fn by_load(&self, other: &Self) -> std::cmp::Ordering {
        let ((bytes, requests), (other_bytes, other_requests)) = (self.load(), other.load());
        bytes.total_cmp(&other_bytes).then(requests.total_cmp(&other_requests))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    fn volume(name: &str, traffic: &serde_json::Value) -> LogicalVolume {
        let policy = json!({"when_full": "pause", "pause_timeout_ms": 0, "auto_extend": null});
        serde_json::from_value(json!({
            "name": format!("data/{name}"), "id": name, "group": "data", "layout": "linear", "stripes": 1,
            "stripe_size": 0, "size": 4096, "state": "active", "created": 0, "shard": 0, "snapshots": 2,
            "snapshot_store": null, "snapshot_policy": policy, "exports": [], "segments": [], "traffic": traffic
        }))
        .expect("a volume")
    }

    pub(in crate::top) fn traffic(reads: u64, writes: u64, errors: u64) -> serde_json::Value {
        json!({"reads": reads, "read_bytes": reads * 4096, "writes": writes, "write_bytes": writes * 4096,
            "flushes": 0, "discards": 0, "errors": errors})
    }

    fn export(id: &str, volume: &str, connections: u64, traffic: &serde_json::Value) -> Export {
        serde_json::from_value(json!({
            "id": id, "volume": volume, "door": "nbd", "address": "unix:/a", "read_only": false, "state": "serving",
            "connections": connections, "traffic": traffic
        }))
        .expect("an export")
    }

    /// A sample `after` some seconds at a daemon that began at `started`.
    pub(in crate::top) fn sample(
        begun: Instant,
        after: u64,
        started: u64,
        volumes: &[(&str, serde_json::Value)],
    ) -> Sample {
        let status = json!({"version": "1", "pid": 7, "started": started, "shards": 2, "io": "ring",
            "state_dir": "/s", "health": "ok", "events": []});
        let exports = volumes
            .iter()
            .map(|(name, counts)| export(&format!("e-{name}"), &format!("data/{name}"), 3, counts));
        Sample {
            at: begun + Duration::from_secs(after),
            status: serde_json::from_value(status).expect("a status"),
            volumes: volumes.iter().map(|(name, counts)| volume(name, counts)).collect(),
            exports: exports.collect(),
            disks: Vec::new(),
            pools: Vec::new(),
            jobs: Vec::new(),
        }
    }

    #[test]
    fn rates_are_what_was_counted_between_two_samples_and_the_busiest_is_first() {
        let begun = Instant::now();
        let before = sample(begun, 0, 5, &[("a", traffic(10, 0, 0)), ("b", traffic(0, 100, 1))]);
        let now = sample(
            begun,
            4,
            5,
            &[("a", traffic(18, 4, 0)), ("b", traffic(0, 500, 3)), ("c", traffic(0, 8, 0))],
        );
        let activity = Activity::between(&before, &now);
        let told: Vec<_> = activity
            .volumes
            .iter()
            .map(|it| {
                (it.name.as_str(), it.per_second.reads, it.per_second.write_bytes, it.per_second.errors)
            })
            .collect();
        assert_eq!(
            told,
            [("data/b", 0.0, 409_600.0, 0.5), ("data/a", 2.0, 4096.0, 0.0), ("data/c", 0.0, 8192.0, 0.0)]
        );
        assert_eq!((activity.total.reads, activity.total.writes, activity.seconds), (2.0, 103.0, 4.0));
        let exports: Vec<_> = activity.exports.iter().map(|it| (it.id.as_str(), it.connections)).collect();
        assert_eq!(exports, [("e-b", 3), ("e-a", 3), ("e-c", 3)]);
        assert_eq!(activity.volumes[0].connections, 3);
    }

    #[test]
    fn another_daemon_and_a_volume_that_was_opened_anew_count_from_nothing() {
        let begun = Instant::now();
        let before = sample(begun, 0, 5, &[("a", traffic(1000, 0, 0))]);
        for (started, reads) in [(6, 2000), (5, 20)] {
            let now = sample(begun, 10, started, &[("a", traffic(reads, 0, 0))]);
            let activity = Activity::between(&before, &now);
            assert_eq!(activity.volumes[0].per_second.reads, reads as f64 / 10.0);
        }
        let same = Activity::between(&before, &sample(begun, 0, 5, &[("a", traffic(1001, 0, 0))]));
        assert!(same.total.is_idle(), "no time has passed: {}", same.total.reads);
    }
}
