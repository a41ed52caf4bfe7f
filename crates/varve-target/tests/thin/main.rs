//! Thin pools in the simulated world: random histories, a crash at any moment, everything read and compared.

mod host;

use host::LEAVES;
use host::{Host, Kind};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_sim::{CrashAt, CrashKind, caught, run_seeds, test_name};
use varve_target::thin::Sabotage;

/// One history: some boots, each ended by a crash or not; after each everything is read and checked.
fn history(seed: u64, kind: Kind, sabotage: Option<Sabotage>) {
    let host = Host::new(seed, kind, sabotage);
    let mut random = host.world().random();
    for _ in 0..random.between(2, 5) {
        let crash = if random.chance(1, 4) { CrashKind::Process } else { CrashKind::Power };
        let spread = *random.pick(if kind == Kind::Wide { &[200, 900, 4000] } else { &[30, 200, 900] });
        host.world().schedule(CrashAt::Event(random.between(1, spread)), crash);
        let mut choices = random.fork();
        let ran = host.world().run_until_crash(async {
            let Some(boot) = host.boot(true).await else { return };
            host.let_fail(true);
            if kind == Kind::Full {
                boot.crowd(&mut choices).await;
            }
            for _ in 0..choices.between(1, 7) {
                boot.round(&mut choices).await;
                if boot.ended.get() {
                    return;
                }
            }
            if kind != Kind::Faulty && choices.chance(1, 5) {
                boot.fill(&mut choices).await;
            }
        });
        if !ran.crashed() {
            // The daemon ends without a word.
            host.world().crash(CrashKind::Process);
        }
        host.crashed();
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
    run_seeds(test_name!("every_volume_survives_every_crash"), 1500, |seed| history(seed, Kind::Plain, None));
}

#[test]
fn failing_disks_cost_requests_but_no_content() {
    run_seeds(test_name!("failing_disks_cost_requests_but_no_content"), 800, |seed| {
        history(seed, Kind::Faulty, None);
    });
}

fn now(numbers: &[AtomicU64]) -> Vec<u64> {
    numbers.iter().map(|number| number.load(Ordering::Relaxed)).collect()
}

#[test]
fn maps_of_several_leaves_and_records_of_several_blocks_survive_every_crash() {
    let name = "maps_of_several_leaves_and_records_of_several_blocks_survive_every_crash";
    run_seeds(
        test_name!("maps_of_several_leaves_and_records_of_several_blocks_survive_every_crash"),
        250,
        |seed| {
            history(seed, Kind::Wide, None);
        },
    );
    let leaves = LEAVES.load(Ordering::Relaxed);
    let _ = writeln!(std::io::stderr(), "sim: {name}: {leaves} times a map of several leaves was found");
}

#[test]
fn a_pool_that_is_nearly_full_survives_every_crash() {
    run_seeds(test_name!("a_pool_that_is_nearly_full_survives_every_crash"), 500, |seed| {
        history(seed, Kind::Full, None);
    });
}

/// With how many of 300 histories a fault is noticed.
fn noticed(sabotage: Sabotage) -> u64 {
    let noticed = caught(300, |seed| history(seed, Kind::Plain, Some(sabotage)));
    let _ = writeln!(std::io::stderr(), "{sabotage:?}: noticed by {noticed} of 300 histories");
    noticed
}

#[test]
fn metadata_committed_before_data_is_noticed() {
    assert!(noticed(Sabotage::MetadataBeforeData) > 0);
}

#[test]
fn a_durable_write_that_ends_before_the_commit_is_noticed() {
    assert!(noticed(Sabotage::DurableBeforeCommit) > 0);
}

#[test]
fn a_block_used_again_in_the_transaction_that_freed_it_is_noticed() {
    assert!(noticed(Sabotage::ReuseAtOnce) > 0);
}

#[test]
fn a_shared_block_overwritten_in_place_is_noticed() {
    assert!(noticed(Sabotage::OverwriteShared) > 0);
}

#[test]
fn zeros_that_show_the_origin_again_are_noticed() {
    assert!(noticed(Sabotage::UnmapOverOrigin) > 0);
}

#[test]
fn a_block_overwritten_in_place_that_a_crash_would_share_again_is_noticed() {
    assert!(noticed(Sabotage::OverwriteSharedLately) > 0);
}

#[test]
fn zz_measure() {
    for kind in [Kind::Plain, Kind::Wide, Kind::Full] {
        for sabotage in [
            Sabotage::MetadataBeforeData,
            Sabotage::DurableBeforeCommit,
            Sabotage::ReuseAtOnce,
            Sabotage::ForgetReaders,
            Sabotage::OverwriteShared,
            Sabotage::OverwriteSharedLately,
            Sabotage::PassDownLate,
            Sabotage::UnmapOverOrigin,
        ] {
            let begun = std::time::Instant::now();
            let noticed = caught(100, |seed| history(seed, kind, Some(sabotage)));
            let _ = writeln!(
                std::io::stderr(),
                "MEASURE {kind:?} {sabotage:?}: noticed by {noticed} of 100 in {:?}",
                begun.elapsed()
            );
        }
    }
}
