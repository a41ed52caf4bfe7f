//! Tails: what is lost with the first copy of the metadata of any disks is there again, at any moment of a crash.

use super::{Lab, content, group_plan, pv_id, stamp};
use crate::disks::relabel::{LabelSource, find_label, find_labels, write_found};
use crate::disks::tail::TAIL_SIZE;
use crate::injected_bug::{InjectedBug, inject};
use crate::model::{Role, StorePolicy};
use crate::plan::{Change, DiskChoice, Layout, plan};
use crate::size::SizeArgument;
use crate::{Absent, Note, OpenGroup, scan};
use std::cell::Cell;
use uuid::Uuid;
use varve_block::{Extent, MIB};
use varve_format::BLOCK_SIZE;
use varve_sim::{CrashAt, CrashKind, Ran, World};

const DISKS: usize = 3;

impl Lab {
    /// Overwrites the first or the last MiB of a disk.
    fn overwrite(&self, number: usize, is_last: bool) {
        let size = self.disks[number].device(&self.world).shape().size;
        // The ring and label of these small disks; what is behind them belongs to extents.
        let head = super::RING.end();
        let extent = if is_last { Extent::new(size - TAIL_SIZE, TAIL_SIZE) } else { Extent::new(0, head) };
        let length = usize::try_from(extent.length).expect("small");
        self.disks[number].poke(extent.offset, &vec![0xa5; length]);
    }

    /// Mends what `varve repair` mends.
    async fn repair(&self) -> Vec<LabelSource> {
        let (disks, arena) = (self.boot(&self.all()), self.world.arena());
        let mut sources = Vec::new();
        for (place, found) in find_labels(&disks, str::to_owned, &arena).await {
            write_found(&disks[place], &found, &arena).await.expect("no faults");
            sources.push(found.found_in);
        }
        sources
    }

    /// The only group, as all disks have it.
    async fn reopened(&self) -> OpenGroup {
        let mut survey = scan(self.boot(&self.all()), &self.world.arena()).await;
        assert!(survey.refused.is_empty() && survey.problems.is_empty(), "{:?}", survey.problems);
        let mut open = survey.groups.remove(0);
        open.reconcile(Absent::Refuse, &stamp("activate")).await.expect("no faults");
        open
    }
}

fn linear(name: &str, size: SizeArgument) -> Change {
    let (id, layout, policy) = (Uuid::from_u128(0x77), Layout::Linear, StorePolicy::default());
    let (name, role, disks) = (name.to_owned(), Role::Volume, DiskChoice::default());
    Change::CreateVolume { name, id, size, role, layout, policy, disks }
}

async fn rename(open: &mut OpenGroup, to: String) -> Result<(), crate::CommitError> {
    let made = plan(open.group(), Change::RenameGroup { to }, &stamp("test")).expect("possible");
    open.apply(made, Vec::new()).await
}

#[test]
fn any_first_or_last_mib_of_any_disks_is_made_again() {
    for mask in 1..3_usize.pow(u32::try_from(DISKS).expect("few")) {
        let lab = Lab::new(World::new(7), DISKS);
        lab.world.run(async {
            let mut open = lab.create().await;
            rename(&mut open, "other".into()).await.expect("no faults");
            let (truth, sequence) = (content(open.group()), open.group().entry().sequence);
            drop(open);
            for number in 0..DISKS {
                match mask / 3_usize.pow(u32::try_from(number).expect("few")) % 3 {
                    0 => {}
                    which => lab.overwrite(number, which == 2),
                }
            }
            lab.repair().await;
            let found = lab.reopened().await;
            assert_eq!(
                (content(found.group()), found.group().entry().sequence),
                (truth, sequence),
                "TAIL2: {mask}"
            );
            drop(found);
            // The tails are there again, too.
            (0..DISKS).for_each(|number| lab.overwrite(number, false));
            assert_eq!(lab.repair().await, [LabelSource::Tail; DISKS], "{mask}");
            assert_eq!(lab.reopened().await.group().entry().sequence, sequence, "{mask}");
        });
    }
}

#[test]
fn a_disk_that_has_lost_both_copies_is_known_by_the_others() {
    let lab = Lab::new(World::new(7), DISKS);
    lab.world.run(async {
        let open = lab.create().await;
        let truth = content(open.group());
        drop(open);
        lab.overwrite(1, false);
        lab.overwrite(1, true);
        assert_eq!(lab.repair().await, [LabelSource::Group], "RELABEL3: no other disk is missing");
        let found = lab.reopened().await;
        assert_eq!(content(found.group()), truth);
        assert_eq!(found.path(pv_id(1)), Some("/dev/sd1"));
    });
}

#[test]
fn a_tail_of_another_disk_or_of_a_removed_one_is_not_believed() {
    let lab = Lab::new(World::new(7), 1);
    lab.world.run(async {
        drop(lab.create().await);
        let disk = lab.disk(0);
        let arena = lab.world.arena();
        crate::disks::create::remove(&disk, &arena).await.expect("no faults");
        assert!(find_label(&disk.device, &arena).await.is_err(), "nothing of it is left");
    });
    // A partition that ends with its disk: its tail is the last MiB of both.
    let lab = Lab::new(World::new(7), 1);
    lab.world.run(async {
        drop(lab.create().await);
        let size = lab.disks[0].device(&lab.world).shape().size;
        let tail = lab.disks[0].peek(Extent::new(size - TAIL_SIZE, TAIL_SIZE));
        let whole = varve_sim::SimDisk::new(size + MIB);
        whole.poke(size + MIB - TAIL_SIZE, &tail);
        let found = find_label(&whole.device(&lab.world), &lab.world.arena()).await;
        assert!(found.is_err(), "TAIL3: its label lies elsewhere by its own account");
    });
}

/// As older programs left it: the last extent of each disk reaches to its end.
async fn without_room(lab: &Lab) -> OpenGroup {
    let open = lab.create().await;
    let mut older = open.group().description().clone();
    drop(open);
    older.physical_volumes.iter_mut().for_each(|pv| pv.extents += TAIL_SIZE / super::EXTENT);
    older.group.sequence = 1;
    let wiped = older.physical_volumes.len();
    (0..wiped).for_each(|number| {
        let disk = &lab.disks[number];
        disk.clear(Extent::new(0, disk.device(&lab.world).shape().size));
    });
    let free = lab.free_disks(&lab.all()).await;
    let group = crate::Group::new(older).expect("sound");
    OpenGroup::found(group, None, free, lab.world.arena()).await.expect("no faults")
}

#[test]
fn an_older_disk_that_is_full_to_its_end_gets_a_tail_when_nothing_is_there() {
    let lab = Lab::new(World::new(7), 1);
    lab.world.run(async {
        let mut open = without_room(&lab).await;
        let no_tail = Note::NoTail { path: "/dev/sd0".into() };
        assert_eq!(open.tail_notes().await, std::slice::from_ref(&no_tail), "TAIL1");
        let extents = open.group().physical_volumes()[0].extents;
        let whole = SizeArgument::bytes(extents * super::EXTENT);
        let full = plan(open.group(), linear("all", whole), &stamp("test")).expect("the last extent is free");
        open.apply(full, Vec::new()).await.expect("no faults");
        rename(&mut open, "other".into()).await.expect("no faults");
        assert_eq!(open.group().physical_volumes()[0].extents, extents, "TAIL1: a volume lies there");
        assert_eq!(open.tail_notes().await, [no_tail]);
        let taken = open.group().description().clone();
        let gone = plan(open.group(), Change::RemoveVolume { name: "all".into() }, &stamp("test"))
            .expect("possible");
        open.apply(gone, Vec::new()).await.expect("no faults");
        assert_eq!(open.group().physical_volumes()[0].extents, extents - TAIL_SIZE / super::EXTENT);
        assert_eq!(open.tail_notes().await, [], "TAIL2: label and version are there with the first change");
        // A backup of before gives the volume back what it had; the tail ends first.
        let restore = Change::Restore { backup: Box::new(taken) };
        let back = plan(open.group(), restore, &stamp("test")).expect("it was this group");
        open.apply(back, Vec::new()).await.expect("no faults");
        assert_eq!(open.group().physical_volumes()[0].extents, extents, "TAIL1");
        let size = lab.disks[0].device(&lab.world).shape().size;
        let label = lab.disks[0].peek(Extent::new(size - BLOCK_SIZE, BLOCK_SIZE));
        assert!(label.iter().all(|byte| *byte == 0), "TAIL3: nothing believes what is there now");
    });
}

/// A history: changes are made until the machine crashes; then the first copies of all disks are lost. Whether what was acknowledged is
/// there again.
fn history(seed: u64) -> bool {
    let lab = Lab::new(World::new(seed), DISKS);
    let (done, asked) = (Cell::new(0_u64), Cell::new(0_u64));
    lab.world.run(async {
        let free = lab.free_disks(&lab.all()).await;
        drop(OpenGroup::create(group_plan(&free), free, lab.world.arena()).await.expect("no faults"));
    });
    let mut random = lab.world.random();
    let (changes, event) = (random.below(6), 1 + random.below(100));
    lab.world.schedule(CrashAt::Event(event), CrashKind::Power);
    let ran = lab.world.run_until_crash(async {
        let mut open = scan(lab.boot(&lab.all()), &lab.world.arena()).await.groups.remove(0);
        open.reconcile(Absent::Refuse, &stamp("activate")).await.expect("no faults");
        for number in 1..=changes {
            asked.set(number);
            rename(&mut open, format!("n{number}")).await.expect("no faults");
            done.set(number);
        }
    });
    if matches!(ran, Ran::Finished(())) {
        lab.world.crash(CrashKind::Power);
    }
    lab.world.disarm();
    (0..DISKS).for_each(|number| lab.overwrite(number, false));
    lab.world.run(async {
        lab.repair().await;
        let mut survey = scan(lab.boot(&lab.all()), &lab.world.arena()).await;
        if survey.groups.is_empty() {
            return false;
        }
        let mut open = survey.groups.remove(0);
        open.reconcile(Absent::Refuse, &stamp("activate")).await.expect("no faults");
        let number =
            open.group().name().strip_prefix('n').map_or(0, |number| number.parse().expect("a number"));
        (done.get()..=asked.get()).contains(&number)
    })
}

#[test]
fn histories_in_which_the_first_copies_are_lost_after_a_crash() {
    for seed in 0..60 {
        assert!(history(seed), "TAIL2: seed {seed}");
    }
    inject(Some(InjectedBug::SkipTail));
    let lost = (0..60).filter(|seed| !history(*seed)).count();
    inject(None);
    assert!(lost > 0, "TAIL2: the history does not notice that tails are not written");
}
