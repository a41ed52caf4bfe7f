//! The FUSE door against the real kernel: file calls, loop devices, file systems, killed servers.

mod memory;

use super::*;
use crate::budget::Budget;
use memory::Memory;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use varve_block::{GIB, IoError, KIB, MIB};

/// A volume, its door, and a directory that is gone when they are.
struct Stage {
    memory: Memory,
    door: FuseDoor,
    directory: tempfile::TempDir,
}

impl Stage {
    fn path(&self) -> &Path {
        self.door.path()
    }

    fn open(&self) -> File {
        OpenOptions::new().read(true).write(true).open(self.path()).expect("the door is open")
    }

    /// The numbers once nothing is on its way: a caller has its answer before the request's bytes are given back.
    #[expect(clippy::disallowed_methods, reason = "the other side is a real thread")]
    fn settled(&self) -> DoorCounters {
        for _ in 0..30_000 {
            let counters = self.door.counters();
            if counters.in_flight_bytes == 0 {
                return counters;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("bytes stay in flight: {:?}", self.door.counters());
    }
}

/// Whether the machine can mount. If not, says so past the test harness, which hides what a passing test prints.
fn can_mount() -> bool {
    let reason = if File::options().read(true).write(true).open("/dev/fuse").is_err() {
        "no access to /dev/fuse"
    } else if !rustix::process::geteuid().is_root() {
        "not root"
    } else {
        return true;
    };
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    writeln!(std::io::stderr(), "SKIPPED {name}: {reason}").expect("stderr is there");
    false
}

fn stage_with(size: u64, access: Access, options: &FuseOptions) -> Option<Stage> {
    if !can_mount() {
        return None;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let memory = Memory::new();
    let file = directory.path().join("volume");
    let door = FuseDoor::open(memory.portal(size, access), Arena::heap(8 << 20), &file, options)
        .expect("the volume is mounted");
    Some(Stage { memory, door, directory })
}

fn stage(size: u64) -> Option<Stage> {
    stage_with(size, Access::ReadWrite, &FuseOptions::default())
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.expect_err("it must fail").raw_os_error().expect("from the system")
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    said
}

#[test]
fn the_volume_is_a_file_of_its_size_that_keeps_what_is_written_anywhere() {
    let Some(stage) = stage(10 * MIB + 1) else { return };
    let file = stage.open();
    let metadata = file.metadata().expect("fstat");
    assert!(metadata.is_file());
    assert_eq!(metadata.len(), 10 * MIB + 1);
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    for (offset, length) in [(0, 1), (4095, 2), (123_457, 3_000_001), (10 * MIB - 7, 8)] {
        let data: Vec<u8> = (0..length).map(|index| u8::try_from((offset + index) % 251).unwrap()).collect();
        file.write_all_at(&data, offset).expect("write");
        let mut back = vec![0; data.len()];
        file.read_exact_at(&mut back, offset).expect("read");
        assert!(back == data, "at {offset}");
    }
    let counters = stage.settled();
    assert!(counters.write_bytes == 3_000_012 && counters.read_bytes == 3_000_012, "{counters:?}");
    assert_eq!((counters.errors, counters.in_flight), (0, 0));
    assert!(counters.writes <= 10, "large writes are not cut into pages: {counters:?}");
}

#[test]
fn the_end_of_the_volume_is_the_end_of_the_file() {
    let Some(stage) = stage(MIB) else { return };
    let file = stage.open();
    let mut buffer = [1; 100];
    assert_eq!(file.read_at(&mut buffer, MIB).expect("at the end"), 0);
    assert_eq!(file.read_at(&mut buffer, MIB - 10).expect("across the end"), 10);
    assert_eq!(file.write_at(&buffer, MIB - 10).expect("across the end"), 10);
    assert_eq!(errno(file.write_at(&buffer, MIB)), libc::ENOSPC);
    assert_eq!(errno(file.set_len(2 * MIB)), libc::EPERM);
    assert_eq!(errno(File::create(stage.path())), libc::EPERM, "opening with O_TRUNC");
    file.set_len(MIB).expect("the size that it has");
    assert_eq!(file.metadata().expect("fstat").len(), MIB);
}

#[test]
fn fsync_and_synchronous_writes_reach_the_medium() {
    let Some(stage) = stage(MIB) else { return };
    let file = stage.open();
    file.write_all_at(b"volatile", 0).expect("write");
    let reached = || {
        let store = stage.memory.store();
        (store.flushes, store.durable_writes)
    };
    assert_eq!(reached(), (0, 0));
    file.sync_data().expect("fdatasync");
    file.sync_all().expect("fsync");
    assert_eq!(reached(), (2, 0));
    for (count, flag) in [(1, libc::O_DSYNC), (2, libc::O_SYNC)] {
        let file = OpenOptions::new().write(true).custom_flags(flag).open(stage.path()).expect("open");
        file.write_all_at(b"durable", 0).expect("write");
        assert_eq!(reached(), (2, count));
    }
}

#[test]
fn a_punched_hole_reads_as_zeros_and_is_found_by_seeking() {
    let Some(stage) = stage(4 * GIB) else { return };
    let mut file = stage.open();
    file.write_all_at(&[7; 65536], MIB).expect("write");
    file.write_all_at(&[7; 65536], 3 * GIB).expect("write");
    assert_eq!(file.seek(SeekFrom::Start(0)).expect("seek"), 0);
    let fallocate = |mode: &str, offset: u64, length: u64| {
        let (offset, length) = (offset.to_string(), length.to_string());
        let path = stage.path().to_str().expect("a plain path");
        run("fallocate", &["--keep-size", mode, "--offset", &offset, "--length", &length, path]);
    };
    fallocate("--punch-hole", MIB + 4096, 8192);
    fallocate("--zero-range", MIB + 32768, 100);
    let zeroed = || {
        let store = stage.memory.store();
        (store.unmaps, store.plain_zeros)
    };
    assert_eq!(zeroed(), (1, 1));
    let mut back = vec![1; 65536];
    file.read_exact_at(&mut back, MIB).expect("read");
    let zero = |index: usize| (4096..12288).contains(&index) || (32768..32868).contains(&index);
    assert!(back.iter().enumerate().all(|(index, byte)| (*byte == 0) == zero(index)), "FUSE3");

    let seek = |offset: u64, hole: bool| {
        let position =
            if hole { rustix::fs::SeekFrom::Hole(offset) } else { rustix::fs::SeekFrom::Data(offset) };
        rustix::fs::seek(&file, position)
    };
    assert_eq!(seek(0, false), Ok(MIB));
    assert_eq!(seek(0, true), Ok(0));
    assert_eq!(seek(MIB, true), Ok(MIB + 4096));
    assert_eq!(seek(MIB + 5000, false), Ok(MIB + 12288));
    assert_eq!(seek(2 * MIB, false), Ok(3 * GIB), "further away than one question reaches");
    assert_eq!(seek(3 * GIB, true), Ok(3 * GIB + 65536));
    assert_eq!(seek(3 * GIB + 65536, false), Err(rustix::io::Errno::NXIO));
    let reserve = Command::new("fallocate").args(["--length", "1M"]).arg(stage.path()).output().expect("run");
    assert!(!reserve.status.success(), "space cannot be promised");
}

#[test]
fn a_shared_mapping_and_direct_writes_see_each_other() {
    let Some(stage) = stage(MIB) else { return };
    let file = stage.open();
    file.write_all_at(&[5; 4096], 4096).expect("write");
    let path = stage.path().to_str().expect("a plain path");
    let map = ["mmap -rw 0 16384", "mread -v 4096 4", "mwrite -S 0x39 6000 100", "msync -s 0 16384"];
    let said = run("xfs_io", &[&map.map(|command| ["-c", command]).concat()[..], &[path]].concat());
    assert!(said.contains("05 05 05 05"), "{said}");
    let mut back = [0; 4096];
    file.read_exact_at(&mut back, 4096).expect("read");
    let mapped = 6000 - 4096..6100 - 4096;
    assert!(
        back.iter().enumerate().all(|(index, byte)| *byte == if mapped.contains(&index) { 0x39 } else { 5 })
    );
}

#[test]
fn a_read_only_volume_cannot_be_opened_for_writing() {
    let options = FuseOptions { mode: 0o640, ..FuseOptions::default() };
    let Some(stage) = stage_with(MIB, Access::ReadOnly, &options) else { return };
    assert_eq!(errno(OpenOptions::new().write(true).open(stage.path())), libc::EROFS);
    let file = File::open(stage.path()).expect("open for reading");
    assert_eq!(file.metadata().expect("fstat").permissions().mode() & 0o777, 0o440);
    let mut buffer = [1; 10];
    file.read_exact_at(&mut buffer, 0).expect("read");
    assert_eq!(buffer, [0; 10]);
}

#[test]
fn errors_of_the_device_become_what_the_kernel_understands() {
    let Some(stage) = stage(MIB) else { return };
    let file = stage.open();
    let expected = [
        (IoError::Medium, libc::EIO),
        (IoError::NoSpace, libc::ENOSPC),
        (IoError::Corrupt, libc::EIO),
        (IoError::ReadOnly, libc::EROFS),
        (IoError::Fenced, libc::EROFS),
        (IoError::Gone, libc::ENODEV),
        (IoError::Unsupported, libc::EOPNOTSUPP),
    ];
    for (failure, number) in expected {
        stage.memory.store().failure = Some(failure);
        assert_eq!(errno(file.write_at(b"x", 0)), number, "{failure}");
        assert_eq!(errno(file.read_at(&mut [0; 1], 0)), number, "{failure}");
    }
    assert_eq!(stage.door.counters().errors, 14, "FUSE1");
    stage.memory.store().failure = None;
    file.write_all_at(b"x", 0).expect("an error does not stay");
}

#[test]
fn a_hole_ends_with_the_file() {
    let Some(stage) = stage(MIB) else { return };
    let file = stage.open();
    file.write_all_at(&[7; 8192], MIB - 8192).expect("write");
    let punch = |offset: u64, length: u64| {
        let mode = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, mode, offset, length)
    };
    assert_eq!(punch(MIB - 4096, MIB), Ok(()), "what lies beyond the end is nothing to punch");
    assert_eq!((stage.memory.store().unmaps, file.metadata().expect("fstat").len()), (1, MIB));
    let mut back = [1; 8192];
    file.read_exact_at(&mut back, MIB - 8192).expect("read");
    assert!(back[..4096] == [7; 4096] && back[4096..] == [0; 4096]);
    assert_eq!(punch(MIB, 4096), Ok(()));
    assert_eq!(punch(5 * MIB, MIB), Ok(()));
    assert_eq!(stage.memory.store().unmaps, 1, "nothing beyond the end reaches the volume");
}

#[test]
fn the_memory_of_a_door_counts_in_what_all_doors_share() {
    let budget = Budget::new(4 * MIB);
    let options = FuseOptions { budget: budget.clone(), ..FuseOptions::default() };
    let Some(stage) = stage_with(8 * MIB, Access::ReadWrite, &options) else { return };
    assert_eq!(budget.used(), 2 * MIB, "the buffers of two threads");
    let second = FuseDoor::open(
        stage.memory.portal(MIB, Access::ReadWrite),
        Arena::heap(1 << 20),
        &stage.directory.path().join("second"),
        &options,
    );
    assert!(matches!(second, Err(FuseError::NoMemory(_))), "{second:?}");
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let (stage, budget) = (&stage, &budget);
            scope.spawn(move || {
                let file = stage.open();
                for _ in 0..8 {
                    file.write_all_at(&vec![7; index(MIB)], worker * MIB).expect("write");
                    assert!(budget.used() <= 4 * MIB, "FUSE2");
                }
            });
        }
    });
    stage.settled();
    drop(stage);
    assert_eq!(budget.used(), 0, "FUSE2");
}

fn index(value: u64) -> usize {
    usize::try_from(value).expect("it fits in memory")
}

#[test]
fn mode_and_owner_can_be_changed() {
    let Some(stage) = stage(MIB) else { return };
    std::fs::set_permissions(stage.path(), std::fs::Permissions::from_mode(0o644)).expect("chmod");
    std::os::unix::fs::chown(stage.path(), Some(1), Some(2)).expect("chown");
    let metadata = std::fs::metadata(stage.path()).expect("stat");
    assert_eq!((metadata.mode() & 0o7777, metadata.uid(), metadata.gid()), (0o644, 1, 2));
}

#[test]
fn many_threads_at_once_stay_within_the_bound() {
    let options = FuseOptions { bytes_in_flight_max: 64 * KIB, ..FuseOptions::default() };
    let Some(stage) = stage_with(8 * MIB, Access::ReadWrite, &options) else { return };
    std::thread::scope(|scope| {
        for worker in 0..8_u8 {
            let stage = &stage;
            scope.spawn(move || {
                let file = stage.open();
                let mine = u64::from(worker) * MIB;
                for round in 0..32_u8 {
                    let data = vec![worker ^ round; 48 << 10];
                    file.write_all_at(&data, mine + u64::from(round) * 17).expect("write");
                    let mut back = vec![0; data.len()];
                    file.read_exact_at(&mut back, mine + u64::from(round) * 17).expect("read");
                    assert!(back == data);
                    assert!(stage.door.counters().in_flight_bytes <= 64 * KIB, "FUSE2");
                }
            });
        }
    });
    assert_eq!(stage.door.counters().writes, 256);
}

#[test]
fn a_volume_that_grew_is_seen_through_the_same_file() {
    let Some(stage) = stage(MIB) else { return };
    let file = stage.open();
    let device = Loop::attach(stage.path(), true);
    stage.door.replace(stage.memory.portal(3 * MIB, Access::ReadWrite));
    assert_eq!(file.metadata().expect("fstat").len(), 3 * MIB);
    file.write_all_at(b"beyond", 2 * MIB).expect("write where nothing was");
    run("losetup", &["--set-capacity", &device.path]);
    assert_eq!(run("blockdev", &["--getsize64", &device.path]).trim(), (3 * MIB).to_string());
}

#[test]
fn a_file_in_use_is_not_withdrawn_but_can_be_detached() {
    let Some(mut stage) = stage(MIB) else { return };
    let mut file = stage.open();
    assert!(matches!(stage.door.close(), Err(FuseError::Busy(_))));
    assert!(stage.door.is_serving());
    file.write_all(b"still served").expect("write");
    stage.door.detach();
    assert!(!stage.door.is_serving());
    assert_eq!(errno(file.read(&mut [0; 1])), libc::ENODEV, "FUSE5");
    assert!(!stage.path().exists(), "the file was made by the door and goes with it");
    stage.door.close().expect("closing twice does nothing");
}

#[test]
fn closing_leaves_what_was_there_before() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("made before");
    File::create(&file).expect("create");
    let portal = Memory::new().portal(MIB, Access::ReadWrite);
    let options = FuseOptions { name: "data/a,b ro".to_owned(), ..FuseOptions::default() };
    let mut door = FuseDoor::open(portal.clone(), Arena::heap(1 << 20), &file, &options).expect("mount");
    assert!(matches!(check_file(&file), Err(FuseError::Occupied(_))));
    let second = FuseDoor::open(portal, Arena::heap(1 << 20), &file, &options);
    assert!(matches!(second, Err(FuseError::Occupied(_))), "{second:?}");
    close(&mut door);
    assert_eq!(std::fs::metadata(&file).expect("still there").len(), 0);
}

#[test]
fn nothing_is_mounted_over_what_somebody_needs() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("full"), b"precious").expect("write");
    std::os::unix::fs::symlink(at("elsewhere"), at("link")).expect("symlink");
    assert!(matches!(check_file(&at("full")), Err(FuseError::NotEmpty(_))), "FUSE4");
    assert!(matches!(check_file(&at("link")), Err(FuseError::NotAFile(_))), "MOUNT1");
    assert!(matches!(check_file(directory.path()), Err(FuseError::NotAFile(_))));
    assert!(matches!(check_file(&at("no such/file")), Err(FuseError::Failed { .. })));
    assert_eq!(check_file(&at("new")).expect("free"), at("new"));
    assert!(!at("new").exists(), "a check changes nothing");
}

/// Runs in a process of its own, which the next test kills: mounts `$VARVE_TEST_FUSE_FILE` and stays.
#[test]
#[ignore = "a part of the next test"]
#[expect(clippy::disallowed_methods, reason = "told by the test that starts it")]
fn server_that_is_going_to_be_killed() {
    let file = PathBuf::from(std::env::var("VARVE_TEST_FUSE_FILE").expect("started by the next test"));
    let portal = Memory::new().portal(MIB, Access::ReadWrite);
    let _door = FuseDoor::open(portal, Arena::heap(1 << 20), &file, &FuseOptions::default()).expect("mount");
    println!("mounted");
    std::thread::park();
}

fn killed_server(file: &Path) {
    let mut child: Child = Command::new(std::env::current_exe().expect("this test"))
        .args(["fuse::tests::server_that_is_going_to_be_killed", "--exact", "--ignored", "--nocapture"])
        .env("VARVE_TEST_FUSE_FILE", file)
        .stdout(Stdio::piped())
        .spawn()
        .expect("start");
    let mut said = String::new();
    let mut output = child.stdout.take().expect("piped");
    while !said.contains("mounted") {
        let mut bytes = [0; 256];
        let count = output.read(&mut bytes).expect("read");
        assert!(count > 0, "the server did not come up: {said}");
        said.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    child.kill().expect("kill");
    child.wait().expect("wait");
}

#[test]
fn what_a_killed_server_left_is_cleared_away() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("volume");
    for _ in 0..2 {
        killed_server(&file);
        assert_eq!(errno(File::open(&file)), libc::ENOTCONN);
    }
    let portal = Memory::new().portal(MIB, Access::ReadWrite);
    let mut door = FuseDoor::open(portal, Arena::heap(1 << 20), &file, &FuseOptions::default())
        .expect("in the place of the dead");
    assert_eq!(std::fs::metadata(&file).expect("alive").len(), MIB);
    close(&mut door);
    assert_eq!(std::fs::metadata(&file).expect("the plain file below").len(), 0);
}

/// A loop device, detached on drop.
struct Loop {
    path: String,
}

impl Loop {
    fn attach(file: &Path, direct: bool) -> Self {
        let direct = if direct { "--direct-io=on" } else { "--direct-io=off" };
        let file = file.to_str().expect("a plain path");
        Self { path: run("losetup", &["--find", "--show", direct, file]).trim().to_owned() }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", &self.path]);
    }
}

/// A mounted file system, unmounted on drop.
struct Mounted {
    path: PathBuf,
}

impl Mounted {
    fn new(device: &str, path: PathBuf) -> Self {
        std::fs::create_dir_all(&path).expect("mkdir");
        run("mount", &[device, path.to_str().expect("a plain path")]);
        Self { path }
    }
}

impl Drop for Mounted {
    /// A program that another test is starting has this one's open files until it executes: that keeps the file system busy.
    fn drop(&mut self) {
        let path = self.path.to_str().expect("a plain path");
        let unmounted = soon(|| Command::new("umount").arg(path).status().expect("umount").success());
        assert!(unmounted, "{path} stays mounted");
    }
}

fn file_content(number: u32) -> Vec<u8> {
    (0..number * 1013 % 200_000).map(|index| u8::try_from((index * 31 + number) % 256).unwrap()).collect()
}

/// Tries until it succeeds, for five seconds; whether it did.
fn soon(mut succeeds: impl FnMut() -> bool) -> bool {
    (0..50).any(|_| {
        let is_done = succeeds();
        if !is_done {
            std::thread::park_timeout(Duration::from_millis(100));
        }
        is_done
    })
}

/// Closes a door that no client has open. A process that another test starts has a copy of every descriptor until it
/// executes its program.
fn close(door: &mut FuseDoor) {
    let closed = soon(|| match door.close() {
        Err(FuseError::Busy(_)) => false,
        other => other.is_ok(),
    });
    assert!(closed, "{door:?} cannot be unmounted");
}

/// Makes a file system with `make` through a loop device, uses it, trims it, and checks it with `check`.
fn file_system_lives_on_the_door(make: &[&str], check: &[&str]) {
    let Some(mut stage) = stage(GIB) else { return };
    let device = Loop::attach(stage.path(), true);
    let dio = run("losetup", &["--noheadings", "--output", "DIO", &device.path]);
    assert_eq!(dio.trim(), "1", "the kernel took direct I/O");
    run(make[0], &[&make[1..], &[device.path.as_str()]].concat());
    let place = stage.directory.path().join("mounted");
    let mounted = Mounted::new(&device.path, place.clone());
    for number in 0..300 {
        std::fs::write(mounted.path.join(number.to_string()), file_content(number)).expect("write");
    }
    let sync = || run("sync", &["--file-system", place.to_str().expect("a plain path")]);
    sync();
    let full = stage.memory.store().allocated_bytes();
    for number in 0..150 {
        std::fs::remove_file(mounted.path.join(number.to_string())).expect("remove");
    }
    // Blocks of removed files are free only once the journal says so, and the kernel has come to them.
    let gave_back = soon(|| {
        sync();
        run("fstrim", &["--verbose", place.to_str().expect("a plain path")]);
        stage.memory.store().allocated_bytes() + 8 * MIB < full
    });
    assert!(gave_back, "fstrim gave space back: {full} -> {}", stage.memory.store().allocated_bytes());
    drop(mounted);
    run(check[0], &[&check[1..], &[device.path.as_str()]].concat());
    let mounted = Mounted::new(&device.path, place);
    for number in 150..300 {
        let content = std::fs::read(mounted.path.join(number.to_string())).expect("read");
        assert!(content == file_content(number), "file {number}");
    }
    drop(mounted);
    drop(device);
    let counters = stage.door.counters();
    assert!(counters.flushes > 0 && counters.zeros > 0 && counters.errors == 0, "{counters:?}");
    close(&mut stage.door);
}

#[test]
fn ext4_lives_on_the_door() {
    file_system_lives_on_the_door(&["mkfs.ext4", "-q", "-F"], &["e2fsck", "-f", "-n"]);
}

#[test]
fn xfs_lives_on_the_door() {
    file_system_lives_on_the_door(&["mkfs.xfs", "-q", "-f"], &["xfs_repair", "-n"]);
}
