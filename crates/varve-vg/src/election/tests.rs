//! Tests of elections on trees of versions drawn by hand; the simulation draws the others.

use super::*;
use crate::model::Description;
use crate::plan::{Change, NewDisk, Stamp, plan, plan_group};
use varve_block::{Extent, UnixTime};
use varve_format::{Damaged, SlotError};

pub(super) const DISKS: [u128; 3] = [0xa, 0xb, 0xd];

fn id(disk: char) -> Uuid {
    Uuid::from_u128(u128::from(disk.to_digit(16).expect("a hexadecimal letter")))
}

fn stamp(change: &str) -> Stamp {
    Stamp { date: UnixTime(1), change: change.into() }
}

/// The first version of a group on the disks a, b and d.
pub(super) fn first() -> Slot {
    let disks = DISKS.map(|disk| NewDisk {
        id: Uuid::from_u128(disk),
        size: 8 << 20,
        data_offset: 1 << 20,
        path: format!("/dev/{disk:x}"),
    });
    let group =
        plan_group("data", Uuid::from_u128(1), 65_536, &disks, &stamp("create")).expect("sound").after;
    let (vg, pv, text) = (group.id(), Uuid::nil(), group.text());
    Slot { vg, pv, sequence: 1, previous: None, ancestors: Vec::new(), text }
}

/// The version after `slot`: `change` names it; the disks in `without` are marked missing, all others are not.
fn next(slot: &Slot, change: &str, without: &str) -> Slot {
    next_numbered(slot, change, without, slot.sequence + 1)
}

pub(super) fn next_numbered(slot: &Slot, change: &str, without: &str, sequence: u64) -> Slot {
    let group = Group::from_text(&slot.text).expect("sound");
    let all: Vec<Uuid> = DISKS.map(Uuid::from_u128).to_vec();
    let (missing, returned) =
        all.into_iter().partition(|disk| without.chars().any(|letter| id(letter) == *disk));
    let planned = plan(&group, Change::MarkMissing { missing, returned }, &stamp(change)).expect("possible");
    let mut description: Description = planned.after.description().clone();
    description.group.sequence = sequence;
    slot.followed_by(sequence, Group::new(description).expect("sound").text())
}

/// A disk that holds these versions.
fn holds(disk: char, slots: &[&Slot]) -> Replica {
    let placed = (0..).zip(slots).map(|(number, slot)| Placed {
        extent: Extent::new(number * 4096, 4096),
        version: slot.version(),
        slot: (*slot).clone(),
    });
    Replica { pv: id(disk), ring: RingContent { slots: placed.collect(), damaged: Vec::new() } }
}

/// What is left of a version that a crash tore, or of one of which not even the header is whole.
fn torn(version: Option<&Slot>) -> Damaged {
    let error = if version.is_some() { SlotError::Body } else { SlotError::Header };
    let (sequence, version) = (version.map(|slot| slot.sequence), version.map(Slot::version));
    Damaged { address: 0, sequence, version, error }
}

fn elected(replicas: &[Replica]) -> (Uuid, Vec<ReplicaState>) {
    let election = elect(replicas).expect("decided");
    (election.slot.version(), election.replica_states)
}

#[test]
fn a_commit_cut_off_is_carried_on_from_any_disk_that_has_it() {
    let one = first();
    let two = next(&one, "two", "");
    let found = elected(&[holds('a', &[&one]), holds('b', &[&one, &two]), holds('d', &[&one])]);
    assert_eq!(
        found,
        (two.version(), vec![ReplicaState::Behind, ReplicaState::Current, ReplicaState::Behind])
    );
    assert_eq!(elected(&[holds('a', &[&one])]).0, one.version());
    assert!(matches!(elect(&[]), Err(Undecided::Nothing)));
}

/// Two commits that a crash, and then a disk that failed, cut off at the disk that both counted on.
#[test]
fn a_torn_version_is_no_trace_of_another_one() {
    let one = first();
    let (without_b, without_a) = (next(&one, "two", "b"), next(&one, "other", "a"));
    let mut replicas =
        [holds('a', &[&one, &without_b]), holds('b', &[&one, &without_a]), holds('d', &[&one])];
    replicas[2].ring.damaged.push(torn(Some(&without_b)));
    let (winner, states) = elected(&replicas);
    assert_eq!(winner, without_b.version(), "ELECT3: d never held the other one");
    assert_eq!(states, [ReplicaState::Current, ReplicaState::Returned, ReplicaState::Behind]);
    replicas[2].ring.damaged[0].version = None;
    assert!(matches!(elect(&replicas), Err(Undecided::Divergent(_))), "it may be either of them");
}

/// A change was cut off after it had reached a alone; then the group went on, first with d alone, then with all. An older copy of a is in
/// its place.
#[test]
fn an_older_copy_of_a_disk_does_not_bring_a_change_back_that_the_group_has_passed() {
    let one = first();
    let (cut_off, alone) = (next(&one, "cut off", "b"), next(&one, "d alone", "ab"));
    let together = next_numbered(&alone, "all", "", 3);
    let last = next(&together, "last", "");
    let (older, b) = (holds('a', &[&one, &cut_off]), holds('b', &[&one, &together, &last]));
    let (winner, states) = elected(&[older.clone(), b.clone()]);
    assert_eq!(winner, last.version(), "ELECT6: a held the one before it");
    assert_eq!(states, [ReplicaState::Stale, ReplicaState::Current]);
    let early = [older, holds('b', &[&one, &together])];
    assert!(
        matches!(elect(&early), Err(Undecided::Divergent(_))),
        "ELECT2: a may never have held the last one"
    );
    let newer = holds('a', &[&one, &next_numbered(&one, "cut off later", "b", 9)]);
    assert!(
        matches!(elect(&[newer, b]), Err(Undecided::Divergent(_))),
        "ELECT2: b may have been used alone by the version that is on no disk"
    );
}

/// d was used alone after a and b had left it out; that they took it back was written to them alone.
#[test]
fn a_version_that_takes_a_disk_back_and_never_reached_it_does_not_undo_what_that_disk_has_acknowledged() {
    let one = first();
    let left_out = next(&one, "without d", "d");
    let back = next_numbered(&left_out, "d taken back", "", 4);
    let renamed = next(&next(&one, "d alone", "ab"), "a change of d", "ab");
    let halves = ['a', 'b'].map(|disk| holds(disk, &[&one, &left_out, &back]));
    let d = holds('d', &[&one, &renamed]);
    let found = elect(&[halves[0].clone(), halves[1].clone(), d]);
    assert!(matches!(found, Err(Undecided::Divergent(_))), "each has left the other out: {found:?}");
    let (cut_off, [a, b]) = (next(&one, "cut off", "a"), halves);
    let (winner, _) = elected(&[a, b, holds('d', &[&one, &cut_off])]);
    assert_eq!(winner, back.version(), "ELECT3: b never had what d has");
}

/// Of two versions with one number the disk has the acknowledged one that both count on, unless an older copy is in its place.
#[test]
fn an_older_copy_does_not_prove_that_a_version_was_not_acknowledged() {
    let one = first();
    let alone = next(&one, "a alone", "bd");
    let with_b = next(&alone, "b taken back", "d");
    let (cut_off, acknowledged) = (next(&with_b, "cut off", "d"), next(&with_b, "d for b", "b"));
    let (b, d) = (holds('b', &[&one, &with_b, &cut_off]), holds('d', &[&one, &acknowledged]));
    let whole = holds('a', &[&one, &alone, &with_b, &acknowledged]);
    assert_eq!(elected(&[whole, b.clone(), d.clone()]).0, acknowledged.version());
    let older = holds('a', &[&one]);
    assert!(matches!(elect(&[older, b, d]), Err(Undecided::Divergent(_))), "ELECT3: it lacks more than one");
}

#[test]
fn a_disk_that_lost_what_it_had_acknowledged_is_stale() {
    let one = first();
    let two = next(&one, "two", "");
    let three = next(&two, "three", "");
    let found = elected(&[holds('a', &[&one]), holds('b', &[&one, &two, &three]), holds('d', &[])]);
    assert_eq!(
        found,
        (three.version(), vec![ReplicaState::Stale, ReplicaState::Current, ReplicaState::Stale]),
        "ELECT5"
    );
}

#[test]
fn a_version_written_alone_loses_to_the_line_that_left_its_disk_out() {
    let one = first();
    let cut_off = next(&one, "cut off", "");
    let without = next(&one, "without a", "a");
    let later = next(&without, "later", "a");
    let found = elected(&[holds('a', &[&one, &cut_off]), holds('b', &[&one, &without, &later])]);
    assert_eq!(found, (later.version(), vec![ReplicaState::Returned, ReplicaState::Current]), "ELECT2");
    let back = next(&later, "taken back", "");
    let found = elected(&[holds('a', &[&one, &cut_off]), holds('b', &[&one, &without, &later, &back])]);
    assert_eq!(
        found,
        (back.version(), vec![ReplicaState::Behind, ReplicaState::Current]),
        "ELECT2, while it is taken back"
    );
}

#[test]
fn halves_used_apart_are_not_decided() {
    let one = first();
    let without_a = next(&one, "without a", "a");
    let alone = next(&one, "a alone", "bd");
    let replicas =
        [holds('a', &[&one, &alone]), holds('b', &[&one, &without_a]), holds('d', &[&one, &without_a])];
    let Err(Undecided::Divergent(mut sides)) = elect(&replicas) else { panic!("ELECT4") };
    sides.sort();
    assert_eq!(sides, [vec![id('a')], vec![id('b'), id('d')]]);
}

#[test]
fn a_replica_proves_that_a_version_was_never_acknowledged() {
    let one = first();
    let cut_off = next(&one, "without a, cut off", "a");
    let alone = next(&one, "a alone", "bd");
    let with_replica = [holds('a', &[&one, &alone]), holds('b', &[&one, &cut_off]), holds('d', &[&one])];
    assert_eq!(elected(&with_replica).0, alone.version(), "ELECT3: d never got what b holds");
    assert!(matches!(elect(&with_replica[..2]), Err(Undecided::Divergent(_))), "without d nobody knows");
    let mut damaged = with_replica;
    damaged[2].ring.damaged.push(torn(None));
    assert!(matches!(elect(&damaged), Err(Undecided::Divergent(_))), "a damaged ring proves nothing");
}

#[test]
fn of_versions_that_were_all_cut_off_any_will_do_but_all_choose_the_same() {
    let one = first();
    let left = next(&one, "without d", "d");
    let right = next(&one, "without a", "a");
    let replicas = [holds('a', &[&one, &left]), holds('b', &[&one]), holds('d', &[&one, &right])];
    let chosen = elected(&replicas).0;
    let mut turned = replicas;
    turned.reverse();
    assert_eq!(elected(&turned).0, chosen);
    assert!([left.version(), right.version()].contains(&chosen));
}

#[test]
fn an_old_image_does_not_win_because_its_line_once_left_the_others_out() {
    let one = first();
    let alone = next(&one, "a alone", "bd");
    let back = next(&alone, "b and d taken back, cut off", "");
    let alone_again = next(&back, "a alone again", "bd");
    let together = next(&alone_again, "all together", "");
    let newest = next(&together, "newest", "");
    let others = [holds('b', &[&one, &together, &newest]), holds('d', &[&one, &together, &newest])];
    let old = holds('a', &[&one, &alone, &back]);
    let found = elected(&[old, others[0].clone(), others[1].clone()]);
    assert_eq!(
        found,
        (newest.version(), vec![ReplicaState::Stale, ReplicaState::Current, ReplicaState::Current])
    );
    // The same, so long ago that no slot names the old versions any more.
    let mut later = newest;
    for step in 0..12 {
        later = next(&later, &format!("step {step}"), "");
    }
    let others = [holds('b', &[&later]), holds('d', &[&later])];
    let old = holds('a', &[&one, &alone, &back]);
    let found = elect(&[old, others[0].clone(), others[1].clone()]);
    assert!(matches!(found, Err(Undecided::Divergent(_))), "refused, not believed: {found:?}");
}

#[test]
fn a_disk_that_was_given_up_is_none_of_the_group() {
    let one = first();
    let group = Group::from_text(&one.text).expect("sound");
    let planned = plan(&group, Change::RemoveDisk { id: id('d') }, &stamp("vg reduce")).expect("possible");
    let two = one.followed_by(2, planned.after.text());
    let found = elected(&[holds('a', &[&one, &two]), holds('d', &[&one])]);
    assert_eq!(found, (two.version(), vec![ReplicaState::Current, ReplicaState::Removed]));
}

#[test]
fn a_text_of_a_newer_program_is_not_passed_over() {
    let one = first();
    let two = one.followed_by(2, one.text.replace("version = 5", "version = 6"));
    let found = elect(&[holds('a', &[&one, &two])]).expect_err("not readable");
    assert_eq!(found, Undecided::Text(TextError::Newer(6)));
}

#[test]
fn whole_versions_that_cannot_be_true_are_refused() {
    let one = first();
    let other_text = one.followed_by(2, one.text.clone());
    let unlisted = Replica { pv: Uuid::from_u128(0xf), ..holds('a', &[&one]) };
    let high = next_numbered(&one, "high", "", 1 << 62);
    let nobody = next(&one, "nobody", "abd");
    for replica in [holds('a', &[&other_text]), holds('a', &[&high]), holds('a', &[&one, &nobody])] {
        assert!(matches!(elect(&[replica]), Err(Undecided::Contradiction(_))));
    }
    assert!(matches!(elect(&[unlisted]), Err(Undecided::Left(_))));
}

#[test]
fn numbers_do_not_decide() {
    let one = first();
    let without_a = next(&one, "without a", "a");
    let cut_off = next_numbered(&one, "cut off", "", 9);
    let found = elected(&[holds('a', &[&one, &cut_off]), holds('b', &[&one, &without_a])]);
    assert_eq!(found.0, without_a.version());
}
