//! Disks whose rings hold versions of a group with numbers that the group has not reached: of an abandoned line, or forged.

use super::{Content, EXTENT, Lab, RING, content, group_plan, pv_id, stamp};
use crate::disks::disk::{read_label, write_label};
use crate::model::{Role, StorePolicy};
use crate::plan::{Change, DiskChoice, Layout, plan};
use crate::rebuild::{RebuildError, rebuild};
use crate::size::SizeArgument;
use crate::{Absent, CommitError, FreeDisk, Note, OpenGroup, scan};
use std::collections::BTreeSet;
use uuid::Uuid;
use varve_format::{Field, RingContent, SEQUENCE_END, Slot, place, slot_length, version_of};
use varve_sim::{CrashAt, CrashKind, Ran, World, run_seeds, test_name};

/// What a disk writes as a whole.
const SECTOR: usize = 512;
/// The highest number that a slot may have.
const LAST: u64 = SEQUENCE_END - 1;
/// Numbers that slots may have, and that leave a group none, or a few.
const HIGH: [u64; 4] = [LAST, LAST - 1, LAST - 9, SEQUENCE_END / 2];
/// Numbers that no slot has.
const FORGED: [u64; 5] = [SEQUENCE_END, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX];

impl Lab {
    /// Writes a slot that follows `after`, of the number `sequence`, into the ring of a disk, with sound checksums.
    fn forge(&self, number: usize, after: &Slot, sequence: u64) {
        let ring = RingContent::find(&self.disks[number].peek(RING), RING, after.vg, pv_id(number));
        let text = after
            .text
            .replace(&format!("\nsequence = {}\n", after.sequence), &format!("\nsequence = {sequence}\n"));
        assert_ne!(text, after.text);
        let forged = Slot { pv: pv_id(number), ..after.followed_by(after.sequence + 1, text.clone()) };
        let newest = ring.newest().map(|placed| placed.extent);
        let extent = place(RING, newest, slot_length(text.len()));
        let mut bytes = forged.encode(extent.offset);
        Field::new(24, 8, "sequence", "").put_u64(&mut bytes, sequence);
        let version = version_of(after.vg, sequence, forged.previous, &text);
        Field::new(80, 16, "version", "").put_uuid(&mut bytes, version);
        Field::new(252, 4, "checksum", "").seal(&mut bytes[..256]);
        self.disks[number].poke(extent.offset, &bytes);
    }

    /// The newest version that a disk holds.
    fn newest(&self, number: usize, group: Uuid) -> Slot {
        let ring = RingContent::find(&self.disks[number].peek(RING), RING, group, pv_id(number));
        ring.newest().expect("it holds one").slot.clone()
    }

    async fn found_on(&self, numbers: impl IntoIterator<Item = usize>) -> (OpenGroup, Vec<FreeDisk>) {
        let numbers: BTreeSet<usize> = numbers.into_iter().collect();
        let mut survey = scan(self.boot(&numbers), &self.world.arena()).await;
        assert!(survey.refused.is_empty() && survey.problems.is_empty(), "{:?}", survey.refused);
        assert_eq!(survey.groups.len(), 1);
        (survey.groups.remove(0), survey.unassigned)
    }

    /// The group on these disks, reconciled without those that are not there.
    async fn open_on(&self, numbers: impl IntoIterator<Item = usize>) -> (OpenGroup, Vec<FreeDisk>) {
        let (mut open, free) = self.found_on(numbers).await;
        open.reconcile(Absent::Accept, &stamp("activate")).await.expect("no faults");
        (open, free)
    }
}

async fn change(open: &mut OpenGroup, change: Change) -> Result<(), CommitError> {
    let made = plan(open.group(), change, &stamp("test")).expect("possible");
    open.apply(made, Vec::new()).await
}

async fn join(open: &mut OpenGroup, free: Vec<FreeDisk>) -> Result<(), CommitError> {
    let disks = free.iter().map(FreeDisk::as_new_disk).collect();
    let made = plan(open.group(), Change::AddDisks { disks }, &stamp("vg extend")).expect("possible");
    open.apply(made, free).await
}

fn volume(name: &str) -> Change {
    let id = Uuid::from_u128(0x5000 + u128::from(name.as_bytes()[0]));
    Change::CreateVolume {
        name: name.into(),
        id,
        size: SizeArgument::bytes(2 * EXTENT),
        role: Role::Volume,
        layout: Layout::Linear,
        policy: StorePolicy::default(),
        disks: DiskChoice::default(),
    }
}

fn is_used_up(result: &Result<(), CommitError>, path: &str) -> bool {
    let is_high = |sequence: &u64| HIGH.contains(sequence);
    matches!(result, Err(CommitError::NumbersUsedUp { paths, sequence, .. }) if paths == &[path.to_owned()] && is_high(sequence))
}

#[test]
fn a_forged_number_on_the_only_disk_is_damage() {
    for sequence in FORGED {
        let lab = Lab::new(World::new(1), 1);
        lab.world.run(async {
            let open = lab.create().await;
            let first = lab.newest(0, open.group().id());
            lab.forge(0, &first, sequence);
            let (mut open, _) = lab.open_on([0]).await;
            let is_damage = |note: &Note| matches!(note, Note::SlotDamaged { .. });
            assert!(open.notes().iter().any(is_damage), "{:?}", open.notes());
            assert_eq!(open.group().entry().sequence, 1);
            change(&mut open, volume("a")).await.expect("no faults");
            let truth = content(open.group());
            assert_eq!(content(lab.open_on([0]).await.0.group()), truth);
        });
    }
}

#[test]
fn what_a_crash_has_left_of_a_version_is_not_made_whole_by_a_later_one() {
    let lab = Lab::new(World::new(1), 1);
    lab.world.run(async {
        let open = lab.create().await;
        let first = lab.newest(0, open.group().id());
        let text = first.text.replace("\nsequence = 1\n", "\nsequence = 2\n");
        let ring = RingContent::find(&lab.disks[0].peek(RING), RING, first.vg, pv_id(0));
        let newest = ring.newest().map(|placed| placed.extent);
        let extent = place(RING, newest, slot_length(text.len()));
        let bytes = Slot { pv: pv_id(0), ..first.followed_by(2, text) }.encode(extent.offset);
        let (header, rest) = bytes.split_at(SECTOR);
        lab.disks[0].poke(extent.offset, header);
        let (open, _) = lab.open_on([0]).await;
        let is_damage = |note: &Note| matches!(note, Note::SlotDamaged { .. });
        assert!(open.notes().iter().any(is_damage), "{:?}", open.notes());
        // A later version has the same bytes here, and its header does not reach the disk.
        lab.disks[0].poke(extent.offset + SECTOR as u64, rest);
        let (open, _) = lab.open_on([0]).await;
        assert_eq!(open.group().entry().sequence, 1, "OPEN4");
    });
}

#[test]
fn after_the_last_number_a_group_can_be_read_and_not_changed() {
    let lab = Lab::new(World::new(1), 1);
    lab.world.run(async {
        let open = lab.create().await;
        let first = lab.newest(0, open.group().id());
        lab.forge(0, &first, LAST);
        let (mut open, _) = lab.open_on([0]).await;
        assert_eq!(open.group().entry().sequence, LAST);
        let truth = content(open.group());
        for _ in 0..2 {
            let refused = change(&mut open, volume("a")).await;
            assert!(is_used_up(&refused, "/dev/sd0"), "{refused:?}");
            assert!(open.is_reconciled() && content(open.group()) == truth);
        }
        let (open, _) = lab.open_on([0]).await;
        assert!(content(open.group()) == truth && open.notes().is_empty(), "nothing was written");
    });
}

#[test]
fn a_forged_number_on_a_disk_that_returns_is_damage_or_leaves_the_disk_out() {
    for sequence in FORGED.into_iter().chain(HIGH) {
        let lab = Lab::new(World::new(1), 2);
        lab.world.run(async {
            let open = lab.create().await;
            let first = lab.newest(1, open.group().id());
            lab.open_on([0]).await;
            lab.forge(1, &first, sequence);
            let (mut open, _) = lab.open_on([0, 1]).await;
            assert_eq!(open.group().counts_on(pv_id(1)), FORGED.contains(&sequence), "{sequence}");
            let is_forged =
                |note: &Note| matches!(note, Note::NumberForged { holds, .. } if *holds == sequence);
            assert_eq!(open.notes().iter().any(is_forged), HIGH.contains(&sequence), "{:?}", open.notes());
            change(&mut open, volume("a")).await.expect("the group goes on");
            let truth = content(open.group());
            let (open, _) = lab.open_on([0, 1]).await;
            assert_eq!(content(open.group()), truth);
            assert!(open.group().entry().sequence < 9);
        });
    }
}

#[test]
fn a_forged_number_on_a_stale_disk_refuses_to_take_it_back() {
    for sequence in HIGH {
        let lab = Lab::new(World::new(1), 2);
        lab.world.run(async {
            let mut open = lab.create().await;
            let (first, old) = (lab.newest(1, open.group().id()), lab.disks[1].image());
            change(&mut open, volume("a")).await.expect("no faults");
            change(&mut open, volume("b")).await.expect("no faults");
            lab.disks[1].restore(&old);
            lab.open_on([0, 1]).await;
            lab.forge(1, &first, sequence);
            let (mut open, _) = lab.open_on([0, 1]).await;
            let refused = open.take_back(pv_id(1), &stamp("vg extend --yes")).await;
            assert!(is_used_up(&refused, "/dev/sd1"), "{refused:?}");
            change(&mut open, volume("d")).await.expect("the group goes on without it");
        });
    }
}

#[test]
fn a_forged_number_on_a_disk_that_joins_is_damage_or_refuses_the_disk() {
    for sequence in FORGED.into_iter().chain(HIGH).chain([50]) {
        let lab = Lab::new(World::new(1), 2);
        lab.world.run(async {
            let made = lab.free_disks(&BTreeSet::from([0])).await;
            let made = OpenGroup::create(group_plan(&made), made, lab.world.arena()).await;
            let first = lab.newest(0, made.expect("no faults").group().id());
            lab.label(1).await;
            lab.forge(1, &first, sequence);
            let (mut open, free) = lab.open_on([0, 1]).await;
            let joined = join(&mut open, free).await;
            if HIGH.contains(&sequence) {
                assert!(is_used_up(&joined, "/dev/sd1"), "{joined:?}");
            } else {
                joined.expect("what was forged counts for nothing");
                assert_eq!(open.group().entry().sequence, if sequence == 50 { 51 } else { 2 }, "VERSION3");
            }
            change(&mut open, volume("a")).await.expect("the group goes on");
            let truth = content(open.group());
            assert_eq!(content(lab.open_on([0, 1]).await.0.group()), truth);
        });
    }
}

#[test]
fn a_group_is_not_rebuilt_as_a_version_after_the_last() {
    for (sequence, is_possible) in [(LAST, false), (LAST - 1, true)] {
        let lab = Lab::new(World::new(1), 1);
        let open = lab.world.run(lab.create());
        let mut backup = open.group().description().clone();
        backup.group.sequence = sequence;
        lab.disks[0].poke(RING.offset, &vec![0x55; usize::try_from(RING.length).expect("small")]);
        let disks = lab.boot(&lab.all());
        let rebuilt =
            lab.world.run(rebuild(backup, disks, str::to_owned, &stamp("restore"), lab.world.arena())).err();
        let is_refused = matches!(rebuilt, Some(RebuildError::Commit(CommitError::NumbersUsedUp { .. })));
        assert_eq!((is_refused, rebuilt.is_none()), (!is_possible, is_possible), "{rebuilt:?}");
    }
}

#[test]
fn a_label_of_the_highest_generation_is_written_again() {
    let lab = Lab::new(World::new(1), 2);
    lab.world.run(async {
        lab.create().await;
        let device = lab.disk(1).device;
        let (label, _) = read_label(&device, &lab.world.arena()).await.expect("labelled");
        let highest = varve_format::Label { generation: u64::MAX, ..label };
        write_label(&device, &highest, &lab.world.arena()).await.expect("no faults");
        let (mut open, _) = lab.open_on([0, 1]).await;
        change(&mut open, Change::RemoveDisk { id: pv_id(1) }).await.expect("no faults");
        let (mut open, free) = lab.open_on([0, 1]).await;
        assert_eq!(free.len(), 1, "it belongs to no group now");
        join(&mut open, free).await.expect("no faults");
        assert_eq!(lab.open_on([0, 1]).await.0.devices().len(), 2);
    });
}

/// A group on the disks 0 and 1, put back to what they were when disk 2 was none of them; disk 2, which is free, holds what was
/// changed since.
async fn put_back(lab: &Lab) -> (OpenGroup, Vec<FreeDisk>) {
    let mut open = lab.create().await;
    change(&mut open, Change::RemoveDisk { id: pv_id(2) }).await.expect("no faults");
    let images = [0, 1].map(|number: usize| lab.disks[number].image());
    let (mut open, free) = lab.open_on(lab.all()).await;
    join(&mut open, free).await.expect("no faults");
    for name in ["a", "b", "d"] {
        change(&mut open, volume(name)).await.expect("no faults");
    }
    change(&mut open, Change::RemoveDisk { id: pv_id(2) }).await.expect("no faults");
    for (number, image) in images.iter().enumerate() {
        lab.disks[number].restore(image);
    }
    lab.open_on(lab.all()).await
}

fn found(lab: &Lab) -> Content {
    lab.world.run(async { content(lab.open_on(lab.all()).await.0.group()) })
}

#[test]
fn a_disk_with_newer_versions_of_an_abandoned_line_joins_or_not() {
    run_seeds(test_name!("a_disk_with_newer_versions_of_an_abandoned_line_joins_or_not"), 20, |seed| {
        for step in 1.. {
            let lab = Lab::new(World::new(seed), 3);
            let (mut open, free) = lab.world.run(put_back(&lab));
            let before = content(open.group());
            let disks = free.iter().map(FreeDisk::as_new_disk).collect();
            let made = plan(open.group(), Change::AddDisks { disks }, &stamp("test")).expect("possible");
            let after = content(&made.after);
            let kind = if step % 3 == 0 { CrashKind::Process } else { CrashKind::Power };
            lab.world.schedule(CrashAt::Event(step), kind);
            let ran = lab.world.run_until_crash(open.apply(made, free));
            let done = matches!(ran, Ran::Finished(Ok(())));
            let first = found(&lab);
            assert!(first == after || (!done && first == before), "{first:?}");
            assert_eq!(found(&lab), first, "VERSION3: what counted counts");
            if done {
                return;
            }
        }
    });
}
