//! Dependent snapshots in the simulated world: random histories, a crash at any moment, everything read and compared.
//!
//! A circle of waits (SNAPSHOT7, ROLLBACK5) is a deadlock, which the world names.

mod host;
mod stalls;

use host::{BOOTS_FAILED, GROWN, Host, Kind, REFUSED, Refusals, Rollbacks, SHRUNK, UNCHANGED};
use stalls::Stalls;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_sim::{CrashAt, CrashKind, caught_share, run_seeds, test_name};
use varve_target::snapshot::InjectedBug;

/// One history: some boots, each ended by a crash or not; after each everything is read and checked.
fn history(seed: u64, kind: Kind, injected_bug: Option<InjectedBug>) {
    live(&Host::new(seed, kind, injected_bug), kind, (2, 5));
}

fn live(host: &Host, history: Kind, boots: (u64, u64)) {
    let mut random = host.world().random();
    for _ in 0..random.between(boots.0, boots.1) {
        let kind = if random.chance(1, 4) { CrashKind::Process } else { CrashKind::Power };
        let spread = *random.pick(match history {
            Kind::Plain | Kind::Faulty | Kind::Removals | Kind::Rollbacks(_) => &[30, 200, 900],
            Kind::Stalls(_) | Kind::Overfull(_) | Kind::LostNodes => &[200, 900, 3000],
        });
        host.world().schedule(CrashAt::Event(random.between(1, spread)), kind);
        let mut choices = random.fork();
        let ran = host.world().run_until_crash(async {
            let Some(boot) = host.boot(true).await else { return };
            host.let_fail(true);
            boot.overfill(&mut choices).await;
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
        if matches!(history, Kind::LostNodes) {
            host.world().run(host.read_with_nodes_lost());
            host.world().crash(CrashKind::Process);
            host.crashed(CrashKind::Process);
        }
        host.world().run(async {
            let boot = host.boot(false).await.expect("no faults");
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
    run_seeds(test_name!("every_snapshot_survives_every_crash"), 9000, |seed| {
        history(seed, Kind::Plain, None);
    });
    let [read, overwritten, sent] = crate::by_map::moved();
    let _ = writeln!(
        std::io::stderr(),
        "sim: clients moved {read} bytes, overwrote {overwritten}, sent {sent}, so far"
    );
    assert!(read > overwritten && overwritten > 0 && sent > 0, "every other client moves bytes by itself");
}

#[test]
fn bytes_moved_without_the_guard_are_noticed() {
    caught_share("bytes moved without the guard", 100, 5, |seed| {
        let mut host = Host::new(seed, Kind::Plain, None);
        host.moves = crate::by_map::Moves::Unguarded;
        live(&host, Kind::Plain, (4, 8));
    });
}

#[test]
fn removals_may_be_interrupted_anywhere() {
    run_seeds(test_name!("removals_may_be_interrupted_anywhere"), 2500, |seed| {
        history(seed, Kind::Removals, None);
    });
}

#[test]
fn failing_disks_cost_requests_but_no_content() {
    let name = test_name!("failing_disks_cost_requests_but_no_content");
    run_seeds(name, 3500, |seed| history(seed, Kind::Faulty, None));
    let [failed, shrunk, grown] =
        [&BOOTS_FAILED, &SHRUNK, &GROWN].map(|number| number.load(Ordering::Relaxed));
    let _ = writeln!(
        std::io::stderr(),
        "sim: {}: {failed} boots failed, the origin was shrunk {shrunk} times and grew {grown} times, so far",
        name.function
    );
}

#[test]
fn a_node_that_was_not_written_is_an_error_and_never_other_content() {
    run_seeds(test_name!("a_node_that_was_not_written_is_an_error_and_never_other_content"), 1500, |seed| {
        history(seed, Kind::LostNodes, None);
    });
    let refused = REFUSED.load(Ordering::Relaxed);
    let _ = writeln!(std::io::stderr(), "sim: {refused} reads and openings were refused, so far");
}

#[test]
fn a_rollback_may_be_interrupted_anywhere_and_used_all_the_while() {
    static COUNTS: Rollbacks = Rollbacks::new();
    let name = "a_rollback_may_be_interrupted_anywhere_and_used_all_the_while";
    run_seeds(test_name!("a_rollback_may_be_interrupted_anywhere_and_used_all_the_while"), 5000, |seed| {
        history(seed, Kind::Rollbacks(&COUNTS), None);
    });
    let [begun, batches, ended, resumed] = COUNTS.now();
    let _ = writeln!(
        std::io::stderr(),
        "sim: {name}: {begun} rollbacks begun, {batches} batches, {ended} ended, {resumed} boots found one under way, \
         {} parts that none may name",
        UNCHANGED.load(Ordering::Relaxed)
    );
    assert!(begun < 1000 || (batches > begun && ended > 0 && resumed > 0), "they are interrupted, and end");
    assert!(begun < 1000 || UNCHANGED.load(Ordering::Relaxed) > 0, "some are compared");
}

/// SNAPSHOT2 and SNAPSHOT5: a snapshot that reads the origin, or the store, reads what was there.
#[test]
fn requests_may_hang_across_checkpoints_while_space_is_used_again() {
    static COUNTS: Stalls = Stalls::new();
    let name = "requests_may_hang_across_checkpoints_while_space_is_used_again";
    run_seeds(test_name!("requests_may_hang_across_checkpoints_while_space_is_used_again"), 3500, |seed| {
        history(seed, Kind::Stalls(&COUNTS), None);
    });
    let [requests, across, checkpoints] = COUNTS.now();
    let _ = writeln!(
        std::io::stderr(),
        "sim: {name}: {requests} requests hung, {across} of them across two checkpoints or more, {checkpoints} in all"
    );
    assert!(requests < 1000 || across > requests / 10, "they outlive checkpoints");
}

#[test]
fn snapshots_that_were_refused_never_come_back() {
    static COUNTS: Refusals = Refusals::new();
    static SEEDS: AtomicU64 = AtomicU64::new(0);
    let name = "snapshots_that_were_refused_never_come_back";
    run_seeds(test_name!("snapshots_that_were_refused_never_come_back"), 300, |seed| {
        SEEDS.fetch_add(1, Ordering::Relaxed);
        history(seed, Kind::Overfull(&COUNTS), None);
    });
    let _ = writeln!(std::io::stderr(), "sim: {name}: {} snapshots were refused", COUNTS.now());
    assert!(SEEDS.load(Ordering::Relaxed) < 300 || COUNTS.now() > 0, "some are refused");
}

/// Asserts that a fault is noticed by at least so many percent of some histories.
fn noticed(injected_bug: InjectedBug, kind: Kind, histories: u64, percent_min: u64) {
    caught_share(&format!("{injected_bug:?}"), histories, percent_min, |seed| {
        history(seed, kind, Some(injected_bug));
    });
}

/// As [`noticed`], in fewer histories with so many more crashes each: for faults that show only where a crash comes between
/// two certain steps, or after several rollbacks.
fn noticed_after_many_crashes(injected_bug: InjectedBug, kind: Kind, histories: u64, boots: (u64, u64)) {
    caught_share(&format!("{injected_bug:?}"), histories, 5, |seed| {
        live(&Host::new(seed, kind, Some(injected_bug)), kind, boots);
    });
}

static ROLLBACKS: Rollbacks = Rollbacks::new();

#[test]
fn a_snapshot_that_a_table_names_too_early_is_noticed() {
    static COUNTS: Refusals = Refusals::new();
    noticed_after_many_crashes(InjectedBug::NameAnnounced, Kind::Overfull(&COUNTS), 80, (18, 28));
}

#[test]
fn space_used_again_under_a_request_that_hangs_is_noticed() {
    static COUNTS: Stalls = Stalls::new();
    noticed_after_many_crashes(InjectedBug::ReuseWhileRead, Kind::Stalls(&COUNTS), 400, (8, 13));
}

#[test]
fn nodes_of_another_transaction_that_are_believed_are_noticed() {
    noticed_after_many_crashes(InjectedBug::TrustGenerations, Kind::LostNodes, 120, (8, 13));
}

/// Breaks SNAPSHOT1 and SNAPSHOT3.
#[test]
fn a_missing_flush_is_noticed() {
    noticed(InjectedBug::SkipFlush, Kind::Plain, 200, 7);
}

#[test]
fn an_entry_written_after_the_block_it_protects_is_noticed() {
    noticed(InjectedBug::EntryAfterWrite, Kind::Plain, 150, 20);
}

#[test]
fn a_removal_without_merge_is_noticed() {
    noticed(InjectedBug::SkipMerge, Kind::Removals, 300, 5);
}

#[test]
fn content_written_to_a_snapshot_taken_for_preserved_is_noticed() {
    noticed(InjectedBug::WrittenAsPreserved, Kind::Plain, 150, 10);
}

/// Breaks SNAPSHOT5.
#[test]
fn space_used_again_before_a_checkpoint_is_noticed() {
    noticed(InjectedBug::ReuseAtOnce, Kind::Removals, 200, 5);
}

#[test]
fn a_rollback_that_forgets_what_it_has_restored_is_noticed() {
    noticed(InjectedBug::SkipRestoredMark, Kind::Rollbacks(&ROLLBACKS), 150, 8);
}

#[test]
fn a_change_called_restored_before_it_is_durable_is_noticed() {
    noticed_after_many_crashes(InjectedBug::MarkBeforeReplacing, Kind::Rollbacks(&ROLLBACKS), 80, (9, 14));
}

#[test]
fn a_rollback_that_preserves_nothing_for_newer_snapshots_is_noticed() {
    noticed(InjectedBug::RestoreUnpreserved, Kind::Rollbacks(&ROLLBACKS), 150, 5);
}

#[test]
fn a_rollback_that_drops_what_others_need_is_noticed() {
    noticed_after_many_crashes(InjectedBug::DropNeeded, Kind::Rollbacks(&ROLLBACKS), 80, (9, 14));
}

#[test]
fn a_comparison_that_forgets_what_was_written_is_noticed() {
    noticed(InjectedBug::DiffWithoutWritten, Kind::Plain, 150, 12);
}

#[test]
fn a_name_that_is_not_in_the_log_is_noticed() {
    noticed(InjectedBug::RenameUnlogged, Kind::Plain, 150, 5);
}

/// SNAPSHOT10.
#[test]
fn a_store_that_leads_behind_what_its_superblock_describes_is_noticed() {
    noticed_after_many_crashes(InjectedBug::GrowthUndescribed, Kind::Plain, 80, (9, 14));
}
