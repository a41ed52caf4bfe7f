//! The door against a machine and a guest that do as they should, and against such as do not.

mod machine;

use super::*;
use machine::{DATA, DISK, Descriptor, Disk, MEMORY, Machine, SIZE, Stage, USER, pattern};
use message::protocol;
use rustix::fs::OFlags;
use std::io::{Read, Write};
use std::time::Duration;
use varve_block::{Access, GIB};

const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;
const IDENTIFY: u32 = 8;
const DISCARD: u32 = 11;
const ZERO: u32 = 13;

fn run(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
}

#[test]
fn what_a_guest_writes_it_reads_and_the_volume_is_asked_for_just_that() {
    let stage = Stage::new(DISK, Access::ReadWrite);
    let mut guest = stage.machine();
    let data = pattern(3, 4096);
    assert_eq!(guest.done(WRITE, 8, &data, 0), (1, 0, vec![]));
    assert_eq!(guest.done(FLUSH, 0, &[], 0), (1, 0, vec![]));
    assert_eq!(guest.done(READ, 8, &[], 4096), (4097, 0, data.clone()));
    assert_eq!(guest.done(DISCARD, 0, &run(8, 1, 0), 0), (1, 0, vec![]));
    assert_eq!(guest.done(ZERO, 0, &run(9, 2, 1), 0), (1, 0, vec![]));
    assert_eq!(guest.done(ZERO, 0, &run(11, 1, 0), 0), (1, 0, vec![]));
    let (_, status, got) = guest.done(READ, 8, &[], 4096);
    assert_eq!((status, &got[..2048], &got[2048..]), (0, &[0; 2048][..], &data[2048..]));
    assert_eq!(guest.done(IDENTIFY, 0, &[], 20), (21, 0, b"0123456789abcdef0123".to_vec()));
    let asked = ["write 4096 4096", "flush 0 0", "read 4096 4096", "discard 4096 512", "unmap 4608 1024"];
    assert_eq!(stage.disk.asked.lock().expect("no panic")[..5], asked);
    let counters = stage.door.counters();
    let counted = (counters.reads, counters.writes, counters.zeros, counters.discards, counters.flushes);
    assert_eq!((counted, counters.read_bytes, counters.errors), ((2, 1, 2, 1, 1), 8192, 0));
    assert!(stage.door.clients()[0].starts_with(&format!("process {} (", std::process::id())));
    drop(guest);
    stage.door.close();
    assert!(!stage.door.is_serving() && stage.door.clients().is_empty(), "VHOST3");
}

#[test]
fn requests_that_no_driver_sends_fail_and_touch_nothing() {
    let stage = Stage::new(DISK, Access::ReadWrite);
    let mut guest = stage.machine();
    let big = u32::try_from(2 * GIB / 512).expect("it fits");
    for (what, kind, sector, given, room, wanted) in [
        ("half a sector", WRITE, 0, vec![1; 256], 0, 1),
        ("nothing", WRITE, 0, vec![], 0, 1),
        ("a write beyond the end", WRITE, DISK / 512, vec![1; 512], 0, 1),
        ("a read across the end", READ, DISK / 512 - 1, vec![], 1024, 1),
        ("a sector that overflows", READ, u64::MAX, vec![], 512, 1),
        ("a sector that overflows at its end", READ, u64::MAX / 512, vec![], 512, 1),
        ("an unknown kind", 77, 0, vec![], 512, 2),
        ("two runs", DISCARD, 0, [run(0, 1, 0), run(1, 1, 0)].concat(), 0, 2),
        ("an unknown flag", DISCARD, 0, run(0, 1, 1), 0, 2),
        ("a run that is too long", DISCARD, 0, run(0, big, 0), 0, 1),
        ("a run of nothing", ZERO, 0, run(0, 0, 0), 0, 1),
        ("a run beyond the end", ZERO, 0, run(DISK / 512, 1, 0), 0, 1),
    ] {
        assert_eq!(guest.done(kind, sector, &given, room), (1, wanted, vec![]), "VREQ1: {what}");
    }
    assert_eq!(*stage.disk.asked.lock().expect("no panic"), [""; 0], "VREQ1");
    assert_eq!(guest.done(READ, 0, &[], 512).1, 0, "the queue is served on");
    let read_only = Stage::new(DISK, Access::ReadOnly);
    let mut guest = read_only.machine();
    assert_eq!(guest.done(WRITE, 0, &[1; 512], 0).1, 1);
    assert_eq!(*read_only.disk.asked.lock().expect("no panic"), [""; 0]);
}

/// A way to break a queue.
type Breaking = fn(&mut Machine);

#[test]
fn a_guest_that_breaks_its_queue_has_it_served_no_more_and_may_set_it_up_anew() {
    let plain = |at: u64, length: u32, flags: u16, next: u16| Descriptor { at, length, flags, next };
    let breakings: [(&str, Breaking); 11] = [
        ("a loop", |guest| {
            guest.put(0, Descriptor { at: DATA, length: 16, flags: 1, next: 0 });
            guest.offer(0);
        }),
        ("a next one outside", |guest| {
            guest.put(0, Descriptor { at: DATA, length: 16, flags: 1, next: SIZE });
            guest.offer(0);
        }),
        ("a head outside", |guest| guest.offer(SIZE)),
        ("an index that jumps", |guest| guest.publish(guest.available[0].wrapping_add(SIZE + 1))),
        ("memory outside", |guest| {
            guest.put(0, Descriptor { at: MEMORY - 8, length: 16, flags: 1, next: 1 });
            guest.put(1, Descriptor { at: DATA, length: 1, flags: 2, next: 0 });
            guest.offer(0);
        }),
        ("an address that overflows", |guest| {
            guest.put(0, Descriptor { at: u64::MAX - 7, length: 16, flags: 1, next: 1 });
            guest.put(1, Descriptor { at: DATA, length: 1, flags: 2, next: 0 });
            guest.offer(0);
        }),
        ("no status", |guest| {
            guest.put(0, Descriptor { at: DATA, length: 16, flags: 0, next: 0 });
            guest.offer(0);
        }),
        ("a short header", |guest| {
            guest.put(0, Descriptor { at: DATA, length: 15, flags: 1, next: 1 });
            guest.put(1, Descriptor { at: DATA, length: 1, flags: 2, next: 0 });
            guest.offer(0);
        }),
        ("read behind written", |guest| {
            guest.put(0, Descriptor { at: DATA, length: 16, flags: 3, next: 1 });
            guest.put(1, Descriptor { at: DATA, length: 16, flags: 0, next: 0 });
            guest.offer(0);
        }),
        ("a table in a table", |guest| {
            guest.put(0, Descriptor { at: DATA, length: 32, flags: 4, next: 0 });
            guest.put_at(DATA, Descriptor { at: DATA, length: 32, flags: 4, next: 0 });
            guest.offer(0);
        }),
        ("a table of half a descriptor", |guest| {
            guest.put(0, Descriptor { at: DATA, length: 8, flags: 4, next: 0 });
            guest.offer(0);
        }),
    ];
    let stage = Stage::new(DISK, Access::ReadWrite);
    for (what, breaking) in breakings {
        let mut guest = stage.machine();
        breaking(&mut guest);
        assert!(guest.is_broken(), "VQUEUE3, VRING1, VRING2, VRING3: {what}");
        assert_eq!(guest.used(), 0, "{what}");
        assert_eq!(guest.ask(1, &[]).len(), 8, "VHOST2: the session goes on: {what}");
        guest.stop(0);
    }
    let mut guest = stage.machine();
    let table = DATA + 0x6000;
    guest.request(0, READ, 0, &[], 512);
    guest.wait();
    for index in 0..3_u16 {
        let flags = [1, 3, 2][usize::from(index)];
        let (at, length) = [(DATA, 16), (DATA + 0x4000, 512), (DATA + 0x7000, 1)][usize::from(index)];
        guest.put_at(table + 16 * u64::from(index), plain(at, length, flags, index + 1));
    }
    guest.put(0, plain(table, 48, 4, 0));
    guest.offer(0);
    assert_eq!((guest.wait().1, guest.ask(1, &[]).len()), (513, 8), "VHOST2: a sound table is read");
}

#[test]
fn memory_that_is_taken_away_breaks_the_queue_and_nothing_else() {
    let stage = Stage::new(DISK, Access::ReadWrite);
    let other_stage = Stage::new(DISK, Access::ReadWrite);
    let mut other = other_stage.machine();
    let guest = stage.machine();
    rustix::fs::ftruncate(&guest.file, 0).expect("it is the guest's own");
    rustix::io::write(&guest.kick, &1_u64.to_ne_bytes()).expect("an event");
    assert!(guest.is_broken(), "VQUEUE3, LOSTPAGES1");
    drop(guest);
    let mut next = stage.machine();
    assert_eq!(next.done(READ, 0, &[], 512).1, 0, "VHOST1: the next machine is served");
    assert_eq!(other.done(READ, 0, &[], 512).1, 0, "VHOST2: so is that of another door");
}

#[test]
fn what_was_in_flight_when_a_process_was_killed_is_begun_again_in_its_order() {
    let disk = Disk::new(DISK);
    let killed = Stage::on(&disk, Access::ReadWrite, 64 << 20);
    let mut guest = Machine::new(killed.connect());
    guest.send(16, &protocol::ALL.to_le_bytes(), None, false);
    let (area, file) = guest.in_flight();
    guest.set_up(protocol::ALL, Some((&area, &file)));
    assert_eq!(guest.done(WRITE, 0, &pattern(1, 512), 0).1, 0);
    disk.hold();
    for (head, sector) in [(8, 2), (0, 1), (4, 3)] {
        guest.request(head, WRITE, sector, &pattern(u8::try_from(sector).expect("small"), 512), 0);
    }
    while disk.asked.lock().expect("no panic").len() < 4 {
        std::thread::yield_now();
    }
    disk.release_one(1);
    assert_eq!(guest.wait().0, 0, "answers come in any order");
    // The process is gone at this moment: what the machine keeps is memory.
    let anew_disk = Disk::new(DISK);
    let anew = Stage::on(&anew_disk, Access::ReadWrite, 64 << 20);
    let mut again = guest.connected_anew(anew.connect());
    again.set_up(protocol::ALL, Some((&area, &file)));
    assert_eq!([again.wait().0, again.wait().0], [8, 4], "RESUBMIT1");
    let asked = anew_disk.asked.lock().expect("no panic").clone();
    assert_eq!(asked, ["write 1024 512", "write 1536 512"], "RESUBMIT2");
    let content = anew_disk.content.lock().expect("no panic").clone();
    assert!(content[1024..2048] == [pattern(2, 512), pattern(3, 512)].concat(), "RESUBMIT1");
    assert_eq!(again.done(READ, 2, &[], 512), (513, 0, pattern(2, 512)), "and it goes on");
    drop(again);
    anew.door.close();
}

#[test]
fn a_door_that_closes_waits_for_what_is_in_flight() {
    let stage = Stage::new(DISK, Access::ReadWrite);
    let mut guest = stage.machine();
    stage.disk.hold();
    guest.request(0, WRITE, 0, &pattern(9, 512), 0);
    while stage.disk.asked.lock().expect("no panic").is_empty() {
        std::thread::yield_now();
    }
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| stage.door.close());
        for _ in 0..1000 {
            std::thread::yield_now();
            assert!(stage.door.is_serving(), "VHOST3: a request is in flight");
        }
        stage.disk.release();
        closing.join().expect("no panic");
    });
    assert_eq!(guest.used(), 1, "VQUEUE1, VQUEUE2, VSESSION1");
    assert!(stage.disk.content.lock().expect("no panic")[..512] == pattern(9, 512));
}

#[test]
fn a_machine_is_told_of_another_size() {
    let stage = Stage::new(DISK, Access::ReadWrite);
    let mut guest = stage.machine();
    let (mut here, there) = std::os::unix::net::UnixStream::pair().expect("sockets");
    here.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    assert!(guest.tell(21, &[], Some(&there.into())));
    stage.door.replace(Disk::new(2 * DISK).portal(Access::ReadWrite));
    let mut told = [0; 12];
    here.read_exact(&mut told).expect("a message");
    assert_eq!(told, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    let capacity = guest.ask(24, &[&[0; 4][..], &8_u32.to_le_bytes(), &[0; 12]].concat());
    assert_eq!(capacity[12..], (2 * DISK / 512).to_le_bytes());
    assert_eq!(guest.done(READ, DISK / 512, &[], 512).1, 0);
}

#[test]
fn one_machine_is_served_at_a_time_and_whatever_it_sends_the_next_one_is() {
    let stage = Stage::new(DISK, Access::ReadWrite);
    let mut guest = stage.machine();
    let mut second = stage.connect();
    assert_eq!(second.read(&mut [0]).ok(), Some(0), "VHOST1: it is turned away");
    assert_eq!(guest.done(READ, 0, &[], 512).1, 0, "VHOST1");
    for (kind, body) in
        [(8, [0_u8, 0, 0, 0, 3, 0, 0, 0]), (8, [9; 8]), (12, [0; 8]), (5, [0; 8]), (77, [0; 8])]
    {
        assert!(!guest.tell(kind, &body, None) || kind == 5, "message {kind}");
    }
    drop(guest);
    let mut state = 0x9e37_79b9_u64;
    for round in 0..300 {
        let mut bytes = [0; 40];
        for byte in &mut bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
        // Mostly messages, else noise.
        if round % 8 != 0 {
            let header = [u32::from(bytes[0] % 42), 1 | u32::from(bytes[1] & 8), u32::from(bytes[2] % 29)];
            bytes[..12].copy_from_slice(&header.map(u32::to_le_bytes).concat());
        }
        let mut machine = stage.connect();
        let _ = machine.write_all(&bytes);
    }
    let mut guest = stage.machine();
    assert_eq!(guest.done(READ, 0, &[], 512).1, 0, "VHOST2");
    assert!(guest.tell(38, &[0_u64, 0, MEMORY, USER, 0].map(u64::to_le_bytes).concat(), None));
    guest.offer(0);
    assert!(guest.is_broken(), "GUESTMEM1: memory that was removed");
}

#[test]
fn a_queue_waits_for_memory_that_other_exports_have() {
    let disk = Disk::new(DISK);
    let stage = Stage::on(&disk, Access::ReadWrite, 4096);
    let mut guest = stage.machine();
    disk.hold();
    guest.request(0, READ, 0, &[], 4096);
    guest.request(4, READ, 8, &[], 4096);
    while disk.asked.lock().expect("no panic").is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(disk.asked.lock().expect("no panic").len(), 1, "there is room for one");
    disk.release();
    assert_eq!([guest.wait().0, guest.wait().0], [0, 4], "it is done once there is room");
}

/// What tells it of answers is a full pipe, of which the machine says afterwards that writers wait.
#[test]
fn a_machine_that_cannot_be_notified_keeps_no_shard() {
    let stage = Stage::new(DISK, Access::ReadWrite);
    let mut guest = stage.machine();
    assert_eq!(guest.done(READ, 0, &[], 512).1, 0, "its queue is served");
    let (reader, writer) = io::pipe().expect("a pipe");
    let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
    for end in [&reader, &writer] {
        rustix::fs::fcntl_setfl(end, OFlags::NONBLOCK).expect("a pipe");
    }
    while rustix::io::write(&writer, &[0; 4096]).is_ok() {}
    assert!(guest.set_call(0, &writer));
    rustix::fs::fcntl_setfl(&writer, OFlags::empty()).expect("a pipe");
    guest.want_call();
    stage.disk.hold();
    guest.request(0, READ, 0, &[], 512);
    while stage.disk.asked.lock().expect("no panic").len() < 2 {
        std::thread::yield_now();
    }
    std::thread::scope(|scope| {
        let (answered, is_answered) = std::sync::mpsc::channel();
        let disk = &stage.disk;
        scope.spawn(move || {
            disk.release();
            answered.send(()).expect("the test waits");
        });
        let is_answered = is_answered.recv_timeout(Duration::from_secs(20));
        while rustix::io::read(&reader, &mut [0; 4096]).is_ok() {}
        assert_eq!(is_answered, Ok(()), "VHOST4: the shard goes on");
    });
    while guest.used() < 2 {
        std::thread::yield_now();
    }
}
