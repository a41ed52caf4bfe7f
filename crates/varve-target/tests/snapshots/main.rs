//! Dependent snapshots in the simulated world: random histories, a crash at any moment, everything read and compared.

mod host;

use host::{Host, Rollbacks};
use std::io::Write;
use varve_sim::{CrashAt, CrashKind, caught, run_seeds, test_name};
use varve_target::snapshot::Sabotage;

/// One history: some boots, each ended by a crash or not; after each everything is read and checked.
fn history(seed: u64, faulty: bool, sabotage: Option<Sabotage>) {
    live(&Host::new(seed, faulty, sabotage));
}

/// As [`history`], with many rollbacks.
fn history_of_rollbacks(seed: u64, sabotage: Option<Sabotage>, rollbacks: &'static Rollbacks) {
    let mut host = Host::new(seed, false, sabotage);
    host.rollbacks = Some(rollbacks);
    live(&host);
}

fn live(host: &Host) {
    let mut random = host.world().random();
    for _ in 0..random.between(2, 5) {
        let kind = if random.chance(1, 4) { CrashKind::Process } else { CrashKind::Power };
        let spread = *random.pick(&[30, 200, 900]);
        host.world().schedule(CrashAt::Event(random.between(1, spread)), kind);
        let mut choices = random.fork();
        let ran = host.world().run_until_crash(async {
            let boot = host.boot().await;
            host.let_fail(true);
            for _ in 0..choices.between(1, 7) {
                boot.round(&mut choices).await;
                if boot.ended.get() {
                    return;
                }
            }
            if choices.chance(1, 6) {
                boot.fill(&mut choices).await;
            }
        });
        if ran.crashed() {
            host.crashed(kind);
        } else {
            // The daemon ends without a word.
            host.world().crash(CrashKind::Process);
            host.crashed(CrashKind::Process);
        }
        host.world().run(async {
            let boot = host.boot().await;
            boot.verify().await;
            boot.check().await;
        });
        // Nothing was written, so nothing can be lost by ending this boot in any way.
        host.world().crash(CrashKind::Power);
        host.crashed(CrashKind::Power);
    }
}

#[test]
fn every_snapshot_survives_every_crash() {
    run_seeds(test_name!("every_snapshot_survives_every_crash"), 6000, |seed| history(seed, false, None));
}

#[test]
fn failing_disks_cost_requests_but_no_content() {
    run_seeds(test_name!("failing_disks_cost_requests_but_no_content"), 1500, |seed| {
        history(seed, true, None);
    });
}

#[test]
fn a_rollback_may_be_interrupted_anywhere_and_used_all_the_while() {
    static COUNTS: Rollbacks = Rollbacks::new();
    let name = "a_rollback_may_be_interrupted_anywhere_and_used_all_the_while";
    run_seeds(test_name!("a_rollback_may_be_interrupted_anywhere_and_used_all_the_while"), 4000, |seed| {
        history_of_rollbacks(seed, None, &COUNTS);
    });
    let [begun, doses, ended, resumed] = COUNTS.now();
    let _ = writeln!(
        std::io::stderr(),
        "sim: {name}: {begun} rollbacks begun, {doses} doses, {ended} ended, {resumed} boots found one under way"
    );
    assert!(begun < 1000 || (doses > begun && ended > 0 && resumed > 0), "they are interrupted, and end");
}

/// As [`noticed`], in histories with many rollbacks.
fn noticed_in_rollbacks(sabotage: Sabotage, histories: u64) -> u64 {
    static COUNTS: Rollbacks = Rollbacks::new();
    let noticed = caught(histories, |seed| history_of_rollbacks(seed, Some(sabotage), &COUNTS));
    let _ = writeln!(std::io::stderr(), "{sabotage:?}: noticed by {noticed} of {histories} histories");
    noticed
}

/// With how many of 150 histories a fault is noticed.
fn noticed(sabotage: Sabotage) -> u64 {
    let noticed = caught(150, |seed| history(seed, false, Some(sabotage)));
    let _ = writeln!(std::io::stderr(), "{sabotage:?}: noticed by {noticed} of 150 histories");
    noticed
}

#[test]
fn a_missing_flush_is_noticed() {
    assert!(noticed(Sabotage::SkipFlush) > 0);
}

#[test]
fn an_entry_written_after_the_block_it_protects_is_noticed() {
    assert!(noticed(Sabotage::EntryAfterWrite) > 0);
}

#[test]
fn a_removal_without_hand_over_is_noticed() {
    assert!(noticed(Sabotage::SkipHandOver) > 0);
}

#[test]
fn content_written_to_a_snapshot_taken_for_preserved_is_noticed() {
    assert!(noticed(Sabotage::WrittenAsPreserved) > 0);
}

#[test]
fn space_used_again_before_a_checkpoint_is_noticed() {
    assert!(noticed(Sabotage::ReuseAtOnce) > 0);
}

#[test]
fn a_rollback_that_forgets_what_it_has_restored_is_noticed() {
    assert!(noticed_in_rollbacks(Sabotage::SkipRestoredMark, 150) > 0);
}

#[test]
fn a_change_called_restored_before_it_is_durable_is_noticed() {
    assert!(noticed_in_rollbacks(Sabotage::MarkBeforeReplacing, 1500) > 0);
}

#[test]
fn a_rollback_that_preserves_nothing_for_newer_snapshots_is_noticed() {
    assert!(noticed_in_rollbacks(Sabotage::RestoreUnpreserved, 150) > 0);
}

#[test]
fn a_comparison_that_forgets_what_was_written_is_noticed() {
    assert!(noticed(Sabotage::DiffWithoutWritten) > 0);
}
