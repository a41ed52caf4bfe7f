//! Both examples answer an engine: this test is one, on a real socket, with real files.

#![expect(clippy::disallowed_methods, reason = "real processes are waited for")]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use varve_mapper::Engine;
use varve_mapper::wire::Extent;

const CLUSTER: u64 = 64 << 10;
const SIZE: u64 = 10 * CLUSTER + 4096;

fn connect(socket: &Path, held: &[Extent]) -> Engine {
    let stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
    };
    Engine::connect(stream, "data/vm", SIZE, held).expect("the mapper answers the hello")
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
    let mut engine = connect(&path("socket"), &[]);
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
    let mut engine = connect(&path("socket"), &held);
    assert_eq!(read(&mut engine), *b"1b2", "flushed");
    assert_eq!(byte(&mut engine, 3 * CLUSTER), b'3', "told again");
    assert_eq!(byte(&mut engine, 4 * CLUSTER), b'b', "neither flushed nor told");
    assert_eq!(std::fs::read(path("base")).expect("the base")[5], b'b', "the base is not written");
}

#[test]
fn the_example_in_rust_answers_an_engine() {
    let test = std::env::current_exe().expect("this test");
    let examples = test.parent().and_then(Path::parent).expect("target/PROFILE").join("examples");
    answers_an_engine(&|| Command::new(examples.join("cow")));
}

#[test]
fn the_example_in_python_answers_an_engine() {
    answers_an_engine(&|| {
        let mut command = Command::new("python3");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/cow.py"));
        command
    });
}
