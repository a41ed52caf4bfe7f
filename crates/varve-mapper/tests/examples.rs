//! The examples that copy on write answer an engine: this test is one, on a real socket, with real files.

#![expect(clippy::disallowed_methods, reason = "real processes are waited for")]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use varve_mapper::Engine;
use varve_mapper::wire::{COPY_LENGTH_MAX, EXTENTS_MAX, Extent, Intent, Place};

const CLUSTER: u64 = 64 << 10;
const SIZE: u64 = 10 * CLUSTER + 4096;

fn connect(socket: &Path, size: u64, held: &[Extent]) -> Engine {
    let stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
    };
    Engine::connect(stream, "data/vm", size, held).expect("the mapper answers the hello")
}

fn byte(engine: &mut Engine, at: u64) -> u8 {
    let mut byte = [0];
    engine.read(at, &mut byte).expect("it is readable");
    byte[0]
}

fn write(engine: &mut Engine, at: u64, byte: u8) {
    engine.write(at, &[byte]).expect("it is writable");
}

struct Mapper(Child);

impl Drop for Mapper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn answers_an_engine(command: &dyn Fn() -> Command) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    std::fs::write(path("base"), vec![b'b'; usize::try_from(SIZE).expect("small")]).expect("a base");
    let start = || {
        let child = command().arg(path("socket")).arg(path("base")).arg(path("overlay")).spawn();
        Mapper(child.expect("the example starts"))
    };
    let mapper = start();
    let mut engine = connect(&path("socket"), SIZE, &[]);
    let welcome = engine.welcome();
    assert!(welcome.is_persistent && welcome.keeps_answers);
    let mode = std::fs::metadata(path("socket")).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the socket is private to its user");
    assert_eq!(byte(&mut engine, 5), b'b');
    write(&mut engine, 5, b'1');
    write(&mut engine, SIZE - 1, b'2');
    let read = |engine: &mut Engine| [5, 6, SIZE - 1].map(|at| byte(engine, at));
    assert_eq!(read(&mut engine), *b"1b2");
    engine.flush().expect("the mapping is durable");
    write(&mut engine, 3 * CLUSTER, b'3');
    let held = engine.held().to_vec();
    assert_eq!(held.len(), 1);
    write(&mut engine, 4 * CLUSTER, b'4');
    drop(mapper);

    let _mapper = start();
    let mut engine = connect(&path("socket"), SIZE, &held);
    assert_eq!(read(&mut engine), *b"1b2", "flushed");
    assert_eq!(byte(&mut engine, 3 * CLUSTER), b'3', "told again");
    assert_eq!(byte(&mut engine, 4 * CLUSTER), b'b', "neither flushed nor told");
    assert_eq!(std::fs::read(path("base")).expect("the base")[5], b'b', "the base is not written");
}

/// A request that zeros may be as large as the volume.
fn answers_the_first_part_of_a_large_request(command: &dyn Fn() -> Command) {
    let size = (EXTENTS_MAX as u64 + 76) * CLUSTER;
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let base = std::fs::File::create(path("base")).expect("a base");
    base.set_len(size).expect("a base with nothing in it");
    let child = command().arg(path("socket")).arg(path("base")).arg(path("overlay")).spawn();
    let _mapper = Mapper(child.expect("the example starts"));
    let mut engine = connect(&path("socket"), size, &[]);
    for intent in [Intent::Read, Intent::Write] {
        let mut at = 0;
        while at < size {
            let extents = engine.ask(at, size - at, intent).expect("an answer that is a message");
            let is_copy = |extent: &&Extent| matches!(extent.place, Place::Copy { .. });
            let copied: u64 = extents.iter().filter(is_copy).map(|extent| extent.length).sum();
            assert!(copied <= COPY_LENGTH_MAX, "{copied} bytes to copy");
            assert_eq!(extents.first().map(|extent| extent.offset), Some(at), "it has the first byte");
            at = extents.last().and_then(Extent::end).expect("an end");
        }
        assert_eq!(at, size, "the rest is answered when it is asked for");
    }
}

fn example_in_rust() -> Command {
    let test = std::env::current_exe().expect("this test");
    let examples = test.parent().and_then(Path::parent).expect("target/PROFILE").join("examples");
    Command::new(examples.join("cow"))
}

fn example_in_python() -> Command {
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/cow.py"));
    command
}

#[test]
fn the_example_in_rust_answers_an_engine() {
    answers_an_engine(&example_in_rust);
}

#[test]
fn the_example_in_python_answers_an_engine() {
    answers_an_engine(&example_in_python);
}

#[test]
fn the_example_in_rust_answers_requests_that_need_more_extents_than_a_message_has() {
    answers_the_first_part_of_a_large_request(&example_in_rust);
}

#[test]
fn the_example_in_python_answers_requests_that_need_more_extents_than_a_message_has() {
    answers_the_first_part_of_a_large_request(&example_in_python);
}
