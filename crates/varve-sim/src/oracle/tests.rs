//! The oracle's judgement, case by case.

use super::*;
use Durability::{Durable, Volatile};

const SECTOR: Extent = Extent::new(0, 512);

fn bytes(stamp: Stamp) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR_SIZE];
    crate::pattern::fill_sector(&mut bytes, stamp, 0);
    bytes
}

fn may_read(oracle: &mut Oracle, stamp: Stamp) -> bool {
    oracle.check(0, &bytes(stamp)).is_ok()
}

fn written(oracle: &mut Oracle, durability: Durability) -> Stamp {
    let write = oracle.write_started(SECTOR);
    oracle.write_finished(write, durability);
    write.stamp
}

#[test]
fn a_read_sees_the_last_acknowledged_write_or_one_under_way() {
    let mut oracle = Oracle::new(1, 4096);
    assert!(may_read(&mut oracle, Stamp::ZEROS));
    let first = written(&mut oracle, Volatile);
    let second = oracle.write_started(SECTOR);
    assert_eq!(oracle.allowed(0), [first, second.stamp]);
    assert!(!may_read(&mut oracle, Stamp::ZEROS));
    assert!(may_read(&mut oracle, first));
    oracle.write_finished(second, Volatile);
    assert!(!may_read(&mut oracle, first));
    assert!(may_read(&mut oracle, second.stamp));
}

#[test]
fn a_read_that_started_before_a_write_ended_may_see_what_was_there_before() {
    let mut oracle = Oracle::new(1, 4096);
    let first = written(&mut oracle, Durable);
    let (early, other) = (oracle.read_started(), oracle.read_started());
    let second = written(&mut oracle, Durable);
    let third = written(&mut oracle, Durable);
    assert!(
        oracle.check_read(early, 0, &bytes(first)).is_ok(),
        "ORACLE1: even when it is durably overwritten"
    );
    assert!(oracle.check_read(other, 0, &bytes(second)).is_ok());
    assert_eq!(oracle.allowed(0), [third]);
    assert!(oracle.open.is_empty(), "nothing is kept for reads that are over");
}

#[test]
fn of_two_concurrent_writes_the_one_that_was_seen_came_last() {
    let mut oracle = Oracle::new(1, 4096);
    let (one, two) = (oracle.write_started(SECTOR), oracle.write_started(SECTOR));
    oracle.write_finished(two, Volatile);
    oracle.write_finished(one, Volatile);
    assert_eq!(oracle.allowed(0), [one.stamp, two.stamp]);
    assert!(may_read(&mut oracle, one.stamp));
    assert!(!may_read(&mut oracle, two.stamp), "ORACLE3");
    let flush = oracle.flush_started();
    oracle.flush_finished(flush);
    oracle.crashed();
    assert!(!may_read(&mut oracle, two.stamp), "the other was overwritten before the flush");
    assert!(may_read(&mut oracle, one.stamp));
}

#[test]
fn a_flush_covers_what_was_acknowledged_before_it_started() {
    let mut oracle = Oracle::new(1, 4096);
    let first = written(&mut oracle, Volatile);
    let late = oracle.write_started(SECTOR);
    let flush = oracle.flush_started();
    oracle.write_finished(late, Volatile);
    let last = written(&mut oracle, Volatile);
    oracle.flush_finished(flush);
    oracle.crashed();
    assert_eq!(oracle.allowed(0), [first, late.stamp, last], "not zeros any more");
    assert!(may_read(&mut oracle, late.stamp));
    assert!(!may_read(&mut oracle, first), "what was found after the crash stays");
}

#[test]
fn a_flush_that_was_not_acknowledged_promises_nothing() {
    let mut oracle = Oracle::new(1, 4096);
    let first = written(&mut oracle, Volatile);
    let _flush = oracle.flush_started();
    oracle.crashed();
    assert_eq!(oracle.allowed(0), [Stamp::ZEROS, first]);
}

#[test]
fn an_unread_crash_leaves_its_doubts_to_the_next() {
    let mut oracle = Oracle::new(1, 4096);
    let first = written(&mut oracle, Volatile);
    oracle.crashed();
    let second = written(&mut oracle, Volatile);
    assert_eq!(oracle.allowed(0), [second]);
    oracle.crashed();
    assert_eq!(oracle.allowed(0), [Stamp::ZEROS, first, second]);
    let third = written(&mut oracle, Durable);
    oracle.crashed();
    assert_eq!(oracle.allowed(0), [third], "ORACLE2");
}

#[test]
fn a_failed_write_may_have_happened() {
    let mut oracle = Oracle::new(1, 4096);
    let write = oracle.write_started(SECTOR);
    oracle.write_failed(write);
    assert_eq!(oracle.allowed(0), [Stamp::ZEROS, write.stamp]);
    assert!(may_read(&mut oracle, write.stamp));
    assert!(!may_read(&mut oracle, Stamp::ZEROS), "once it was seen it has happened");
    let last = written(&mut oracle, Durable);
    oracle.crashed();
    assert_eq!(oracle.allowed(0), [last], "it does not come back after a later write");
}

#[test]
fn a_killed_process_keeps_what_was_acknowledged_but_not_durably() {
    let mut oracle = Oracle::new(1, 4096);
    let first = written(&mut oracle, Volatile);
    let second = oracle.write_started(SECTOR);
    oracle.killed();
    assert_eq!(oracle.allowed(0), [first, second.stamp]);
    assert!(may_read(&mut oracle, first));
    assert_eq!(oracle.allowed(0), [first]);
    oracle.crashed();
    assert_eq!(oracle.allowed(0), [Stamp::ZEROS, first, second.stamp]);
}

#[test]
fn discarded_content_may_be_anything_of_this_sector_and_then_stays() {
    let mut oracle = Oracle::new(1, 4096);
    let first = written(&mut oracle, Durable);
    let discard = oracle.discard_started(SECTOR);
    oracle.write_finished(discard, Durable);
    let mut elsewhere = vec![0; SECTOR_SIZE];
    crate::pattern::fill_sector(&mut elsewhere, first, 5);
    assert!(oracle.check(0, &elsewhere).is_err(), "but not another sector's");
    assert!(oracle.check(0, &[3; SECTOR_SIZE]).is_err(), "and not rubbish");
    assert!(!may_read(&mut oracle, Stamp::new(2, 1)), "ORACLE4: nor what another volume wrote");
    assert!(!may_read(&mut oracle, Stamp::new(1, 9)), "ORACLE4: nor what was never written");
    assert!(may_read(&mut oracle, first));
    assert!(!may_read(&mut oracle, Stamp::ZEROS));
}

#[test]
fn a_snapshot_has_what_was_there_and_perhaps_what_was_under_way() {
    let mut oracle = Oracle::new(1, 4096);
    let first = written(&mut oracle, Durable);
    let second = oracle.write_started(SECTOR);
    let mut snapshot = oracle.snapshot(2);
    oracle.write_finished(second, Durable);
    let third = written(&mut oracle, Durable);
    assert_eq!(snapshot.allowed(0), [first, second.stamp]);
    assert!(!may_read(&mut snapshot, third));
    assert!(may_read(&mut snapshot, second.stamp));
    assert!(!may_read(&mut snapshot, first), "it holds still");
    oracle.restore(&snapshot);
    assert!(!may_read(&mut oracle, third));
    oracle.grow(8192);
    assert_eq!((oracle.size(), oracle.allowed(4096)), (8192, vec![Stamp::ZEROS]));
}

#[test]
fn a_mismatch_says_what_was_found_and_what_would_do() {
    let mut oracle = Oracle::new(1, 4096);
    let first = written(&mut oracle, Durable);
    let told = |bytes: &[u8], oracle: &mut Oracle| match oracle.check(0, bytes) {
        Ok(()) => panic!("it is wrong"),
        Err(mismatch) => mismatch.to_string(),
    };
    let place = "volume 1, byte 0x0 (sector 0): ";
    assert_eq!(told(&[1; 512], &mut oracle), format!("{place}read garbage, allowed: [v1#1]"));
    assert_eq!(told(&[0; 512], &mut oracle), format!("{place}read zeros, allowed: [v1#1]"));
    let mut elsewhere = vec![0; SECTOR_SIZE];
    crate::pattern::fill_sector(&mut elsewhere, first, 3);
    assert_eq!(told(&elsewhere, &mut oracle), format!("{place}read v1#1 of sector 3, allowed: [v1#1]"));
}

#[test]
fn a_discard_leaves_what_a_volume_and_its_forebears_have_had_and_nothing_newer_of_theirs() {
    let mut oracle = Oracle::new(1, 4096);
    let (first, second) = (written(&mut oracle, Durable), written(&mut oracle, Volatile));
    let (mut one, mut two) = (oracle.snapshot(2), oracle.snapshot(3));
    let third = written(&mut oracle, Durable);
    let own = written(&mut one, Durable);
    for (volume, allowed) in [(&mut one, own), (&mut two, first)] {
        let discard = volume.discard_started(SECTOR);
        volume.write_finished(discard, Durable);
        assert!(!may_read(volume, third), "ORACLE4: the origin wrote it later");
        let mut again = volume.fork();
        assert!(may_read(&mut again, second));
        assert!(may_read(volume, allowed));
    }
    assert!(!may_read(&mut two, own), "ORACLE4: it is a sibling's");
    oracle.cut(0);
    oracle.grow(4096);
    let discard = oracle.discard_started(SECTOR);
    oracle.write_finished(discard, Durable);
    assert!(!may_read(&mut oracle, third), "ORACLE4: what was cut off does not come back");
    assert!(may_read(&mut oracle, Stamp::ZEROS));
}

#[test]
fn what_a_failed_flush_was_to_cover_is_promised_by_no_later_one() {
    let mut oracle = Oracle::new(1, 4096);
    let first = written(&mut oracle, Durable);
    let second = written(&mut oracle, Volatile);
    let _failed = oracle.flush_started();
    oracle.flush_failed();
    assert_eq!(oracle.allowed(0), [first, second], "it may be gone already");
    assert!(may_read(&mut oracle, second), "or not yet");
    let flush = oracle.flush_started();
    oracle.flush_finished(flush);
    oracle.crashed();
    assert_eq!(oracle.allowed(0), [first, second]);
    let third = written(&mut oracle, Volatile);
    let flush = oracle.flush_started();
    oracle.flush_finished(flush);
    oracle.crashed();
    assert_eq!(oracle.allowed(0), [third], "what is written again is promised again");
}
