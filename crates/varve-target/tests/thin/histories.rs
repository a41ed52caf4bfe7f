//! Thin pools in the simulated world: random histories, a crash at any moment, everything read and compared.

mod host;
mod watch;

use host::{Host, Kind};
use std::io::Write;
use varve_sim::{CrashAt, CrashKind, caught_share, run_seeds, test_name};
use varve_target::thin::InjectedBug;
use watch::Counts;

/// One history: some boots, each ended by a crash or not; after each everything is read and checked.
fn history(seed: u64, kind: Kind, injected_bug: Option<InjectedBug>, counts: &'static Counts) {
    live(&Host::new(seed, kind, injected_bug, counts), kind, (2, 5));
}

fn live(host: &Host, kind: Kind, boots: (u64, u64)) {
    let mut random = host.world().random();
    for _ in 0..random.between(boots.0, boots.1) {
        let crash = if random.chance(1, 4) { CrashKind::Process } else { CrashKind::Power };
        let spread = *random.pick(match kind {
            Kind::Wide | Kind::LostNodes => &[200, 900, 4000],
            Kind::Clones => &[60, 200, 400],
            _ => &[30, 200, 900],
        });
        host.world().schedule(CrashAt::Event(random.between(1, spread)), crash);
        let mut choices = random.fork();
        let ran = host.world().run_until_crash(async {
            let Some(boot) = host.boot(true).await else { return };
            host.let_fail(true);
            if matches!(kind, Kind::Full | Kind::Stalls) {
                boot.overfill(&mut choices).await;
            }
            if kind == Kind::Clones {
                boot.clone_one(&mut choices).await;
            }
            for _ in 0..choices.between(1, 7) {
                boot.round(&mut choices).await;
                if boot.ended.get() {
                    return;
                }
            }
            if !host.is_faulty() && choices.chance(1, 5) {
                boot.fill(&mut choices).await;
            }
        });
        if !ran.crashed() {
            // The daemon ends without a word.
            host.world().crash(CrashKind::Process);
        }
        host.crashed();
        if kind == Kind::LostNodes {
            host.world().run(host.read_with_nodes_lost());
            host.world().crash(CrashKind::Process);
            host.crashed();
        }
        host.world().run(async {
            host.check_offline().await;
            let boot = host.boot(false).await.expect("no faults");
            boot.check().await;
            boot.verify().await;
        });
        // Nothing was written, so nothing can be lost by ending this boot in any way.
        host.world().crash(CrashKind::Power);
        host.crashed();
    }
}

#[test]
fn every_volume_survives_every_crash() {
    static COUNTS: Counts = Counts::new();
    let name = test_name!("every_volume_survives_every_crash");
    run_seeds(name, 2000, |seed| history(seed, Kind::Plain, None, &COUNTS));
    COUNTS.say(name.function);
    let [read, overwritten, _] = crate::by_map::moved();
    let _ = writeln!(std::io::stderr(), "sim: clients moved {read} bytes, overwrote {overwritten}, so far");
    assert!(read > overwritten && overwritten > 0, "every other client moves bytes by itself");
}

#[test]
fn failing_disks_cost_requests_but_no_content() {
    static COUNTS: Counts = Counts::new();
    let name = test_name!("failing_disks_cost_requests_but_no_content");
    run_seeds(name, 1500, |seed| history(seed, Kind::Faulty, None, &COUNTS));
    COUNTS.say(name.function);
}

#[test]
fn a_node_that_was_not_written_is_an_error_and_never_other_content() {
    static COUNTS: Counts = Counts::new();
    let name = test_name!("a_node_that_was_not_written_is_an_error_and_never_other_content");
    run_seeds(name, 800, |seed| history(seed, Kind::LostNodes, None, &COUNTS));
    COUNTS.say(name.function);
}

/// POOLOPEN1: most of what such records say is made again after a crash.
#[test]
fn maps_of_several_leaves_and_records_of_several_blocks_survive_every_crash() {
    static COUNTS: Counts = Counts::new();
    let name = test_name!("maps_of_several_leaves_and_records_of_several_blocks_survive_every_crash");
    run_seeds(name, 600, |seed| history(seed, Kind::Wide, None, &COUNTS));
    COUNTS.say(name.function);
    let [long, wraps, leaves] = COUNTS.large();
    assert!(
        leaves < 1000 || (long > 100 && wraps > 100),
        "{long} long records, {wraps} wraps, {leaves} leaves"
    );
}

#[test]
fn a_pool_that_is_nearly_full_survives_every_crash() {
    static COUNTS: Counts = Counts::new();
    let name = test_name!("a_pool_that_is_nearly_full_survives_every_crash");
    run_seeds(name, 500, |seed| history(seed, Kind::Full, None, &COUNTS));
    COUNTS.say(name.function);
}

#[test]
fn what_is_in_the_trash_survives_every_crash_and_comes_back_as_it_was() {
    static COUNTS: Counts = Counts::new();
    let name = test_name!("what_is_in_the_trash_survives_every_crash_and_comes_back_as_it_was");
    run_seeds(name, 1500, |seed| history(seed, Kind::Trash, None, &COUNTS));
    COUNTS.say(name.function);
    let [trashed, given_up] = COUNTS.trash();
    assert!(trashed > 2 * given_up && given_up > 100, "{trashed} in and out, {given_up} given up");
}

#[test]
fn volumes_and_clones_changed_in_the_same_places_survive_every_crash() {
    static COUNTS: Counts = Counts::new();
    let name = test_name!("volumes_and_clones_changed_in_the_same_places_survive_every_crash");
    run_seeds(name, 800, |seed| history(seed, Kind::Clones, None, &COUNTS));
    COUNTS.say(name.function);
}

#[test]
fn reads_may_hang_while_what_they_read_is_freed_and_used_again() {
    static COUNTS: Counts = Counts::new();
    let name = test_name!("reads_may_hang_while_what_they_read_is_freed_and_used_again");
    run_seeds(name, 800, |seed| history(seed, Kind::Stalls, None, &COUNTS));
    COUNTS.say(name.function);
}

/// Asserts that a fault is noticed by at least so many percent of some histories.
fn noticed(injected_bug: InjectedBug, kind: Kind, histories: u64, percent_min: u64) {
    static COUNTS: Counts = Counts::new();
    caught_share(&format!("{injected_bug:?}"), histories, percent_min, |seed| {
        history(seed, kind, Some(injected_bug), &COUNTS);
    });
}

#[test]
fn nodes_of_another_transaction_that_are_believed_are_noticed() {
    noticed(InjectedBug::TrustGenerations, Kind::LostNodes, 200, 5);
}

#[test]
fn metadata_committed_before_data_is_noticed() {
    noticed(InjectedBug::MetadataBeforeData, Kind::Plain, 200, 20);
}

#[test]
fn a_durable_write_that_ends_before_the_commit_is_noticed() {
    noticed(InjectedBug::DurableBeforeCommit, Kind::Plain, 200, 20);
}

#[test]
fn a_block_used_again_in_the_transaction_that_freed_it_is_noticed() {
    noticed(InjectedBug::ReuseAtOnce, Kind::Full, 300, 7);
}

#[test]
fn a_block_used_again_under_a_read_that_hangs_is_noticed() {
    static COUNTS: Counts = Counts::new();
    // In fewer histories with more boots each: it shows only where a block is used again under a read that hangs.
    caught_share("ForgetReaders", 100, 5, |seed| {
        let host = Host::new(seed, Kind::Stalls, Some(InjectedBug::ForgetReaders), &COUNTS);
        live(&host, Kind::Stalls, (8, 13));
    });
}

#[test]
fn bytes_moved_without_the_guard_are_noticed() {
    static COUNTS: Counts = Counts::new();
    caught_share("bytes moved without the guard", 100, 5, |seed| {
        let mut host = Host::new(seed, Kind::Stalls, None, &COUNTS);
        host.moves = crate::by_map::Moves::Unguarded;
        live(&host, Kind::Stalls, (8, 13));
    });
}

#[test]
fn a_shared_block_overwritten_in_place_is_noticed() {
    noticed(InjectedBug::OverwriteShared, Kind::Plain, 200, 25);
}

#[test]
fn zeros_that_show_the_origin_again_are_noticed() {
    noticed(InjectedBug::UnmapOverOrigin, Kind::Clones, 300, 5);
}

#[test]
fn a_block_overwritten_in_place_that_a_crash_would_share_again_is_noticed() {
    noticed(InjectedBug::OverwriteSharedLately, Kind::Clones, 300, 7);
}

#[test]
fn a_volume_in_the_trash_that_a_crash_would_bring_back_is_noticed() {
    noticed(InjectedBug::TrashUncommitted, Kind::Trash, 200, 5);
}

/// THIN10: only between a growth and the next checkpoint.
#[test]
fn a_pool_that_leads_behind_what_its_superblock_describes_is_noticed() {
    static COUNTS: Counts = Counts::new();
    caught_share("GrowthUndescribed", 100, 5, |seed| {
        let host = Host::new(seed, Kind::Full, Some(InjectedBug::GrowthUndescribed), &COUNTS);
        live(&host, Kind::Full, (8, 13));
    });
}
