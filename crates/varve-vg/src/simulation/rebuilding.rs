//! Groups that are rebuilt from backups that were taken while work was under way.

use super::{EXTENT, Lab, RING, content, stamp};
use crate::model::{Group, Job, JobWork, PvName, Role, SetMember, SnapshotSet, StorePolicy};
use crate::plan::{Change, ConversionStep, DiskChoice, JobStep, Layout, plan, under_way};
use crate::rebuild::rebuild;
use crate::size::SizeArgument;
use std::collections::BTreeMap;
use uuid::Uuid;
use varve_block::UnixTime;
use varve_sim::World;

fn after(group: &Group, change: Change) -> Group {
    plan(group, change, &stamp("test")).expect("possible").after
}

fn volume(name: &str, extents: u64, disk: u32) -> Change {
    Change::CreateVolume {
        name: name.into(),
        id: Uuid::from_u128(0x5000 + u128::from(name.as_bytes()[0])),
        size: SizeArgument::bytes(extents * EXTENT),
        role: Role::Volume,
        layout: Layout::Linear,
        policy: StorePolicy::default(),
        disks: DiskChoice { on: vec![PvName(disk)], ..DiskChoice::default() },
    }
}

/// `empty` with volumes of which one moves, one is converted, and one is cleared from its extent 2 on; with a job and a set.
fn busy(empty: &Group) -> Group {
    let mut group = empty.clone();
    for (name, disk) in [("a", 0), ("b", 1), ("d", 2)] {
        group = after(&group, volume(name, 4, disk));
    }
    let id = |group: &Group, name: &str| group.lv(name).expect("it is there").id;
    let (converted, marked) = (id(&group, "b"), id(&group, "d"));
    let begin = ConversionStep::Begin {
        job: 8,
        id: Uuid::from_u128(0xc0de),
        layout: Layout::Striped { stripes: 2, stripe_size: 4096 },
        disks: DiskChoice { on: vec![PvName(1), PvName(2)], ..DiskChoice::default() },
        rate: None,
    };
    let from = PvName(0);
    let work = JobWork::Flatten { volume: Uuid::from_u128(8), pool: Uuid::from_u128(9), number: 3 };
    let job = Job { id: 7, subject: "data/thin".into(), started: UnixTime(5), groups: Vec::new(), work };
    let members =
        vec![SetMember { volume: marked, store: Uuid::from_u128(8), after: 1, names: vec!["x".into()] }];
    let set = SnapshotSet { id: Uuid::from_u128(0x5e7), groups: Vec::new(), members };
    for change in [
        Change::Convert { volume: converted, step: begin },
        Change::BeginMove { job: 9, from, disks: DiskChoice::default(), rate: None },
        Change::MoveNext { from, sectors: BTreeMap::new(), bytes_max: u64::MAX },
        Change::Jobs(JobStep::Begin(job)),
        Change::BeginSnapshots { set },
    ] {
        group = after(&group, change);
    }
    let planned = plan(&group, Change::RenameGroup { to: "busy".into() }, &stamp("test")).expect("possible");
    planned.with_clearing(marked, 2, 10).expect("sound").after
}

#[test]
fn nothing_of_what_was_under_way_in_a_backup_goes_on_in_a_rebuilt_group() {
    let lab = Lab::new(World::new(7), 3);
    let open = lab.world.run(lab.create());
    let backup = busy(open.group());
    let said = under_way(backup.description());
    let named = ["the conversion of busy/b", "the move from pv0", "job 7", "busy/d was being cleared"];
    assert!(
        said.len() == 4 && said.iter().zip(named).all(|(words, name)| words.starts_with(name)),
        "{said:?}"
    );
    for disk in &lab.disks {
        disk.poke(RING.offset, &vec![0x55; usize::try_from(RING.length).expect("small")]);
    }
    let disks = lab.boot(&lab.all());
    let (taken, again) = (backup.description().clone(), stamp("restore"));
    let rebuilt = lab
        .world
        .run(rebuild(taken, disks, str::to_owned, &again, lab.world.arena()))
        .expect("all disks are here");
    let text = rebuilt.group().description();
    assert!(text.jobs.is_empty() && text.snapshot_sets.is_empty() && text.last_job == 10, "UNDERWAY1");
    assert_eq!(content(rebuilt.group()), content(&backup), "UNDERWAY1: what counted in the backup counts");
}
