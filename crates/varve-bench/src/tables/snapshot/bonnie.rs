//! The bonnie table of 2006 again: the loads of bonnie on ext4, on a loop device on a volume that is served over FUSE, under
//! some snapshots.
//!
//! Each turn makes its volume, filesystem and snapshots anew: what the first loads write is where the filesystem has written
//! nothing since, and only so every write is the first since the newest snapshot.

use crate::bonnie::{LOADS, speeds};
use crate::prelude::*;
use crate::programs::mounted::{MOUNT, Mounted, is_possible};
use crate::programs::varve::Varve;
use std::fs;

/// Numbers of snapshots, those of the table of 2006.
const COUNTS: [u32; 5] = [0, 1, 2, 4, 8];

/// Runs all rounds; each is kept as soon as it is there.
pub(crate) fn measure(options: &Options, medium: Medium, sheet: &mut Sheet) -> Outcome<()> {
    if !is_possible() {
        eprintln!("bonnie: left out: it needs root, /dev/fuse and loop devices");
        return Ok(());
    }
    let file_bytes: u64 = if options.is_quick() { 8 << 20 } else { 128 << 20 };
    let volume_bytes = 3 * file_bytes + (64 << 20);
    let varve = Varve::on(options, medium, 3 * volume_bytes, &[])?;
    let description = format!(
        "ext4 on a loop device on a volume that is served over FUSE, on {}, a file of {} MiB, {} rounds",
        file_system(options.directory(medium)),
        file_bytes >> 20,
        options.runs()
    );
    let mut part = Part::new("bonnie", medium.name(), description);
    for round in 0..options.runs() {
        for turn in 0..COUNTS.len() {
            let snapshots = COUNTS[(turn + round) % COUNTS.len()];
            let speeds = turn_with(&varve, varve.directory(), snapshots, file_bytes, volume_bytes)?;
            for (load, speed) in LOADS.iter().zip(speeds) {
                part.at(load, &snapshots.to_string(), "MiB/s").push(speed / f64::from(1 << 20));
            }
        }
        sheet.keep(&part)?;
    }
    varve.stop()
}

/// One run of all loads under so many snapshots.
fn turn_with(
    varve: &Varve,
    directory: &Path,
    snapshots: u32,
    file_bytes: u64,
    volume_bytes: u64,
) -> Outcome<[f64; 6]> {
    varve.create_volume("bonnie", volume_bytes)?;
    let image = directory.join("fuse");
    varve.call(&["export", "create", "bench/bonnie", "--fuse", &image.to_string_lossy()])?;
    let mounted =
        Mounted::new(&image, &directory.join(MOUNT), &["mkfs.ext4", "-q", "-E", "nodiscard"], true)?;
    for snapshot in 0..snapshots {
        let path = mounted.path.join(format!("before-{snapshot}"));
        fs::write(&path, "a little between two snapshots")?;
        crate::programs::mounted::run("sync", &["--file-system", &path.to_string_lossy()])?;
        varve.create_snapshot("bonnie", &format!("s{snapshot}"))?;
    }
    let measured = speeds(&mounted.path, file_bytes, 2000);
    drop(mounted);
    remove(varve, snapshots)?;
    measured
}

/// Removes the volume.
fn remove(varve: &Varve, snapshots: u32) -> Outcome<()> {
    varve.end_export("bonnie")?;
    if snapshots > 0 {
        let all = format!("bench/bonnie@s0..@s{}", snapshots - 1);
        varve.call(&["snap", "remove", &all, "--yes", "--wait"])?;
    }
    varve.call(&["lv", "remove", "bench/bonnie", "--now", "--yes"]).map(drop)
}
