//! What it costs a disk that jobs stand in the text of its group: flushes, beside those of the same work without.

use super::daemon::Daemon;
use super::host::Host;
use super::verbs::Verb;
use crate::injected_bug::{self, InjectedBug};
use std::time::Duration;
use varve_block::MIB;

const DISK: &str = "/disks/one";

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn snapshots(volume: &str, own: &[&str]) -> Verb {
    let names = own.iter().map(|own| (volume.to_owned(), (*own).to_owned())).collect();
    Verb::Snapshot { names, read_only: false, independent: false }
}

/// Flushes of the disk that each of `verbs` causes until everything is idle.
fn flushes(verbs: &[Verb]) -> Vec<u64> {
    let host = Host::new(7, Duration::from_micros(400));
    let work = async {
        let daemon = Daemon::start(&host).await;
        let mut counted = Vec::new();
        for verb in verbs {
            let before = match verb {
                Verb::CreateGroup { .. } => 0,
                _ => host.disk_at(DISK).counters().flushes,
            };
            let job = verb.clone().issue(&daemon).await.expect("it is possible");
            if let Some(job) = job {
                daemon.wait_for_job(&job).await.expect("it is known");
                assert_eq!(daemon.outcome_of_job(job).await, Ok(()));
            }
            daemon.idle().await;
            host.world.clock().sleep(Duration::from_secs(5)).await; // What a job leaves behind comes to an end.
            counted.push(host.disk_at(DISK).counters().flushes - before);
        }
        daemon.stop().await;
        counted
    };
    let mut counted = Vec::new();
    let ran = host.world.run_until_crash(async { counted = work.await });
    assert!(!ran.crashed());
    counted
}

#[test]
fn a_job_costs_two_flushes_and_a_rollback_of_a_volume_with_a_store_three_and_snapshots_none() {
    let volume = |name: &str| Verb::CreateVolume { name: name.into(), size: MIB, stripes: 1 };
    let roll_back = |volume: &str| Verb::RollBack { volume: volume.into(), name: "a".into(), is_kept: false };
    let remove =
        |volume: &str, own: &[&str]| Verb::RemoveSnapshots { volume: volume.into(), names: names(own) };
    let verbs = [
        Verb::CreateGroup { name: "g".into(), disks: names(&[DISK]) },
        volume("g/v"),
        Verb::CreatePool { name: "g/p".into(), size: 8 * MIB, block_size: 65_536 },
        Verb::CreateThin { name: "g/t".into(), size: MIB, pool: "g/p".into() },
        snapshots("g/v", &["a"]),
        snapshots("g/v", &["b"]),
        snapshots("g/v", &["c"]),
        snapshots("g/t", &["a"]),
        snapshots("g/t", &["b"]),
        roll_back("g/v"),
        roll_back("g/t"),
        remove("g/v", &["c"]),
        remove("g/t", &["b"]),
        remove("g/v", &["a", "b"]),
    ];
    let with = flushes(&verbs);
    injected_bug::inject(Some(InjectedBug::ForgetJob));
    let without = flushes(&verbs);
    injected_bug::inject(None);
    let costs: Vec<(u64, u64)> =
        with.iter().zip(&without).map(|(with, without)| (*with, with - without)).collect();
    eprintln!("sim: daemon: flushes of a disk, and those for jobs: {costs:?}");
    let more: Vec<u64> = costs.iter().map(|(_, more)| *more).collect();
    assert_eq!(more, [0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 2, 2, 2, 2], "{costs:?}");
}
