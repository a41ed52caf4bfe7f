//! Files on volumes on mirrors beside one on a disk, as published figures of thin volumes on RAID 1 have them: in real time, with ext4
//! on a loop device on a FUSE door, on throttled members in memory.

use super::array_cases::{Case, MIRROR, SIZE, load};
use super::array_ratios::{VOLUME, VOLUME_GOAL, thin_volume};
use super::arrays::{build, throttled};
use crate::prelude::*;
use crate::programs::mounted::{MOUNT, Mounted, is_possible, run};
use varve_block::{Portal, accept_unaligned};
use varve_export::fuse::{FuseDoor, FuseOptions};
use varve_sim::{Direction, Order};
use varve_target::Linear;
use varve_target::array::{METADATA_SIZE_MIN, ReadPolicy};

/// Bytes of the file.
const FILE: u64 = VOLUME / 2;

/// What a file system is on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Volume {
    /// A volume on one disk.
    Plain,
    /// A volume on a mirror of two.
    Mirrored,
    /// A thin volume whose pool is on a mirror of two.
    Thin,
}

/// What is done with a file: bytes of `dd` past the cache, 1 MiB at a time.
const LOADS: [&str; 3] = ["a new file is written", "it is written again", "it is read"];

/// Measures all rounds.
pub(in crate::tables) fn measure(options: &Options, part: &mut Part) -> Outcome<()> {
    if !is_possible() {
        eprintln!("files on mirrors: left out: they need root, /dev/fuse and loop devices");
        return Ok(());
    }
    let parent = options.directory(Medium::Memory);
    let length = SIZE + METADATA_SIZE_MIN;
    let place = Place::new(parent, 2 * length)?;
    let member = |number: u32| open(&place.file(&format!("member{number}"), length)?, Medium::Memory);
    let disks = (0..2).map(member).collect::<Outcome<Vec<_>>>()?;
    let shard = Shard::start()?;
    for _ in 0..options.runs() {
        let speeds = |volume| turn(&shard, &disks, place.path(), volume);
        let plain = speeds(Volume::Plain)?;
        for (volume, name) in
            [(Volume::Mirrored, "volume on a mirror of 2"), (Volume::Thin, "thin volume on a mirror of 2")]
        {
            for ((load, speed), plain) in LOADS.iter().zip(speeds(volume)?).zip(plain) {
                let name = format!("ext4 on a {name}, {load}: over one on a disk");
                part.record(&name, "x", VOLUME_GOAL, speed / plain);
            }
        }
    }
    Ok(())
}

/// Bytes a second of all loads, on a new file system on a new volume.
fn turn(shard: &Shard, disks: &[Arc<DiskFile>], directory: &Path, volume: Volume) -> Outcome<[f64; 3]> {
    let disks = disks.to_vec();
    let made = shard.run(async move |context| made(context, disks, volume).await);
    let (portal, arena) = made?;
    let image = directory.join("fuse");
    let door = FuseDoor::open(portal, arena, &image, &FuseOptions::default());
    let door = door?;
    let mkfs = ["mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"];
    let mounted = Mounted::new(&image, &directory.join(MOUNT), &mkfs, true)?;
    let file = mounted.path.join("file");
    let (file, count) = (file.to_string_lossy(), format!("count={}", FILE / MIB));
    let (to, from) = (format!("of={file}"), format!("if={file}"));
    let write = ["if=/dev/zero", &to, "oflag=direct", "conv=notrunc"];
    let read = [&from, "of=/dev/null", "iflag=direct"];
    let timed = |words: &[&str]| {
        let watch = Watch::start();
        run("dd", &[words, &["bs=1M", &count, "status=none"]].concat())?;
        Ok::<f64, Failed>(FILE as f64 / watch.seconds())
    };
    let speeds = [timed(&write)?, timed(&write)?, timed(&read)?];
    drop(mounted);
    drop(door);
    Ok(speeds)
}

/// The way to a new volume, and memory for its requests.
async fn made(context: ShardContext, disks: Vec<Arc<DiskFile>>, volume: Volume) -> Outcome<(Portal, Arena)> {
    let (clock, arena) = (context.clock(), context.arena());
    let disks: Vec<Device> = disks.iter().map(|disk| context.disk(disk)).collect();
    let slow: Vec<Device> = disks.iter().map(|disk| throttled(disk, &clock)).collect();
    let device = match volume {
        Volume::Plain => slow[0].clone(),
        Volume::Mirrored | Volume::Thin => {
            let write = load(Direction::Write, Order::Sequential, 1024);
            let case = Case::new(MIRROR, ReadPolicy::Rotate, write, 0.0);
            build(&case, &disks, &slow, &arena, &clock).await?.device()
        }
    };
    let device = match volume {
        Volume::Plain | Volume::Mirrored => Device::new(Linear::new(vec![(VOLUME, device, 0)])),
        Volume::Thin => thin_volume(device, clock, arena.clone(), false).await?,
    };
    Ok((context.portal(&accept_unaligned(device, arena.clone())), arena))
}
