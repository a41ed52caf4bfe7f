//! The text of a scrape: its form, and how long it may become.

use super::*;
use std::collections::BTreeSet;
use varve_api::{DaemonStatus, Export, Group, Health, LogicalVolume, Problem, ProblemKind, Severity};
use varve_block::ArenaUse;

fn status(attention: Vec<Problem>) -> DaemonStatus {
    DaemonStatus {
        version: "0.1.0".into(),
        trash: 0,
        pid: 1,
        started: 5,
        shards: 2,
        io: "ring".into(),
        state_dir: "/s".into(),
        health: Health::Ok,
        problems: vec![],
        attention,
        events: vec![],
    }
}

fn group(name: &str) -> Group {
    let shown = serde_json::json!({
        "name": name, "id": name, "state": "ok", "reason": null, "extent_size": 1, "size": 1, "free": 1, "sequence": 1,
        "physical_volumes": [], "volumes": [],
    });
    serde_json::from_value(shown).expect("a group")
}

/// A daemon with so many busy volumes, each exported, an array, and with a problem.
fn figures(count: u64) -> Figures {
    let traffic = |number: u64| {
        let latency = serde_json::json!({"counts": vec![number; 21], "nanoseconds": number});
        let latency = serde_json::json!({"reads": latency, "writes": latency, "flushes": latency});
        serde_json::json!({
            "reads": number, "read_bytes": 512 * number, "writes": 1, "write_bytes": 512, "flushes": 0, "discards": 0, "errors": 0,
            "in_flight": 1, "latency": latency,
        })
    };
    let member =
        |id: &str| serde_json::json!({"id": id, "disks": ["/d"], "missing": false, "state": "in-sync"});
    let volume = |number: u64| -> LogicalVolume {
        let shown = serde_json::json!({
            "name": format!("data/v{number:06}"), "id": number.to_string(), "group": "data", "layout": "mirror", "stripes": 1,
            "stripe_size": 0, "size": 1, "state": "active", "created": 0, "shard": 0, "snapshots": 0, "snapshot_store": null,
            "snapshot_policy": {"when_full": "pause", "pause_timeout_ms": 0, "auto_extend": null},
            "exports": [], "segments": [], "traffic": traffic(number),
            "array": {
                "layout": "mirror", "read_policy": "data", "slow_after_ms": 0, "resync_rate_min": 0,
                "members": [member("a"), member("b")],
            },
        });
        serde_json::from_value(shown).expect("a volume")
    };
    let export = |number: u64| -> Export {
        let shown = serde_json::json!({
            "id": format!("e{number:06}"), "volume": format!("data/v{number:06}"), "door": "nbd", "address": "unix:/s", "read_only": false,
            "state": "serving", "connections": 1, "traffic": traffic(number), "uri": "", "volume_id": "",
        });
        serde_json::from_value(shown).expect("an export")
    };
    let problem = |number: u64| Problem {
        kind: ProblemKind::ArrayDegraded,
        severity: Severity::Warning,
        noun: "lv".into(),
        name: format!("data/v{number:06}"),
        group: Some("data".into()),
        message: "is degraded".into(),
        help: String::new(),
        since: 0,
    };
    Figures {
        status: status((1..=count).map(problem).collect()),
        disks: vec![],
        groups: vec![group("data")],
        volumes: (1..=count).map(volume).collect(),
        pools: vec![],
        exports: (1..=count).map(export).collect(),
        arena: ArenaUse { capacity: 10, in_use: 3, overflow: 0 },
        jobs: vec![],
    }
}

fn text(count: u64, volumes: VolumeMetrics) -> String {
    render(figures(count), &mut Tally::default(), volumes, Duration::ZERO)
}

#[test]
fn every_sample_follows_its_help_and_type_and_each_name_comes_once() {
    let text = text(3, VolumeMetrics::All);
    let (mut kind, mut names) = (String::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            kind = rest.split(' ').next().unwrap_or_default().to_owned();
            assert!(names.insert(kind.clone()), "{kind} comes twice");
        } else if !line.starts_with('#') {
            assert!(line.starts_with(&kind), "{line} follows the type of {kind}");
        }
    }
    for sample in [
        "varve_buffer_in_use_bytes 3",
        r#"varve_build_info{version="0.1.0",io="ring"} 1"#,
        r#"varve_volume_reads_total{volume="data/v000002"} 2"#,
        r#"varve_volume_request_duration_seconds_bucket{volume="data/v000002",request="read",le="0.000064"} 4"#,
        r#"varve_export_requests_in_flight{export="e000003",volume="data/v000003",door="nbd"} 1"#,
        r#"varve_group_reads_total{group="data"} 6"#,
        r#"varve_array_members_in_sync{volume="data/v000001"} 2"#,
        r#"varve_problems_by_kind{kind="array-degraded",severity="warning"} 3"#,
    ] {
        assert!(text.lines().any(|line| line == sample), "{sample} is missing in\n{text}");
    }
}

#[test]
fn the_busiest_volumes_are_shown_and_all_are_in_the_sums() {
    let text = text(300, VolumeMetrics::Busiest(2));
    let shown = |start: &str| text.lines().filter(|line| line.starts_with(start)).collect::<Vec<_>>();
    let of = |number: u32| format!("varve_volume_reads_total{{volume=\"data/v{number:06}\"}} {number}");
    assert_eq!(shown("varve_volume_reads_total"), [of(299), of(300)]);
    assert_eq!(shown("varve_export_up").len(), 2);
    assert_eq!(shown("varve_group_reads_total"), [r#"varve_group_reads_total{group="data"} 45150"#]);
    assert_eq!(shown("varve_problems "), ["varve_problems 300"]);
    assert_eq!(shown("varve_problem{").len(), ROWS_MAX);
}

#[test]
fn a_scrape_of_ten_thousand_volumes_is_no_longer_than_one_of_a_thousand() {
    for (volumes, bytes_max) in [
        (VolumeMetrics::Busiest(100), 3 << 20),
        (VolumeMetrics::Group, 32 << 10),
        (VolumeMetrics::None, 32 << 10),
    ] {
        let (many, few) = (text(10_000, volumes).lines().count(), text(1_000, volumes).lines().count());
        assert_eq!(many, few, "METRICS1: {volumes:?}");
        let bytes = text(10_000, volumes).len();
        assert!((1_000..bytes_max).contains(&bytes), "METRICS1: {volumes:?}: {bytes} bytes");
    }
    let all = text(1_000, VolumeMetrics::All);
    assert_eq!(all.lines().filter(|line| line.starts_with("varve_volume_bytes{")).count(), 1_000);
    let none = text(10, VolumeMetrics::None);
    assert!(
        !none.contains("varve_group_reads_total")
            && text(10, VolumeMetrics::Group).contains("varve_group_reads_total")
    );
}

#[test]
fn groups_that_come_and_go_leave_nothing_in_a_scrape() {
    let mut tally = Tally::default();
    for number in 0..100 {
        let mut now = figures(1);
        let name = format!("g{number}");
        now.groups = vec![group(&name)];
        for volume in &mut now.volumes {
            (volume.id, volume.group) = (name.clone(), name.clone());
        }
        let text = render(now, &mut tally, VolumeMetrics::Group, Duration::ZERO);
        let sums: Vec<&str> =
            text.lines().filter(|line| line.starts_with("varve_group_reads_total")).collect();
        assert_eq!(sums, [format!("varve_group_reads_total{{group=\"{name}\"}} 1")], "TALLY4");
    }
}
