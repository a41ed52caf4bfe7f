//! Where a container's filter forbids io_uring, shards take helper threads by themselves, and still work.
#![allow(unsafe_code)]

use varve_block::Durability;
use varve_os::{DiskFile, DiskOptions, IoChoice, Shards, ShardsConfig};

/// Forbids a system call to this thread and those it starts, as container profiles do: EPERM.
fn forbid(call: libc::c_long) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let number = u32::try_from(call).expect("system calls have small numbers");
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let mut steps = [
        step(LOAD, 0, 0), // the number of the system call
        step(EQUAL, 1, number),
        step(RETURN, 0, refuse),
        step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the program outlives the calls, which copy it and only ever take rights away from this thread.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    };
    assert!(set, "the filter is in place");
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
