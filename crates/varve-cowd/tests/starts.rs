//! What `varve-cowd` refuses before it listens, and what it never replaces.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running program, which ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn cowd(image: &Path, socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve-cowd"));
    command.arg(image).arg("--socket").arg(socket).stdout(Stdio::null());
    command
}

/// Its exit code, and what it says.
fn refused(image: &Path, socket: &Path) -> (Option<i32>, String) {
    let output = cowd(image, socket).output().expect("it starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// An image of 1 MiB with these options; none where there is no `qemu-img`.
fn image(path: &Path, options: &str) -> Option<()> {
    let mut command = Command::new("qemu-img");
    command.args(["create", "-q", "-f", "qcow2", "-o", options]).arg(path).arg("1M");
    command.status().ok()?.success().then_some(())
}

#[test]
fn no_file_and_no_living_socket_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    if image(&path("image"), "cluster_size=64k").is_none() {
        println!("SKIPPED: no qemu-img here");
        return;
    }
    let before = std::fs::read(path("image")).expect("it is there");
    std::fs::write(path("letter"), "dear").expect("a folder");
    let (code, said) = refused(&path("image"), &path("letter"));
    assert!(code == Some(1) && said.contains("no socket"), "{code:?}: {said}");
    assert_eq!(std::fs::read(path("letter")).expect("it is there"), b"dear");

    let living = UnixListener::bind(path("socket")).expect("a folder");
    let (code, said) = refused(&path("image"), &path("socket"));
    assert!(code == Some(1) && said.contains("listens"), "{code:?}: {said}");
    UnixStream::connect(path("socket")).expect("it is still there");
    assert!(std::fs::read(path("image")).expect("it is there") == before, "it is as it was");

    drop(living);
    assert!(path("socket").exists(), "it is left behind");
    let _running = Running(cowd(&path("image"), &path("socket")).spawn().expect("it starts"));
    let is_replaced = || UnixStream::connect(path("socket")).is_ok();
    let wait = || Command::new("sleep").arg("0.02").status().is_ok();
    assert!((0..3000).any(|_| is_replaced() || !wait()), "what is left behind is replaced");
}

#[test]
fn an_image_that_serves_no_volume_is_refused_before_it_listens_and_stays_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    if image(&path("small"), "cluster_size=512").is_none()
        || image(&path("torn"), "cluster_size=64k").is_none()
    {
        println!("SKIPPED: no qemu-img here");
        return;
    }
    std::fs::write(path("text"), "no image at all").expect("a folder");
    // Its table of tables is anywhere.
    let torn = std::fs::File::options().write(true).open(path("torn")).expect("it is there");
    std::os::unix::fs::FileExt::write_all_at(&torn, &[0xff; 8], 40).expect("it is there");
    for (name, word) in [("missing", "missing"), ("text", "text"), ("small", "512 bytes"), ("torn", "torn")] {
        let before = std::fs::read(path(name)).ok();
        let (code, said) = refused(&path(name), &path("socket"));
        assert!(code == Some(1) && said.contains(word), "{name}: {code:?}: {said}");
        assert!(std::fs::read(path(name)).ok() == before, "{name} is as it was");
        assert!(!path("socket").exists(), "{name}: it does not listen");
    }
}
