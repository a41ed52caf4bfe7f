//! Where a container's filter forbids io_uring, shards take helper threads by themselves, and still work. A ring that fails while it
//! serves is tried again where that helps, and else ends the process.
#![allow(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "the real kernel is tested, in real time")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use varve_block::Durability;
use varve_os::{DiskFile, DiskOptions, IoChoice, Shards, ShardsConfig};

/// How often the kernel has no memory.
const REFUSALS: usize = 20;
/// Names the test that is to run in a process of its own.
const ALONE: &str = "VARVE_TEST_ALONE";

/// Forbids a system call to this thread and those it starts, as container profiles do: EPERM.
fn forbid(call: libc::c_long) {
    filter(call, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0);
}

/// Has this thread ask before each call of one kind; who answers holds the descriptor.
fn ask_before(call: libc::c_long) -> OwnedFd {
    let descriptor = filter(call, libc::SECCOMP_RET_USER_NOTIF, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
    // SAFETY: the kernel has just made the descriptor for us.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Puts a filter before a system call of this thread and those it starts. The descriptor that the flags ask for.
fn filter(call: libc::c_long, action: u32, flags: libc::c_ulong) -> i32 {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let number = u32::try_from(call).expect("system calls have small numbers");
    let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let mut steps = [
        step(LOAD, 0, 0), // the number of the system call
        step(EQUAL, 1, number),
        step(RETURN, 0, action),
        step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the program outlives the calls, which copy it and only ever take rights away from this thread.
    let descriptor = unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    assert!(descriptor >= 0, "the filter is in place: {}", std::io::Error::last_os_error());
    i32::try_from(descriptor).expect("descriptors are small")
}

/// Answers the first calls with ENOMEM and lets the others go on, until nobody is left who asks; counts the refusals.
fn refuse_some(asked: &OwnedFd, refused: &AtomicUsize) {
    loop {
        // SAFETY: both structures are plain numbers, and as large as the kernel expects them.
        unsafe {
            let mut question: libc::seccomp_notif = std::mem::zeroed();
            if libc::ioctl(asked.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut question) != 0 {
                match std::io::Error::last_os_error().raw_os_error() {
                    Some(libc::EINTR) => continue,
                    _ => return,
                }
            }
            let mut answer: libc::seccomp_notif_resp = std::mem::zeroed();
            answer.id = question.id;
            if refused.load(Ordering::Relaxed) < REFUSALS {
                refused.fetch_add(1, Ordering::Relaxed);
                answer.error = -libc::ENOMEM;
            } else {
                answer.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
            }
            libc::ioctl(asked.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer);
        }
    }
}

#[test]
fn without_rings_helper_threads_stand_in() {
    for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter] {
        std::thread::scope(|scope| {
            let beside = scope.spawn(move || {
                forbid(call);
                helper_threads_stand_in();
            });
            beside.join().expect("they do");
        });
    }
}

fn helper_threads_stand_in() {
    let config = |io| ShardsConfig { io, arena_bytes: 1 << 20, ..ShardsConfig::default() };
    assert!(Shards::start(&config(IoChoice::Ring)).is_err(), "who insists on a ring is told");

    let shards = Shards::start(&config(IoChoice::Auto)).expect("helper threads stand in");
    assert!(!shards.is_ring());
    let directory = tempfile::tempdir().expect("a directory");
    let disk = DiskFile::open(directory.path().join("disk"), DiskOptions::create(1 << 20)).expect("a disk");
    let read = shards.handle(0).run_and_wait(move |context| async move {
        let (device, arena) = (context.disk(&disk), context.arena());
        device.write(8192, arena.copy(&[7; 4096]), Durability::Durable).await?;
        device.read(8192, arena.take(4096)).await.map(|buffer| buffer.to_vec())
    });
    assert_eq!(read.expect("the shard lives"), Ok(vec![7; 4096]));
    shards.stop();
}

/// What is queued while the kernel has no memory for it stays queued, and is done when there is some.
#[test]
fn a_ring_that_is_short_of_memory_while_it_serves_goes_on() {
    let config = ShardsConfig { io: IoChoice::Ring, arena_bytes: 1 << 20, ..ShardsConfig::default() };
    let shards = Shards::start(&config).expect("a ring");
    let directory = tempfile::tempdir().expect("a directory");
    let disk = DiskFile::open(directory.path().join("disk"), DiskOptions::create(1 << 20)).expect("a disk");
    let asked = shards.handle(0).run_and_wait(|_| async { ask_before(libc::SYS_io_uring_enter) });
    let asked = asked.expect("the shard lives");
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refused);
    std::thread::spawn(move || refuse_some(&asked, &counted));
    let read = shards.handle(0).run_and_wait(move |context| async move {
        let (device, arena) = (context.disk(&disk), context.arena());
        for block in 0..8 {
            device.write(block * 4096, arena.copy(&[block as u8 + 1; 4096]), Durability::Durable).await?;
        }
        device.read(0, arena.take(8 * 4096)).await.map(|buffer| buffer.to_vec())
    });
    let written: Vec<u8> = (1..=8).flat_map(|byte| [byte; 4096]).collect();
    assert_eq!(read.expect("the shard lives"), Ok(written));
    assert_eq!(refused.load(Ordering::Relaxed), REFUSALS, "the kernel had no memory so often");
    assert!(shards.stop(), "no task has panicked");
}

/// What waits for such a shard would wait for ever, an orderly stop too.
#[test]
fn a_shard_whose_ring_fails_for_good_ends_the_process() {
    const NAME: &str = "a_shard_whose_ring_fails_for_good_ends_the_process";
    if std::env::var_os(ALONE).is_none() {
        let program = std::env::current_exe().expect("a running test has a file");
        let ended = Command::new(program).args(["--exact", NAME, "--nocapture"]).env(ALONE, NAME).output();
        let ended = ended.expect("it starts");
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("the ring refuses to work"), "{said}");
        return;
    }
    let config = ShardsConfig { io: IoChoice::Ring, arena_bytes: 1 << 20, ..ShardsConfig::default() };
    let shards = Shards::start(&config).expect("a ring");
    let gone = shards.handle(0).run_and_wait(|_| async { forbid(libc::SYS_io_uring_enter) });
    // Not reached by a shard that ends the process; 101 is what a failed test says.
    std::thread::sleep(std::time::Duration::from_secs(20));
    panic!("the process goes on: {gone:?}");
}
