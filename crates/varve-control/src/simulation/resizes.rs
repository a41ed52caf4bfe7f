//! A crash at any moment while a disk is resized: the next daemon uses the disk, as long as it was or is to be.

use super::daemon::Daemon;
use super::host::Host;
use super::verbs::{DISK_SIZE, Verb};
use std::rc::Rc;
use std::time::Duration;
use varve_block::MIB;
use varve_sim::{CrashAt, CrashKind};

/// The disk that is resized, and another one of its group.
const DISKS: [&str; 2] = ["/disks/one", "/disks/other"];

/// Makes a group, and resizes a disk until a crash comes at an event.
async fn resize(host: &Rc<Host>, size: u64, crash: CrashAt) {
    let daemon = Daemon::start(host).await;
    let disks = DISKS.map(str::to_owned).to_vec();
    let create = Verb::CreateGroup { name: "g".into(), disks };
    assert_eq!(create.issue(&daemon).await, Ok(None));
    host.world.schedule(crash, CrashKind::Power);
    let resize = Verb::ResizeDisk { disk: DISKS[0].into(), size };
    assert_eq!(resize.issue(&daemon).await, Ok(None));
}

#[test]
fn a_disk_whose_resize_a_crash_has_cut_off_is_used_as_it_was_or_is_to_be() {
    for size in [DISK_SIZE / 2, DISK_SIZE + 16 * MIB] {
        let mut seen = Vec::new();
        for event in 1.. {
            let host = Host::new(event, Duration::from_micros(400));
            let ran = host.world.run_until_crash(resize(&host, size, CrashAt::Event(event)));
            if !ran.crashed() {
                break;
            }
            host.files.process_ended();
            host.world.disarm();
            host.world.run(async {
                let daemon = Daemon::start(&host).await;
                daemon.idle().await; // PVRESIZE2
                let size = daemon.lists().await.expect("it runs").sizes[DISKS[0]];
                seen.push(size);
                daemon.stop().await;
            });
        }
        seen.sort_unstable();
        seen.dedup();
        let mut wanted = [DISK_SIZE - 2 * MIB, size - 2 * MIB];
        wanted.sort_unstable();
        assert_eq!(seen, wanted, "HISTORY1");
    }
}
