//! Tests of the jobs in a group's text.

use super::*;
use crate::text::{
    Area, ConvertedPart, GroupEntry, Layout, LogicalVolumeEntry, MoveStep, PhysicalVolumeEntry, PvName, Role,
    Segment, TEXT_VERSION,
};
use varve_block::UnixTime;

const GOLDEN: &str = include_str!("../jobs.toml");

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn job(number: u64, subject: &str, work: JobWork) -> JobEntry {
    let (subject, started) = (subject.to_owned(), UnixTime(1_750_000_000 + number));
    JobEntry { id: number, subject, started, groups: Vec::new(), work }
}

fn removed(store: u128, numbers: &[u64]) -> RemovedSnapshots {
    RemovedSnapshots { volume: id(2), store: id(store), numbers: numbers.to_vec(), bytes: 8 << 20 }
}

fn scrub(rate: Option<u64>, mismatches: Option<u64>) -> JobWork {
    let position = mismatches.map(|mismatches| ScrubPosition {
        array: id(11),
        offset: 5 << 20,
        compared: 4 << 20,
        before: 96 << 20,
        mismatches,
        healed: 2,
        unread: 4096,
    });
    JobWork::Scrub { volume: id(10), check_only: rate.is_none(), rate, position }
}

fn disk(number: u32) -> PhysicalVolumeEntry {
    PhysicalVolumeEntry {
        name: PvName(number),
        id: id(0x100 + u128::from(number)),
        size: 1 << 30,
        data_offset: 1 << 20,
        extents: 255,
        path: format!("/dev/sd{number}"),
        missing: false,
        spare: false,
    }
}

fn area(pv: u32, start: u64) -> Area {
    Area { pv: PvName(pv), start, count: 8 }
}

fn volume(number: u128, start: u64) -> LogicalVolumeEntry {
    LogicalVolumeEntry {
        name: format!("vm{number}"),
        id: id(number),
        role: Role::Volume,
        layout: Layout::Linear,
        read_only: false,
        inactive: None,
        created: UnixTime(1_750_000_000),
        extents: 8,
        segments: vec![Segment::linear(area(0, start))],
        store_policy: None,
        array_policy: None,
        store: None,
        independent_stores: Vec::new(),
    }
}

/// Jobs that hold extents: one empties a disk, one converts a volume, one clears another.
fn holding() -> [JobEntry; 3] {
    let step = MoveStep { of: id(0x20), old: area(0, 0), new: area(1, 0) };
    let moved = MoveEntry { from: PvName(0), to: vec![PvName(1)], rate: Some(50 << 20), step: Some(step) };
    let part =
        ConvertedPart { of: id(0x21), layout: Layout::Linear, segments: vec![Segment::linear(area(1, 100))] };
    let (volume, parts) = (id(0x21), vec![part]);
    let converted = ConversionEntry { id: id(0xc0), volume, rate: None, switched: false, parts };
    [
        job(11, "pv0", JobWork::Move(moved)),
        job(12, "data/vm33", JobWork::Convert(converted)),
        job(13, "data/vm34", JobWork::Clear { volume: id(0x22), from: 2 }),
    ]
}

/// A group with a job of each kind.
fn sample() -> Description {
    let mut description = Description::new(GroupEntry {
        name: "data".into(),
        id: id(1),
        sequence: 9,
        extent_size: 4 << 20,
        created: UnixTime(1_750_000_000),
        changed: UnixTime(1_750_000_100),
        change: "snap rollback data/vm2@monday".into(),
        metadata: None,
        trash_keep_s: None,
    });
    let image = || "/srv/vm \"4\".qcow2".to_owned();
    let rollback = |mark, begun| JobWork::Rollback {
        volume: id(2),
        store: id(3),
        number: 4,
        bytes: 120 << 20,
        mark,
        begun,
    };
    let snapshots = vec![removed(3, &[1, 2, 7]), removed(4, &[1])];
    let mut removal = job(3, "data/vm1@a data/vm1@b other/vm@a", JobWork::RemoveSnapshots { snapshots });
    removal.groups = vec![id(1), id(5)];
    description.jobs = vec![
        removal,
        job(4, "data/vm1@monday", rollback(None, false)),
        job(8, "data/vm2@monday", rollback(Some(0), true)),
        job(5, "data/vm3@x", JobWork::Flatten { volume: id(6), pool: id(7), number: 11 }),
        job(6, "data/vm4", JobWork::FlattenImage { volume: id(8), image: image() }),
        job(7, "data/vm5", JobWork::CommitImage { volume: id(9), image: image() }),
        job(9, "data/safe", scrub(None, None)),
        job(10, "data/pool", scrub(Some(50 << 20), Some(0))),
    ];
    description.jobs.extend(holding());
    description.physical_volumes = vec![disk(0), disk(1)];
    description.logical_volumes = vec![volume(0x20, 0), volume(0x21, 20), volume(0x22, 40)];
    description.last_job = 14;
    description
}

#[test]
fn golden_text_of_jobs() {
    assert_eq!(sample().encode(), GOLDEN);
    assert_eq!(Description::decode(GOLDEN), Ok(sample()));
}

#[test]
fn jobs_have_no_fields_and_are_of_no_kind_that_is_not_known() {
    for (known, unknown) in
        [("numbers = ", "number = "), ("work.flatten]", "work.polish]"), ("subject", "object")]
    {
        assert!(GOLDEN.contains(known));
        let text = GOLDEN.replacen(known, unknown, 1);
        assert!(matches!(Description::decode(&text), Err(TextError::Syntax(_))), "{unknown}");
    }
}

#[test]
fn a_text_of_the_version_before_there_were_jobs_is_read_and_older_and_newer_ones_are_not() {
    let version = |number: i64| GOLDEN.replacen("version = 5", &format!("version = {number}"), 1);
    assert_eq!((TEXT_VERSION, Description::decode(&version(3))), (5, Ok(sample())));
    assert_eq!(Description::decode(&version(4)).map(|text| text.encode()), Ok(GOLDEN.to_owned()));
    assert_eq!(Description::decode(&version(2)), Err(TextError::Older(2)));
    let newer = Description::decode(&version(6)).expect_err("nobody knows it");
    assert!(newer.to_string().ends_with("this varve knows version 5: use the newer one"), "{newer}");
}

#[test]
fn a_text_in_which_work_stood_beside_the_jobs_is_refused_and_says_what_ends_it() {
    let entries =
        ["[[move]]\nfrom = \"pv0\"\n", "[[conversion]]\nid = 1\n", "[[logical_volume]]\nuncleared = 0\n"];
    for entry in entries {
        let older = GOLDEN.replacen("version = 5", "version = 4", 1) + entry;
        let refused = Description::decode(&older).expect_err("its form is another");
        assert_eq!(refused, TextError::WorkOfOlder(4));
        assert!(refused.to_string().ends_with("let the older one end that first"), "{refused}");
        let newer = Description::decode(&(GOLDEN.to_owned() + entry));
        assert!(matches!(newer, Err(TextError::Syntax(_))), "no field of this version: {newer:?}");
    }
}

type Broken = (fn(&mut Description), &'static str);

const BROKEN: &[Broken] = &[
    (|d| d.jobs[0].id = 0, "job 0: a job has a number of its own"),
    (|d| d.jobs[0].id = 15, "job 15: a job has a number of its own, from 1 to `last_job`"),
    (|d| d.jobs[1].id = 3, "job 3: a job has a number of its own"),
    (|d| d.last_job = u64::MAX, "the group: `last_job` is the number of no job"),
    (|d| d.jobs[1].subject.clear(), "job 4: `subject` is 1 to 1000 characters"),
    (|d| d.jobs[1].subject = "x".repeat(1001), "job 4: `subject` is 1 to 1000 characters"),
    (|d| d.jobs[1].subject = "x\ny".into(), "job 4: `subject` is 1 to 1000 characters on one line"),
    (|d| d.jobs[0].groups = vec![id(5)], "job 3: `groups` names this group and others"),
    (|d| *snapshots(d) = Vec::new(), "job 3: it removes snapshots, each once"),
    (|d| snapshots(d)[0].numbers.clear(), "job 3: it removes snapshots, each once"),
    (|d| snapshots(d)[0].numbers.push(7), "job 3: it removes snapshots, each once"),
    (|d| snapshots(d)[0].numbers.push(0), "job 3: it removes snapshots, each once"),
    (|d| snapshots(d)[1] = removed(3, &[2]), "job 3: it removes snapshots, each once"),
    (|d| snapshots(d)[1].bytes = u64::MAX, "job 3: it removes snapshots, each once"),
    (|d| snapshots(d)[1].numbers = (1..=8190).collect(), "the group: its jobs remove at most 8192 snapshots"),
    (
        |d| d.jobs[3].work = JobWork::Flatten { volume: id(6), pool: id(7), number: 0 },
        "job 5: what it copies",
    ),
    (
        |d| d.jobs[4].work = JobWork::FlattenImage { volume: id(8), image: "x".into() },
        "job 6: the path of its",
    ),
    (|d| d.jobs[5].work = JobWork::CommitImage { volume: id(8), image: "".into() }, "job 7: the path of its"),
    (|d| d.jobs[6].work = scrub(Some(0), None), "job 9: a scrub has a rate of at least one byte"),
    (|d| d.jobs[7].work = scrub(None, Some(u64::MAX)), "job 10: a scrub has a rate"),
    // Each is possible; what is compared next would be added to both.
    (|d| d.jobs[7].work = scrub(None, Some(i64::MAX.unsigned_abs())), "job 10: a scrub has a rate"),
    (|d| rollback(d, 0, 1, None), "job 4: it goes back to a snapshot"),
    (|d| rollback(d, 1, 0, None), "job 4: it goes back to a snapshot"),
    (|d| rollback(d, 1, 1, Some(u64::MAX)), "job 4: it goes back to a snapshot"),
    (|d| many(d, 65), "the group: it has at most 64 jobs beside"),
    (|d| d.jobs[8].id = 3, "job 3: a job has a number of its own"),
    (|d| d.jobs[9].groups = vec![id(1), id(5)], "job 12: a move, conversion or clearing is of one group"),
    (|d| d.jobs[8].work = d.jobs[9].work.clone(), "two things have the id"),
];

fn snapshots(description: &mut Description) -> &mut Vec<RemovedSnapshots> {
    match &mut description.jobs[0].work {
        JobWork::RemoveSnapshots { snapshots } => snapshots,
        _ => unreachable!("the first job removes snapshots"),
    }
}

fn rollback(description: &mut Description, number: u64, bytes: u64, mark: Option<u64>) {
    let (volume, store) = (id(2), id(3));
    description.jobs[1].work = JobWork::Rollback { volume, store, number, bytes, mark, begun: false };
}

fn many(description: &mut Description, count: u64) {
    let one = description.jobs[5].clone();
    description.jobs =
        (101..=100 + count).map(|id| JobEntry { id, ..one.clone() }).chain(holding()).collect();
    description.last_job = 100 + count;
}

#[test]
fn every_rule_of_jobs_is_checked() {
    for (change, words) in BROKEN {
        let mut description = sample();
        change(&mut description);
        let error = description.check().expect_err(words).to_string();
        assert!(error.starts_with(words), "TEXT25: {error}");
    }
    let mut most = sample();
    many(&mut most, 64);
    assert_eq!(Description::decode(&most.encode()), Ok(most));
    let mut most = sample();
    snapshots(&mut most)[1].numbers = (1..=8189).collect();
    let text = most.encode();
    assert!(text.len() < 100 << 10, "jobs leave most of a text to volumes: {}", text.len());
    assert_eq!(Description::decode(&text), Ok(most));
}
