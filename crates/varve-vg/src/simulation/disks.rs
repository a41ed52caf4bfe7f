//! Disks that are not what they should be: foreign, small, cut short, copied, old, damaged, read-only, of two groups.

use super::{EXTENT, EXTENTS, Lab, RING, content, group_plan, pv_id, stamp};
use crate::disks::create::{CreateProblem, NewLabel, create, examine, remove};
use crate::disks::disk::{read_label, write_label};
use crate::disks::relabel::{LabelSource, RelabelError, find_label, write_found};
use crate::model::{PvName, Role, StorePolicy};
use crate::plan::{Change, DiskChoice, Layout, plan, plan_group};
use crate::rebuild::{RebuildError, rebuild};
use crate::size::SizeArgument;
use crate::table::{Parts, table};
use crate::{
    Absent, ActiveVolume, CommitError, Disk, DiskProblem, FreeDisk, GroupProblem, Note, OpenGroup,
    ReadProblem, Survey, scan,
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;
use varve_block::{Access, Durability, Extent, UnixTime};
use varve_format::{BLOCK_SIZE, LABEL_ADDRESSES, Label, LabelError, RING_BLOCKS_MIN, Slot, text_length_max};
use varve_sim::{DiskOptions, FaultBudget, FaultPlan, SimDisk, World, for_each_crash_state};

const NEW: NewLabel = NewLabel { id: Uuid::from_u128(0x1000), created: UnixTime(1), overwrite: false };
const SIZE: u64 = 8 << 20;

fn lab(count: usize) -> Lab {
    Lab::new(World::new(7), count)
}

impl Lab {
    fn survey(&self, numbers: impl IntoIterator<Item = usize>) -> Survey {
        let numbers: BTreeSet<usize> = numbers.into_iter().collect();
        self.world.run(scan(self.boot(&numbers), &self.world.arena()))
    }

    fn only_group(&self, numbers: impl IntoIterator<Item = usize>) -> OpenGroup {
        let mut survey = self.survey(numbers);
        assert!(survey.refused.is_empty(), "{:?}", survey.refused);
        assert_eq!(survey.groups.len(), 1);
        survey.groups.remove(0)
    }

    fn reconcile(&self, open: &mut OpenGroup, absent: Absent) -> Result<(), CommitError> {
        self.world.run(open.reconcile(absent, &stamp("activate")))
    }

    fn apply(&self, open: &mut OpenGroup, change: Change) {
        let made = plan(open.group(), change, &stamp("test")).expect("possible");
        self.world.run(open.apply(made, Vec::new())).expect("no faults");
    }
}

fn volume(name: &str, extents: u64) -> Change {
    let id = Uuid::from_u128(0x5000 + u128::from(name.as_bytes()[0]));
    let size = SizeArgument::bytes(extents * EXTENT);
    Change::CreateVolume {
        name: name.into(),
        id,
        size,
        role: Role::Volume,
        layout: Layout::Linear,
        policy: StorePolicy::default(),
        disks: DiskChoice::default(),
    }
}

/// What making a physical volume of a disk with `bytes` at `offset` says.
fn make_on(options: DiskOptions, offset: u64, bytes: &[u8], new: NewLabel) -> Result<(), CreateProblem> {
    let world = World::new(1);
    let sim = SimDisk::with(options);
    let sector = offset / 512 * 512;
    let end = (offset + bytes.len() as u64).next_multiple_of(512);
    let mut content = sim.peek(Extent::between(sector, end));
    let at = usize::try_from(offset - sector).expect("less than a sector");
    content[at..at + bytes.len()].copy_from_slice(bytes);
    sim.poke(sector, &content);
    let before = sim.peek(Extent::new(0, options.size));
    let disk = Disk { path: "/dev/sda".into(), device: sim.device(&world) };
    let device = disk.device.clone();
    let made = world.run(create(disk, new, &world.arena()));
    if made.is_err() {
        assert!(before == sim.peek(Extent::new(0, options.size)), "CREATE1: a refused disk is not touched");
    } else {
        let again = NewLabel { overwrite: false, ..new };
        let refused = world.run(examine(&device, again.overwrite, &world.arena()));
        assert_eq!(refused, Err(CreateProblem::PhysicalVolume));
    }
    made.map(drop)
}

#[test]
fn foreign_disks_are_refused_unless_one_insists() {
    for (offset, bytes, name) in [
        (1080, &b"\x53\xef"[..], "ext2, ext3 or ext4 file system"),
        (510, b"\x55\xaa", "MBR partition table or boot sector"),
        (512, b"LABELONE", "LVM2 physical volume"),
        (132 << 10, &0x00ba_b10c_u64.to_le_bytes(), "ZFS pool member"),
        (SIZE - 512, b"EFI PART", "GPT partition table (backup)"),
    ] {
        match make_on(DiskOptions::sized(SIZE), offset, bytes, NEW) {
            Err(problem @ CreateProblem::Foreign(found)) => {
                assert_eq!(found.name, name);
                assert!(problem.can_be_overruled());
            }
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(
            make_on(DiskOptions::sized(SIZE), offset, bytes, NewLabel { overwrite: true, ..NEW }),
            Ok(())
        );
    }
}

#[test]
fn disks_that_cannot_serve_are_refused_even_then() {
    let insist = NewLabel { overwrite: true, ..NEW };
    let small = DiskOptions::sized(1 << 20);
    assert_eq!(make_on(small, 0, &[], insist), Err(CreateProblem::TooSmall(1 << 20)));
    let blocks = DiskOptions { block_size: 8192, ..DiskOptions::sized(SIZE) };
    assert_eq!(make_on(blocks, 0, &[], insist), Err(CreateProblem::BlockSize(8192)));
    let read_only = DiskOptions { access: Access::ReadOnly, ..DiskOptions::sized(SIZE) };
    assert_eq!(make_on(read_only, 0, &[], insist), Err(CreateProblem::ReadOnly));
    assert_eq!(make_on(DiskOptions::sized(SIZE), 0, &[], NEW), Ok(()));
    let large_blocks = DiskOptions { block_size: 4096, ..DiskOptions::sized(SIZE + 8192) };
    assert_eq!(make_on(large_blocks, 0, &[], NEW), Ok(()));
}

#[test]
fn a_disk_of_a_group_is_refused_and_an_emptied_one_is_free() {
    let lab = lab(1);
    lab.world.run(lab.create());
    let disk = lab.disk(0);
    let refused = lab.world.run(examine(&disk.device, false, &lab.world.arena()));
    assert_eq!(refused, Err(CreateProblem::InGroup(Uuid::from_u128(1))));
    lab.world.run(remove(&disk, &lab.world.arena())).expect("no faults");
    assert_eq!(lab.world.run(examine(&disk.device, false, &lab.world.arena())), Ok(()));
    let survey = lab.survey([0]);
    let problem = DiskProblem::Read { path: "/dev/sd0".into(), problem: ReadProblem::NoLabel };
    assert_eq!(survey.problems, [problem]);
}

#[test]
fn a_damaged_copy_of_the_label_is_written_again_and_two_are_an_error() {
    let lab = lab(1);
    lab.world.run(lab.create());
    lab.disks[0].poke(0, &[0; 512]);
    let mut open = lab.only_group([0]);
    assert_eq!(open.notes(), [Note::LabelWorn { path: "/dev/sd0".into() }]);
    lab.reconcile(&mut open, Absent::Refuse).expect("no faults");
    assert!(lab.only_group([0]).notes().is_empty(), "mended");
    lab.disks[0].poke(512, &[1; 512]);
    lab.disks[0].poke(4096 + 512, &[1; 512]);
    let problem = ReadProblem::Label(LabelError::Checksum);
    assert_eq!(lab.survey([0]).problems, [DiskProblem::Read { path: "/dev/sd0".into(), problem }]);
}

#[test]
fn a_version_too_long_for_the_ring_of_a_disk_that_lags_behind_is_an_error() {
    let long = Extent::new(64 << 10, 4 * RING_BLOCKS_MIN * BLOCK_SIZE);
    let size = long.end() + EXTENTS * EXTENT + crate::TAIL_SIZE;
    let lab = Lab { world: World::new(7), disks: (0..2).map(|_| SimDisk::new(size)).collect() };
    let arena = lab.world.arena();
    let label = |number: usize, generation, vg, ring| Label {
        generation,
        pv: pv_id(number),
        vg,
        size,
        ring,
        data_offset: long.end(),
        created: UnixTime(1),
        nonce: Uuid::nil(),
    };
    let free: Vec<FreeDisk> = (0..2)
        .map(|number| FreeDisk { disk: lab.disk(number), label: label(number, 1, None, long) })
        .collect();
    let made = OpenGroup::create(group_plan(&free), free, arena.clone());
    let mut open = lab.world.run(made).expect("no faults");
    let before = lab.disks[1].image();
    let change = "x".repeat(text_length_max(RING.length) as usize);
    let renamed = plan(open.group(), Change::RenameGroup { to: "long".into() }, &stamp(&change));
    lab.world.run(open.apply(renamed.expect("possible"), Vec::new())).expect("no faults");
    lab.disks[1].restore(&before);
    let shorter = label(1, 9, Some(open.group().id()), RING);
    lab.world.run(write_label(&lab.disk(1).device, &shorter, &arena)).expect("no faults");
    let mut open = lab.only_group([0, 1]);
    let refused = lab.reconcile(&mut open, Absent::Refuse);
    assert!(matches!(refused, Err(CommitError::TextTooLong { .. })), "{refused:?}");
}

#[test]
fn a_label_that_is_written_again_is_what_it_was_after_every_crash_or_what_it_becomes() {
    // Generations of both copies; none is damaged.
    for copies in
        [[Some(1), Some(1)], [None, Some(1)], [Some(1), None], [Some(1), Some(2)], [Some(2), Some(1)]]
    {
        let newest = copies.into_iter().flatten().max().expect("one is whole");
        let states = for_each_crash_state(17, 100, |world| {
            let disk = SimDisk::new(SIZE);
            let (pv, data_offset, created) = (pv_id(0), RING.end(), UnixTime(1));
            let (size, ring, nonce) = (SIZE, RING, Uuid::nil());
            let old = Label { generation: 1, pv, vg: None, size, ring, data_offset, created, nonce };
            for (address, generation) in LABEL_ADDRESSES.into_iter().zip(copies) {
                let whole = generation.map(|generation| Label { generation, ..old }.encode(address).to_vec());
                disk.poke(address, &whole.unwrap_or_else(|| vec![0xaa; 512]));
            }
            let device = disk.device(world);
            let ran = world.run_until_crash(async {
                let again = Label { generation: newest, ..old };
                write_label(&device, &again, &world.arena()).await.expect("no faults");
            });
            world.disarm();
            let (read, is_worn) = world
                .run(read_label(&disk.device(world), &world.arena()))
                .expect("METADATA1: a copy is whole");
            assert_eq!(read.generation, newest, "METADATA1: {copies:?}");
            assert!(ran.crashed() || !is_worn);
        });
        assert!(states.points > 4, "{states:?}");
    }
}

#[test]
fn a_disk_cut_short_is_named_and_not_used() {
    let mut lab = lab(2);
    lab.world.run(lab.create());
    let size = lab.disks[1].options().size;
    let short = SimDisk::new(size - 4096);
    short.poke(0, &lab.disks[1].peek(Extent::new(0, size - 4096)));
    lab.disks[1] = short;
    let survey = lab.survey([0, 1]);
    let problem = ReadProblem::Truncated { size: size - 4096, expected: size };
    assert_eq!(survey.problems, [DiskProblem::Read { path: "/dev/sd1".into(), problem }]);
    let mut open = lab.only_group([0, 1]);
    assert_eq!(open.newly_missing(), [pv_id(1)]);
    let refused = lab.reconcile(&mut open, Absent::Refuse);
    let paths = vec!["/dev/sd1".to_owned()];
    assert_eq!(refused, Err(CommitError::Incomplete { group: "data".into(), paths }));
}

#[test]
fn a_disk_whose_label_and_description_disagree_is_not_used() {
    let lab = lab(2);
    lab.world.run(async {
        lab.create().await;
        let disk = lab.disk(1);
        let (label, _) = read_label(&disk.device, &lab.world.arena()).await.expect("labelled");
        let smaller = Label { generation: label.generation + 1, size: label.size - EXTENT, ..label };
        write_label(&disk.device, &smaller, &lab.world.arena()).await.expect("no faults");
    });
    let open = lab.only_group([0, 1]);
    assert!(open.notes().contains(&Note::OtherShape { path: "/dev/sd1".into() }), "{:?}", open.notes());
    assert_eq!(open.newly_missing(), [pv_id(1)]);
    let mut alone = lab.only_group([1]);
    let refused = lab.reconcile(&mut alone, Absent::Accept);
    assert!(matches!(refused, Err(CommitError::Incomplete { .. })), "{refused:?}");
}

#[test]
fn a_copied_disk_is_refused_with_both_paths() {
    let lab = lab(3);
    lab.world.run(lab.create_two());
    let image = lab.disks[1].image();
    lab.disks[2].restore(&image);
    let survey = lab.survey([0, 1, 2]);
    let paths = vec!["/dev/sd1".to_owned(), "/dev/sd2".to_owned()];
    assert_eq!(survey.problems, [DiskProblem::Duplicate { id: pv_id(1), paths }]);
    assert!(survey.groups.is_empty());
    assert_eq!(survey.refused[0].problem, GroupProblem::Duplicate(pv_id(1)));
}

impl Lab {
    async fn create_two(&self) -> OpenGroup {
        let free = self.free_disks(&BTreeSet::from([0, 1])).await;
        OpenGroup::create(group_plan(&free), free, self.world.arena()).await.expect("no faults")
    }
}

#[test]
fn an_old_image_of_a_disk_is_stale_and_not_used() {
    let lab = lab(2);
    let mut open = lab.world.run(lab.create());
    let old = lab.disks[1].image();
    lab.apply(&mut open, volume("a", 3));
    lab.apply(&mut open, volume("b", 3));
    let truth = content(open.group());
    lab.disks[1].restore(&old);
    let mut found = lab.only_group([0, 1]);
    assert_eq!(content(found.group()), truth);
    let stale = Note::Stale { path: "/dev/sd1".into(), holds: 1, newest: 3 };
    assert!(found.notes().contains(&stale), "{:?}", found.notes());
    assert!(lab.reconcile(&mut found, Absent::Refuse).is_err());
    let mut found = lab.only_group([0, 1]);
    lab.reconcile(&mut found, Absent::Accept).expect("no faults");
    assert_eq!(content(found.group()), truth);
    assert_eq!(found.devices().keys().collect::<Vec<_>>(), [&PvName(0)]);
    let mut found = lab.only_group([0, 1]);
    assert!(found.returned().is_empty(), "a stale disk is not taken back by itself");
    lab.reconcile(&mut found, Absent::Refuse).expect("no faults");
    lab.world.run(found.take_back(pv_id(1), &stamp("vg extend --yes"))).expect("somebody insists");
    assert_eq!(found.devices().len(), 2);
    let found = lab.only_group([0, 1]);
    assert_eq!((content(found.group()), found.notes()), (truth, &[][..]));
}

/// Nothing tells it from a disk that a crash kept from the last change.
#[test]
fn an_old_image_of_a_disk_that_lacks_only_the_last_change_is_brought_forward_with_the_data_that_it_holds() {
    let lab = lab(2);
    let mut open = lab.world.run(lab.create());
    lab.apply(&mut open, volume("a", EXTENTS + 3));
    let run = table(open.group(), open.group().lv("a").expect("made"), Parts::All).expect("all is here");
    assert_eq!(run.size(), (EXTENTS + 3) * EXTENT, "it is on both disks");
    let data = Extent::new(lab.disks[1].options().size / 2, 4096);
    lab.disks[1].poke(data.offset, &[1; 4096]);
    let old = lab.disks[1].image();
    lab.disks[1].poke(data.offset, &[2; 4096]);
    lab.apply(&mut open, volume("b", 3));
    let truth = content(open.group());
    lab.disks[1].restore(&old);
    let mut found = lab.only_group([0, 1]);
    assert!(!found.notes().iter().any(|note| matches!(note, Note::Stale { .. })), "{:?}", found.notes());
    lab.reconcile(&mut found, Absent::Refuse).expect("no faults");
    assert_eq!(content(found.group()), truth, "the last change is kept");
    assert_eq!(found.devices().keys().collect::<Vec<_>>(), [&PvName(0), &PvName(1)], "it is used");
    assert_eq!(lab.disks[1].peek(data), [1; 4096], "what was written since is not there");
    let found = lab.only_group([0, 1]);
    assert_eq!((content(found.group()), found.notes()), (truth, &[][..]));
}

#[test]
fn a_disk_that_was_away_comes_back_and_volumes_without_it_work_meanwhile() {
    let lab = lab(2);
    let mut open = lab.world.run(lab.create());
    lab.apply(&mut open, volume("a", EXTENTS - 1));
    lab.apply(&mut open, volume("b", 5));
    lab.apply(&mut open, volume("d", 5));
    let mut alone = lab.only_group([0]);
    lab.reconcile(&mut alone, Absent::Accept).expect("no faults");
    let group = alone.group();
    assert!(table(group, group.lv("a").expect("made"), Parts::All).is_ok());
    let refused = table(group, group.lv("b").expect("made"), Parts::All).expect_err("its disk is away");
    assert_eq!(refused.disks, [PvName(1)]);
    assert!(plan(group, volume("c", 2), &stamp("test")).is_err(), "PLAN3");
    lab.apply(&mut alone, volume("c", 1));
    lab.apply(&mut alone, Change::RemoveVolume { name: "b".into() });
    let truth = content(alone.group());
    let mut both = lab.only_group([0, 1]);
    assert_eq!(both.returned(), [pv_id(1)]);
    lab.reconcile(&mut both, Absent::Refuse).expect("no faults");
    assert_eq!(content(both.group()), truth, "the text that it holds itself is an old one");
    assert_eq!(both.devices().len(), 2);
    assert_eq!(both.group().usage().free, (EXTENTS - 5) * EXTENT, "what was freed meanwhile is free");
}

#[test]
fn a_disk_that_comes_back_and_cannot_be_written_is_left_out() {
    let lab = lab(2);
    let mut open = lab.world.run(lab.create());
    lab.apply(&mut open, volume("a", 2));
    let mut alone = lab.only_group([0]);
    lab.reconcile(&mut alone, Absent::Accept).expect("no faults");
    lab.disks[1]
        .set_faults(FaultPlan { write_error: 1_000_000, ..FaultPlan::default() }, FaultBudget::unlimited());
    let mut both = lab.only_group([0, 1]);
    assert_eq!(both.returned(), [pv_id(1)]);
    lab.reconcile(&mut both, Absent::Refuse).expect("the group does without it");
    assert!(!both.group().counts_on(pv_id(1)) && both.devices().len() == 1);
    lab.apply(&mut both, volume("b", 2));
    lab.apply(&mut both, Change::RemoveMissing { with_volumes: true });
    assert_eq!(both.group().physical_volumes().len(), 1);
}

#[test]
fn halves_used_apart_are_refused_by_name() {
    let lab = lab(2);
    lab.world.run(lab.create());
    for number in [0, 1] {
        let mut half = lab.only_group([number]);
        lab.reconcile(&mut half, Absent::Accept).expect("no faults");
    }
    let survey = lab.survey([0, 1]);
    let mut sides = match &survey.refused[0].problem {
        GroupProblem::Divergent { sides } => sides.clone(),
        other => panic!("{other:?}"),
    };
    sides.sort();
    assert_eq!(sides, [["/dev/sd0"], ["/dev/sd1"]]);
    assert!(survey.refused[0].problem.help().contains("vg reduce"));
}

#[test]
fn a_disk_given_up_while_it_was_away_is_not_believed() {
    let lab = lab(2);
    lab.world.run(lab.create());
    let mut alone = lab.only_group([0]);
    lab.reconcile(&mut alone, Absent::Accept).expect("no faults");
    lab.apply(&mut alone, Change::RemoveMissing { with_volumes: false });
    lab.apply(&mut alone, volume("a", 2));
    let found = lab.only_group([0, 1]);
    assert_eq!(content(found.group()), content(alone.group()));
    assert_eq!(found.notes(), [Note::Removed { path: "/dev/sd1".into(), group: "data".into() }]);
}

#[test]
fn two_groups_of_one_name_are_told_apart_by_id() {
    let lab = lab(2);
    lab.world.run(async {
        for number in [0, 1] {
            let free = vec![lab.label(number).await];
            let disks = [free[0].as_new_disk()];
            let id = Uuid::from_u128(number as u128 + 1);
            let made = plan_group("data", id, EXTENT, &disks, &stamp("vg create")).expect("sound");
            OpenGroup::create(made, free, lab.world.arena()).await.expect("no faults");
        }
    });
    let mut survey = lab.survey([0, 1]);
    let twice = vec![("data".to_owned(), vec![Uuid::from_u128(1), Uuid::from_u128(2)])];
    assert_eq!(survey.names_twice(), twice);
    lab.reconcile(&mut survey.groups[1], Absent::Refuse).expect("no faults");
    lab.apply(&mut survey.groups[1], Change::RenameGroup { to: "other".into() });
    assert!(lab.survey([0, 1]).names_twice().is_empty());
}

#[test]
fn a_description_too_long_for_the_ring_is_refused_before_anything_is_written() {
    let lab = lab(1);
    let mut open = lab.world.run(lab.create());
    let long = "x".repeat(usize::try_from(RING.length / 3).expect("small"));
    let made = plan(open.group(), volume("a", 1), &stamp(&long)).expect("possible");
    let refused = lab.world.run(open.apply(made, Vec::new()));
    assert!(matches!(refused, Err(CommitError::TextTooLong { .. })), "{refused:?}");
    lab.apply(&mut open, volume("a", 1));
}

#[test]
fn a_failing_disk_stops_changes_until_the_next_scan() {
    let lab = lab(2);
    let mut open = lab.world.run(lab.create());
    lab.disks[1].vanish();
    let made = plan(open.group(), volume("a", 1), &stamp("test")).expect("possible");
    match lab.world.run(open.apply(made.clone(), Vec::new())) {
        Err(CommitError::Disks { disks, .. }) => assert_eq!(disks[0].0, "/dev/sd1"),
        other => panic!("{other:?}"),
    }
    let again = lab.world.run(open.apply(made, Vec::new()));
    assert_eq!(again, Err(CommitError::Broken { group: "data".into() }));
    // OPEN2: either may count, so the code that serves volumes looks at both.
    assert!(open.group().lv("a").is_none() && open.undecided().is_some_and(|next| next.lv("a").is_some()));
    lab.disks[1].reappear();
    let mut found = lab.only_group([0, 1]);
    lab.reconcile(&mut found, Absent::Refuse).expect("no faults");
    assert!(found.group().lv("a").is_some(), "what reached a disk counts");
    assert!(found.undecided().is_none(), "a scan decides");
    lab.apply(&mut found, volume("b", 1));
    assert!(found.undecided().is_none());
}

#[test]
fn a_disk_that_cannot_be_told_that_it_leaves_stays() {
    let lab = lab(2);
    let mut open = lab.world.run(lab.create());
    lab.disks[1].vanish();
    let removed = plan(open.group(), Change::RemoveDisk { id: pv_id(1) }, &stamp("test")).expect("possible");
    match lab.world.run(open.apply(removed, Vec::new())) {
        Err(CommitError::Disks { disks, .. }) => assert_eq!(disks[0].0, "/dev/sd1"),
        other => panic!("{other:?}"),
    }
    let found = lab.only_group([0]);
    assert!(found.group().counts_on(pv_id(1)), "VERSION1: else it could go on alone");
}

#[test]
fn history_and_backups_come_from_the_ring() {
    let lab = lab(2);
    let mut open = lab.world.run(lab.create());
    lab.apply(&mut open, volume("a", 1));
    let backup = open.group().text();
    lab.apply(&mut open, Change::RemoveVolume { name: "a".into() });
    let history = lab.world.run(open.history());
    let numbers: Vec<_> = history.iter().map(|version| (version.sequence, version.change.as_str())).collect();
    assert_eq!(numbers, [(1, "vg create data"), (2, "test"), (3, "test")]);
    assert_eq!(history[1].text, backup);
    let description = varve_format::text::Description::decode(&backup).expect("our own text");
    lab.apply(&mut open, Change::Restore { backup: Box::new(description) });
    assert!(lab.only_group([0, 1]).group().lv("a").is_some());
    assert_eq!(open.group().entry().sequence, 4);
}

#[test]
fn a_group_whose_rings_are_lost_is_rebuilt_from_a_backup() {
    let lab = lab(2);
    let mut open = lab.world.run(lab.create());
    lab.apply(&mut open, volume("a", 30));
    let backup = open.group().description().clone();
    let arena = lab.world.arena();
    let rebuilt = |numbers: &[usize]| {
        let disks = lab.boot(&numbers.iter().copied().collect());
        lab.world.run(rebuild(backup.clone(), disks, str::to_owned, &stamp("vg restore"), arena.clone()))
    };
    assert_eq!(rebuilt(&[0, 1]).err(), Some(RebuildError::NotLost("/dev/sd0".into())));
    for disk in &lab.disks {
        disk.poke(RING.offset, &vec![0x55; usize::try_from(RING.length).expect("small")]);
    }
    assert_eq!(lab.survey([0, 1]).refused[0].problem, GroupProblem::NoDescription);
    let missing = RebuildError::Missing { id: pv_id(1), path: "/dev/sd1".into() };
    assert_eq!(rebuilt(&[0]).err(), Some(missing));
    assert!(rebuilt(&[0, 1]).is_ok());
    let found = lab.only_group([0, 1]);
    assert_eq!(content(found.group()), content(open.group()));
    assert!(found.notes().is_empty() && found.group().entry().sequence == 3);
}

#[test]
fn a_volume_keeps_its_bytes_while_it_grows_in_use() {
    let lab = lab(2);
    let mut open = lab.world.run(lab.create());
    lab.apply(&mut open, volume("a", 2));
    let arena = lab.world.arena();
    let device_of = |open: &OpenGroup| {
        let lv = open.group().lv("a").expect("made");
        let table = table(open.group(), lv, Parts::All).expect("complete");
        crate::activate::build(&table, &open.devices(), &BTreeMap::new()).expect("all disks are here")
    };
    let active = ActiveVolume { switch: varve_block::Switch::new(device_of(&open)) };
    let pattern: Vec<u8> = (0..8192_u32).map(|at| u8::try_from(at % 251).expect("small")).collect();
    lab.world.run(async {
        active
            .switch
            .device()
            .write(EXTENT - 4096, arena.copy(&pattern), Durability::Durable)
            .await
            .expect("no faults");
    });
    // Too large for the first disk: it continues on the second.
    lab.apply(
        &mut open,
        Change::ExtendVolume {
            name: "a".into(),
            size: SizeArgument::bytes((EXTENTS + 5) * EXTENT),
            disks: DiskChoice::default(),
        },
    );
    lab.world.run(async {
        active.turn(device_of(&open)).await;
        let device = active.switch.device();
        assert_eq!(device.shape().size, (EXTENTS + 5) * EXTENT);
        let read = device.read(EXTENT - 4096, arena.take(8192)).await.expect("no faults");
        assert_eq!(read[..], pattern[..]);
        let last = device.shape().size - 8192;
        device.write(last, arena.copy(&pattern), Durability::Durable).await.expect("no faults");
    });
    assert_eq!(lab.disks[1].peek(Extent::new(RING.end() + 5 * EXTENT - 8192, 8192)), pattern);
}

#[test]
fn a_lost_label_is_made_anew_from_the_disks_own_ring() {
    let lab = lab(2);
    let mut open = lab.world.run(lab.create());
    lab.apply(&mut open, volume("a", 30));
    let arena = lab.world.arena();
    let device = |number: usize| lab.disk(number).device;
    let found = |number: usize| lab.world.run(find_label(&device(number), &arena));
    assert_eq!(found(0), Ok(None), "RELABEL1: a whole label stays");
    let (label, _) = lab.world.run(read_label(&device(1), &arena)).expect("a label");
    lab.disks[1].poke(0, &[0xa5; 8192]);
    assert_eq!(lab.survey([0, 1]).problems.len(), 1);
    let lost = found(1).expect("the ring is whole").expect("the label is not");
    assert_eq!((lost.group.as_deref(), lost.sequence, lost.found_in), (Some("data"), 2, LabelSource::Tail));
    let same = Label { generation: label.generation, created: label.created, ..lost.label };
    assert_eq!(same, label, "RELABEL2");
    lab.world.run(write_found(&lab.disk(1), &lost, &arena)).expect("no faults");
    let again = lab.only_group([0, 1]);
    assert!(again.notes().is_empty() && content(again.group()) == content(open.group()));
}

#[test]
fn a_lost_label_is_not_guessed() {
    let lab = lab(2);
    let open = lab.world.run(lab.create());
    drop(open);
    let arena = lab.world.arena();
    let ring = usize::try_from(RING.length).expect("small");
    let found = |number: usize| lab.world.run(find_label(&lab.disk(number).device, &arena));
    let newer = lab.disks[0].peek(Extent::new(0, 4096));
    let size = RING.end() + EXTENTS * EXTENT;
    lab.disks[0].clear(Extent::new(size, crate::TAIL_SIZE));
    lab.disks[0].poke(0, &[0xa5; 8192]);
    // Another disk's ring is here as well.
    let other = lab.disks[1].peek(Extent::new(RING.offset, 4096));
    let at = RING.offset + 4 * 4096;
    lab.disks[0].poke(at, &other);
    assert!(found(0).is_ok_and(|found| found.is_some()), "a slot of another place is no slot");
    let stranger = Slot {
        vg: Uuid::from_u128(9),
        pv: pv_id(0),
        sequence: 1,
        previous: None,
        ancestors: Vec::new(),
        text: "x".into(),
    };
    lab.disks[0].poke(at, &stranger.encode(at));
    assert_eq!(found(0), Err(RelabelError::Ambiguous), "RELABEL2");
    lab.disks[0].poke(RING.offset, &vec![0; ring]);
    assert_eq!(found(0), Err(RelabelError::NoSlot), "RELABEL2");
    lab.disks[0].poke(RING.offset, &Slot { vg: Uuid::from_u128(1), ..stranger }.encode(RING.offset));
    assert_eq!(found(0), Err(RelabelError::Unfit), "RELABEL2");
    // A label of a newer program: whole, and not ours to replace.
    let mut block = newer;
    block[8] = 3;
    let sum = varve_format::Field::new(4092, 4, "checksum", "");
    sum.seal(&mut block);
    lab.disks[0].poke(0, &block);
    let refused = RelabelError::Other(ReadProblem::Label(LabelError::Newer(3)));
    assert_eq!(found(0), Err(refused), "RELABEL1");
}
