//! The door beside a kernel that is made here: its commands, its files, and its side of the queue.

use super::uapi::{DESCRIPTOR, Data, FEATURES, INFO, Queue};
use super::*;
use crate::Budget;
use crate::bell::Bell;
use crate::device_door::memory::{Memory, SIZE};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender};
use varve_block::{IoError, Shape};

/// Longer than what does not wait takes.
const LONG: Duration = Duration::from_secs(20);
/// Looks, a moment apart, that take as long.
const LOOKS: usize = 4000;

/// A tag, and what happened under it.
type Event = (u16, i32);

/// A device of the kernel: its state as the kernel counts it, what its server wrote down, and its side of the queue.
#[derive(Default)]
struct Made {
    state: u16,
    identity: u64,
    /// Requests of its queue; as usual if zero.
    depth: u16,
    events: Option<Sender<Event>>,
    /// Attempts to take it over that the kernel refuses, since it has not seen the end of the last server.
    busy: usize,
}

struct Machine {
    folder: tempfile::TempDir,
    features: u64,
    asked: Mutex<Vec<String>>,
    made: Mutex<BTreeMap<u32, Made>>,
    descriptors: Mutex<BTreeMap<u16, [u8; DESCRIPTOR]>>,
    data: Mutex<BTreeMap<u16, Vec<u8>>>,
    /// Answers that the kernel got.
    answers: (Sender<Event>, Mutex<Receiver<Event>>),
    bell: Mutex<Option<Arc<Bell>>>,
    /// The command that it does not end.
    hangs: Mutex<Option<Operation>>,
}

#[derive(Clone)]
struct FakeKernel(Arc<Machine>);

struct FakeQueue {
    machine: Arc<Machine>,
    events: Receiver<Event>,
    bell: Arc<Bell>,
}

struct FakeData(Arc<Machine>);

impl Machine {
    fn new(features: u64) -> Arc<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["sys/ublkb0", "dev", "proc"] {
            fs::create_dir_all(folder.path().join(name)).expect("a writable folder");
        }
        let (sender, receiver) = channel();
        Arc::new(Self {
            folder,
            features,
            asked: Mutex::default(),
            made: Mutex::default(),
            descriptors: Mutex::default(),
            data: Mutex::default(),
            answers: (sender, Mutex::new(receiver)),
            bell: Mutex::default(),
            hangs: Mutex::default(),
        })
    }

    fn open(self: &Arc<Self>, memory: &Arc<Memory>, shape: Shape) -> Result<DeviceDoor, AttachError> {
        let at = |name: &str| self.folder.path().join(name);
        let devices = BlockDevices { sys: at("sys"), dev: at("dev"), proc: at("proc") };
        let kernel = Arc::new(FakeKernel(Arc::clone(self)));
        let host = Host { kernel, devices, limit: Duration::from_millis(200) };
        let options = AttachOptions::new("0a", Budget::new(1 << 26), spawn);
        open_at(host, (memory.portal(shape), Arena::heap(1 << 22)), &self.link(), &options)
    }

    fn link(&self) -> PathBuf {
        self.folder.path().join("dev/varve/data/v")
    }

    fn note(&self, operation: Operation, data: u64) {
        self.asked.lock().expect("no panic").push(match data {
            0 => operation.name().to_owned(),
            data if data == u64::from(std::process::id()) => format!("{} by this process", operation.name()),
            data => format!("{} {data}", operation.name()),
        });
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().expect("no panic"))
    }

    fn set_state(&self, device: u32, state: u16) {
        self.made.lock().expect("no panic").get_mut(&device).expect("it is there").state = state;
    }

    /// Shows the block device and its size.
    fn show(&self, device: u32, size: u64) {
        let at = |name: String| self.folder.path().join(name);
        fs::write(at(format!("dev/ublkb{device}")), vec![0; 4096]).expect("a writable folder");
        fs::write(at(format!("sys/ublkb{device}/size")), (size / SECTOR).to_string())
            .expect("a writable folder");
    }

    fn send(&self, tag: u16, result: i32) {
        let made = self.made.lock().expect("no panic");
        for events in made.values().filter_map(|made| made.events.as_ref()) {
            let _ = events.send((tag, result));
        }
        self.bell.lock().expect("no panic").as_ref().expect("a queue is open").ring();
    }

    /// Asks under a tag.
    fn ask(&self, tag: u16, operation: u32, offset: u64, length: u64, data: &[u8]) {
        let mut descriptor = [0; DESCRIPTOR];
        descriptor[..4].copy_from_slice(&operation.to_ne_bytes());
        descriptor[4..8].copy_from_slice(&((length / SECTOR) as u32).to_ne_bytes());
        descriptor[8..16].copy_from_slice(&(offset / SECTOR).to_ne_bytes());
        self.descriptors.lock().expect("no panic").insert(tag, descriptor);
        self.data.lock().expect("no panic").insert(tag, data.to_vec());
        self.send(tag, 0);
    }

    fn answer(&self) -> (u16, i32) {
        self.answers.1.lock().expect("no panic").recv_timeout(LONG).expect("an answer")
    }
}

fn spawn(name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

fn until(is_so: impl Fn() -> bool) {
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    panic!("it is never so");
}

impl Kernel for FakeKernel {
    fn carry_out(&self, command: Command) -> io::Result<Vec<u8>> {
        let machine = &self.0;
        let Command { operation, device, data, buffer } = command;
        if *machine.hangs.lock().expect("no panic") == Some(operation) {
            until(|| machine.hangs.lock().expect("no panic").is_none());
            return Err(io::Error::from_raw_os_error(libc::EINTR));
        }
        let mut made = machine.made.lock().expect("no panic");
        let unknown = || io::Error::from_raw_os_error(libc::ENODEV);
        match operation {
            Operation::GetInfo => {
                let known = made.get(&device).ok_or_else(unknown)?;
                let mut info = Info::encode_new(known.identity);
                if known.depth > 0 {
                    info[2..4].copy_from_slice(&known.depth.to_ne_bytes());
                }
                info[4..6].copy_from_slice(&known.state.to_ne_bytes());
                info[12..16].copy_from_slice(&device.to_ne_bytes());
                return Ok(info);
            }
            Operation::GetFeatures => return Ok(machine.features.to_ne_bytes().to_vec()),
            _ => {}
        }
        machine.note(operation, data);
        match operation {
            Operation::Add => {
                let identity = Info::decode(&buffer).expect("it is whole").identity;
                let device = u32::try_from(made.len()).expect("few");
                made.insert(device, Made { identity, ..Made::default() });
                let node = machine.folder.path().join(format!("dev/ublkc{device}"));
                fs::write(node, "").expect("a writable folder");
                let mut info = buffer;
                info[12..16].copy_from_slice(&device.to_ne_bytes());
                return Ok(info);
            }
            Operation::Start | Operation::EndRecovery => {
                made.get_mut(&device).ok_or_else(unknown)?.state = 1;
                let size = fs::read_to_string(machine.folder.path().join("sys/ublkb0/size"));
                machine.show(
                    device,
                    size.map_or(SIZE, |sectors| sectors.parse::<u64>().expect("a number") * 512),
                );
            }
            Operation::StartRecovery => {
                let known = made.get_mut(&device).ok_or_else(unknown)?;
                if known.busy > 0 {
                    known.busy -= 1;
                    return Err(io::Error::from_raw_os_error(libc::EBUSY));
                }
            }
            Operation::Stop => {
                let known = made.get_mut(&device).ok_or_else(unknown)?;
                known.state = 0;
                if let Some(events) = known.events.take() {
                    let _ = events.send((0, -libc::ENODEV));
                    machine.bell.lock().expect("no panic").as_ref().expect("a queue is open").ring();
                }
            }
            Operation::Delete | Operation::DeleteLater => {
                made.remove(&device).ok_or_else(unknown)?;
                for file in ["ublkc", "ublkb"] {
                    let _ = fs::remove_file(machine.folder.path().join(format!("dev/{file}{device}")));
                }
                let _ = fs::remove_file(machine.folder.path().join(format!("sys/ublkb{device}/size")));
            }
            Operation::UpdateSize => machine.show(device, data * SECTOR),
            _ => {}
        }
        Ok(buffer)
    }

    fn open(&self, device: u32, bell: &Arc<Bell>) -> io::Result<Box<dyn Queue>> {
        let (sender, events) = channel();
        *self.0.bell.lock().expect("no panic") = Some(Arc::clone(bell));
        self.0.made.lock().expect("no panic").get_mut(&device).expect("it is there").events = Some(sender);
        Ok(Box::new(FakeQueue { machine: Arc::clone(&self.0), events, bell: Arc::clone(bell) }))
    }
}

impl Queue for FakeQueue {
    fn data(&self) -> Arc<dyn Data> {
        Arc::new(FakeData(Arc::clone(&self.machine)))
    }

    fn descriptor(&self, tag: u16) -> io::Result<[u8; DESCRIPTOR]> {
        Ok(self.machine.descriptors.lock().expect("no panic")[&tag])
    }

    fn fetch(&mut self, _: u16) -> io::Result<()> {
        Ok(())
    }

    fn commit(&mut self, tag: u16, result: i32) -> io::Result<()> {
        let _ = self.machine.answers.0.send((tag, result));
        Ok(())
    }

    fn turn(&mut self, waits: bool) -> io::Result<Vec<(u16, i32)>> {
        if waits {
            crate::bell::wait([&*self.bell]);
        }
        self.bell.hush();
        Ok(self.events.try_iter().collect())
    }
}

impl Data for FakeData {
    fn take(&self, tag: u16, data: &mut [u8]) -> io::Result<()> {
        data.copy_from_slice(&self.0.data.lock().expect("no panic")[&tag]);
        Ok(())
    }

    fn give(&self, tag: u16, data: &[u8]) -> io::Result<()> {
        self.0.data.lock().expect("no panic").insert(tag, data.to_vec());
        Ok(())
    }
}

const NEW: [&str; 3] = ["ADD_DEV", "SET_PARAMS", "START_DEV by this process"];
const FULL: u64 = FEATURES | UPDATE_SIZE;

#[test]
fn requests_of_the_kernel_are_answered_under_their_tags() {
    let (machine, memory) = (Machine::new(FULL), Memory::new(IoError::NoSpace));
    let door = machine.open(&memory, Shape::new(SIZE, 1)).expect("it is attached");
    assert_eq!(machine.asked(), NEW);
    assert_eq!(fs::read_link(machine.link()).expect("a link"), door.device(), "UBLK2");
    let block = [7; 512];
    machine.ask(5, 1, 1024, 512, &block);
    assert_eq!(machine.answer(), (5, 512), "UBLKQUEUE1");
    assert_eq!(memory.content.lock().expect("no panic")[1023..1026], [0, 7, 7]);
    machine.ask(9, 0, 1024, 512, &[]);
    assert_eq!(machine.answer(), (9, 512));
    assert_eq!(machine.data.lock().expect("no panic")[&9], block);
    machine.ask(9, 2, 0, 0, &[]);
    assert_eq!(machine.answer(), (9, 0));
    machine.ask(2, 3, 0, 512, &[]);
    assert_eq!(machine.answer(), (2, -libc::ENOSPC), "the kernel hears of room");
    machine.ask(2, 1, SIZE, 512, &block);
    assert_eq!(machine.answer(), (2, -libc::EIO), "beyond its end");
    machine.ask(2, 15, 0, 512, &[]);
    assert_eq!(machine.answer(), (2, -libc::EOPNOTSUPP));
    let counters = door.counters();
    assert_eq!((counters.writes, counters.reads, counters.flushes, counters.discards), (1, 1, 1, 1));
    assert_eq!(counters.in_flight, 0);
    until(|| door.counters().in_flight_bytes == 0); // A read has its memory a moment longer than the kernel waits.
}

#[test]
fn a_device_stays_for_the_next_daemon_which_takes_it_over_with_its_size() {
    let (machine, memory) = (Machine::new(FULL), Memory::new(IoError::NoSpace));
    let door = machine.open(&memory, Shape::new(SIZE, 1)).expect("it is attached");
    memory.keep(usize::MAX);
    machine.ask(1, 1, 0, 512, &[3; 512]);
    until(|| memory.kept() == 1);
    assert_eq!(door.counters().in_flight_bytes, 512, "UBLKQUEUE2");
    let (left, has_left) = channel();
    let leave = move || {
        door.leave();
        drop(door);
        left.send(()).expect("the test waits for it");
    };
    spawn("leaves", Box::new(leave)).expect("a thread");
    let early = has_left.recv_timeout(Duration::from_millis(50));
    assert!(early.is_err(), "UBLKQUEUE1: a request is in flight");
    memory.keep(0);
    memory.release();
    has_left.recv_timeout(LONG).expect("it ends");
    assert_eq!(machine.answer(), (1, 512), "UBLKQUEUE1: what was taken is answered");
    assert_eq!(machine.asked(), NEW, "DEVICEDOOR1");
    assert!(machine.link().symlink_metadata().is_ok());
    machine.set_state(0, 2);
    machine.made.lock().expect("no panic").get_mut(&0).expect("it is there").busy = 2;
    let door = machine.open(&memory, Shape::new(SIZE * 2, 1)).expect("it is taken over");
    let recovery = "START_USER_RECOVERY";
    let wanted = [recovery, recovery, recovery, "END_USER_RECOVERY by this process", "UPDATE_SIZE 4096"];
    assert_eq!(machine.asked(), wanted);
    machine.ask(1, 0, 0, 512, &[]);
    assert_eq!(machine.answer(), (1, 512));
    assert_eq!(machine.data.lock().expect("no panic")[&1], [3; 512]);
    door.replace(memory.portal(Shape::new(SIZE, 1)));
    until(|| machine.asked.lock().expect("no panic").iter().any(|asked| asked == "UPDATE_SIZE 2048"));
    drop(door);
    assert!(
        machine.made.lock().expect("no panic").contains_key(&0),
        "DEVICEDOOR1: what was found is not deleted"
    );
}

#[test]
fn a_device_of_another_version_is_refused_and_stays_for_what_uses_it() {
    let (machine, memory) = (Machine::new(FULL), Memory::new(IoError::NoSpace));
    machine.open(&memory, Shape::new(SIZE, 1)).expect("it is attached").leave();
    machine.asked();
    machine.set_state(0, 2);
    machine.made.lock().expect("no panic").get_mut(&0).expect("it is there").depth = 64;
    let failed = machine.open(&memory, Shape::new(SIZE, 1)).map(drop).expect_err("its queue is another one");
    assert!(
        failed.to_string().ends_with("it has 1 queues of 64 requests, which another version of varve serves"),
        "{failed}"
    );
    assert_eq!(machine.asked(), Vec::<String>::new(), "DEVICEDOOR1");
    assert!(machine.made.lock().expect("no panic").contains_key(&0), "DEVICEDOOR1");
}

#[test]
fn a_device_in_use_is_not_deleted_unless_that_is_forced() {
    let (machine, memory) = (Machine::new(FULL), Memory::new(IoError::NoSpace));
    let door = machine.open(&memory, Shape::new(SIZE, 1)).expect("it is attached");
    let holder = machine.folder.path().join("sys/ublkb0/holders/dm-1");
    fs::create_dir_all(&holder).expect("a writable folder");
    assert!(
        matches!(door.close(), Err(AttachError::Busy(_, users)) if users == ["/dev/dm-1"]),
        "DEVICEDOOR1"
    );
    assert!(door.is_serving() && machine.link().symlink_metadata().is_ok());
    assert_eq!(machine.asked(), NEW);
    fs::remove_dir(&holder).expect("it is there");
    door.close().expect("nothing uses it");
    assert_eq!(machine.asked(), ["STOP_DEV", "DEL_DEV"]);
    assert!(!machine.folder.path().join("dev/varve").exists(), "the link has gone, with its folders");
    assert!(!door.is_serving(), "DEVICEDOOR2");
    let door = machine.open(&memory, Shape::new(SIZE, 1)).expect("it is attached again");
    fs::create_dir_all(&holder).expect("a writable folder");
    machine.asked();
    door.detach();
    assert_eq!(machine.asked(), ["STOP_DEV", "DEL_DEV_ASYNC"]);
}

#[test]
fn what_cannot_be_attached_leaves_nothing() {
    let (machine, memory) = (Machine::new(FULL), Memory::new(IoError::NoSpace));
    fs::create_dir_all(machine.folder.path().join("dev/ublkb0")).expect("a writable folder");
    fs::remove_dir_all(machine.folder.path().join("sys/ublkb0")).expect("it is there");
    *machine.hangs.lock().expect("no panic") = Some(Operation::SetParameters);
    let failed = machine.open(&memory, Shape::new(SIZE, 1)).map(drop).expect_err("the kernel hangs");
    let said = failed.to_string();
    assert_eq!(said, "the kernel does not end SET_PARAMS of /dev/ublkb0, which is dead", "UBLKCONTROL1");
    assert_eq!(machine.asked(), ["ADD_DEV"], "UBLKCONTROL1: no other command is sent");
    assert!(machine.link().symlink_metadata().is_err(), "UBLK2");
    *machine.hangs.lock().expect("no panic") = None;
    fs::create_dir_all(machine.folder.path().join("sys/ublkb0")).expect("a writable folder");
    fs::remove_dir_all(machine.folder.path().join("dev/ublkb0")).expect("it is there");
    let door = machine.open(&memory, Shape::new(SIZE, 1)).expect("it is attached");
    assert_eq!(machine.asked()[..2], ["DEL_DEV", "ADD_DEV"], "what was left unfinished is deleted");
    drop(door);
    assert!(machine.made.lock().expect("no panic").is_empty(), "UBLK1");
    fs::create_dir_all(machine.link()).expect("a writable folder");
    let failed = machine
        .open(&memory, Shape::new(SIZE, 1))
        .map(drop)
        .expect_err("a folder is where the link is to be");
    assert!(matches!(failed, AttachError::Taken(_)), "{failed}");
}

#[test]
fn a_kernel_that_could_not_hand_a_device_to_the_next_daemon_is_refused() {
    let (machine, memory) = (Machine::new(FEATURES & !(1 << 7)), Memory::new(IoError::NoSpace));
    let failed = machine.open(&memory, Shape::new(SIZE, 1)).map(drop).expect_err("it lacks something");
    assert!(matches!(failed, AttachError::TooOld(Driver::Ublk)), "{failed}");
    assert_eq!(machine.asked(), Vec::<String>::new());
    assert_eq!(INFO, 64);
}

#[test]
fn a_device_that_cannot_change_its_size_says_so_until_it_is_attached_again() {
    let (machine, memory) = (Machine::new(FEATURES), Memory::new(IoError::NoSpace));
    let door = machine.open(&memory, Shape::new(SIZE, 1)).expect("it is attached");
    assert_eq!(door.notice(), None);
    door.replace(memory.portal(Shape::new(SIZE / 2, 1)));
    until(|| door.notice().is_some());
    assert_eq!(machine.asked(), NEW, "the kernel is not asked what it cannot do");
    door.close().expect("nothing uses it");
}

#[test]
fn another_program_that_stops_it_ends_the_door() {
    let (machine, memory) = (Machine::new(FULL), Memory::new(IoError::NoSpace));
    let door = machine.open(&memory, Shape::new(SIZE, 1)).expect("it is attached");
    let kernel = FakeKernel(Arc::clone(&machine));
    kernel.carry_out(Command::about(Operation::Stop, 0)).expect("it is there");
    until(|| !door.is_serving());
    kernel.carry_out(Command::about(Operation::Delete, 0)).expect("it is there");
    door.close().expect("there is nothing to delete");
}
