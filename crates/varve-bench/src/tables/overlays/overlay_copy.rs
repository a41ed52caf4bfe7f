//! The copy table of 2006 again: a filesystem on a loop device on a volume that is served over FUSE is mounted, gets 20 MB, and
//! is unmounted.

use crate::prelude::*;
use crate::programs::mounted::{Loop, MOUNT, is_possible, run};
use crate::tables::overlays::overlay::{Bench, Disk, MEDIUM, Taken, VOLUME, part, timed};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::Write;

/// Bytes that are copied.
const COPY_BYTES: usize = 20_000_000;
/// Bytes of the image.
const IMAGE_BYTES: u64 = 128 << 20;
const DISKS: [Disk; 7] = [
    Disk::Linear,
    Disk::ThinOverRaw,
    Disk::ThinOverQcow2,
    Disk::Image,
    Disk::Cowd,
    Disk::CowdAhead,
    Disk::CowdPrimed,
];

/// How many times the seconds of a raw volume it may take the first time.
fn cold_goal(disk: Disk) -> f64 {
    if disk.cowd_options().is_some() { 1.3 } else { 1.15 }
}

/// And again in the same place.
fn warm_goal(disk: Disk) -> f64 {
    if disk.cowd_options().is_some() { 1.1 } else { 1.05 }
}

/// Copies in memory; each round is kept as soon as it is there.
pub(crate) fn measure(options: &Options, _: Medium, sheet: &mut Sheet) -> Outcome<()> {
    if !is_possible() {
        eprintln!("copy: left out: it needs root, /dev/fuse and loop devices");
        return Ok(());
    }
    let bench = Bench::start(options, MEDIUM, IMAGE_BYTES, make_image)?;
    let about = |what: &str| {
        format!(
            "ext4 on a loop device on a FUSE export is mounted, {} MB are written {what}, and it is unmounted",
            COPY_BYTES / 1_000_000
        )
    };
    let cold = "to a new file of a volume that was just made";
    let warm = "again to the same blocks";
    let mut parts = [part("Copy, cold", &about(cold), options), part("Copy, warm", &about(warm), options)];
    let mut data = vec![0; COPY_BYTES];
    Noise(20_060_509).fill(&mut data);
    for round in 0..options.runs() {
        for disk in turns(&DISKS, round) {
            let outcome = bench.make(disk).and_then(|()| {
                let copied = copy_twice(&bench, &data);
                bench.remove(disk).and(copied)
            });
            eprintln!("copy: {}: {outcome:.3?}", disk.name());
            let (cold, warm) = outcome.map_or_else(
                |reason| (Err(reason.clone()), Err(reason)),
                |(cold, warm)| (Ok(cold), Ok(warm)),
            );
            disk.record(&mut parts[0], cold_goal(disk), &cold);
            disk.record(&mut parts[1], warm_goal(disk), &warm);
        }
        parts.iter().try_for_each(|part| sheet.keep(part))?;
    }
    parts.iter().for_each(Part::tell);
    bench.varve.stop()
}

/// An ext4 of which nothing is made later.
fn make_image(path: &Path) -> Outcome<()> {
    let file = File::create(path).and_then(|file| file.set_len(IMAGE_BYTES));
    file.of(path.display())?;
    let at_once = "lazy_itable_init=0,lazy_journal_init=0";
    run("mkfs.ext4", &["-q", "-F", "-E", at_once, &path.to_string_lossy()])
}

/// Cold, and warm.
fn copy_twice(bench: &Bench, data: &[u8]) -> Outcome<(Taken, Taken)> {
    let (image, mounted) = (bench.place.path().join("fuse"), bench.place.path().join(MOUNT));
    let volume = format!("bench/{VOLUME}");
    bench.varve.call(&["export", "create", &volume, "--fuse", &image.to_string_lossy()])?;
    fs::create_dir_all(&mounted).of(mounted.display())?;
    let attached = Loop::attach(&image, true)?;
    let copy = || {
        let before = requests(bench)?;
        let taken = timed(&bench.servers(), || {
            run("mount", &[&attached.device, &mounted.to_string_lossy()])?;
            let written = write(&mounted.join("data"), data);
            run("umount", &[&mounted.to_string_lossy()]).and(written)?;
            Ok(0)
        })?;
        Ok::<Taken, Failed>(Taken { requests: requests(bench)? - before, ..taken })
    };
    Ok((copy()?, copy()?))
}

/// What is there already is written again where it is.
fn write(path: &Path, data: &[u8]) -> Outcome<()> {
    let open = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let written = open.and_then(|mut file| file.write_all(data));
    written.of(path.display())
}

/// Reads, writes and flushes that the export has had.
fn requests(bench: &Bench) -> Outcome<u64> {
    let exports = bench.varve.call(&["export", "list"])?;
    Ok(sum_of_traffic(&exports).ok_or_else(|| format!("no traffic in {exports}"))?)
}

fn sum_of_traffic(exports: &Value) -> Option<u64> {
    let traffic = exports.get(0)?.get("traffic")?;
    ["reads", "writes", "flushes", "discards"].iter().map(|name| traffic.get(name)?.as_u64()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_one_export() {
        let exports = serde_json::json!([{ "traffic": { "reads": 1, "writes": 20, "flushes": 300, "discards": 4000, "errors": 9 } }]);
        assert_eq!(sum_of_traffic(&exports), Some(4321));
        assert_eq!(sum_of_traffic(&serde_json::json!([])), None);
    }

    #[test]
    fn what_is_there_is_written_in_place() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("data");
        write(&path, b"long and old").expect("written");
        write(&path, b"new").expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"newg and old");
    }
}
