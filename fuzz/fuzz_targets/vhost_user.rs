//! A hostile virtual machine: messages with descriptors, memory that changes and goes away, and requests, in any order. The next
//! machine is served all the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_block::{
    Access, Arena, Buffer, Done, Extent, Io, IoError, Outcome, Portal, Shape, StatusRun, Submit,
};
use varve_export::Budget;
use varve_export::vhost_user::{VhostDoor, VhostOptions};
use varve_fuzz::machine::{Input, Machine};

const SIZE: u64 = 1 << 20;

/// A disk of zeros that asserts what it is asked for.
struct Zeros;

impl Submit for Zeros {
    fn submit(&self, io: Io, done: Done<Outcome>) {
        let extent = io.extent();
        assert!(extent.offset.checked_add(extent.length).is_some_and(|end| end <= SIZE), "VREQ1: {extent:?}");
        done(Ok(match io {
            Io::Read { mut buffer, .. } => {
                buffer.fill(0);
                buffer
            }
            _ => Buffer::empty(),
        }));
    }

    fn status(&self, _: Extent, done: Done<Result<Vec<StatusRun>, IoError>>) {
        done(Ok(Vec::new()));
    }
}

fn spawn(_: &str, work: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
    std::thread::spawn(work);
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    static DOORS: AtomicU64 = AtomicU64::new(0);
    let name = format!("varve-fuzz-{}-{}", std::process::id(), DOORS.fetch_add(1, Ordering::Relaxed));
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let listener = UnixListener::bind_addr(&address).expect("it is free");
    let shape = Shape { discard: true, access: Access::ReadWrite, ..Shape::new(SIZE, 1) };
    let (portal, budget) = (Portal::new(shape, Arc::new(Zeros)), Budget::new(16 << 20));
    let options = VhostOptions::new("fuzz", budget, spawn);
    let door = VhostDoor::open(portal, Arena::heap(4 << 20), listener.into(), Path::new(&name), options);
    let door = door.expect("it opens");
    let connect = || Machine::new(UnixStream::connect_addr(&address).expect("the door listens"));
    connect().act(&mut Input(data));
    // Until the first one's requests have ended, the next are turned away (VHOST1).
    let offered = std::iter::repeat_with(|| connect().features()).find_map(|features| features);
    assert!(offered.is_some_and(|answer| answer[0] == 1), "VHOST2: the next machine is served");
    drop(door);
});
