//! A filesystem on a loop device, as long as a measurement needs it; and other programs that run to their end.

use crate::prelude::*;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

/// The folder in a place where a filesystem is mounted; the cleanup unmounts it.
pub(crate) const MOUNT: &str = "mounted";

/// Where distributions put programs, those of the administrator, too.
const PROGRAMS: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs a program to its end; what it says is part of the error.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Outcome<()> {
    said_by(program, arguments).map(drop)
}

fn said_by(program: &str, arguments: &[&str]) -> Outcome<String> {
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", PROGRAMS)
        .stdin(Stdio::null())
        .output()
        .of(program)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
}

/// Whether filesystems of images can be mounted here: root may, where there are loop devices and FUSE.
pub(crate) fn is_possible() -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    is_root && ["/dev/fuse", "/dev/loop-control"].iter().all(|device| Path::new(device).exists())
}

/// A loop device, detached when dropped.
pub(crate) struct Loop {
    /// Its path.
    pub(crate) device: String,
}

impl Loop {
    /// In front of `image`; `direct`: past the cache of the image.
    pub(crate) fn attach(image: &Path, direct: bool) -> Outcome<Self> {
        if !Path::new("/dev/loop-control").exists() {
            return Err("there are no loop devices here".into());
        }
        let direct = if direct { "--direct-io=on" } else { "--direct-io=off" };
        let device = said_by("losetup", &["--find", "--show", direct, &image.to_string_lossy()])?;
        Ok(Self { device })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // One in use goes when it is unmounted.
        if let Err(Failed(reason)) = run("losetup", &["--detach", &self.device]) {
            eprintln!("{reason}");
        }
    }
}

/// A filesystem on a loop device, unmounted when dropped.
pub(crate) struct Mounted {
    /// Where it is mounted.
    pub(crate) path: PathBuf,
}

impl Mounted {
    /// Makes a filesystem on `image` by the command `mkfs` and mounts it at `path`; `direct`: past the cache of the image.
    pub(crate) fn new(image: &Path, path: &Path, mkfs: &[&str], direct: bool) -> Outcome<Self> {
        let attached = Loop::attach(image, direct)?;
        Self::mount(&attached.device, path, mkfs)
    }

    fn mount(device: &str, path: &Path, mkfs: &[&str]) -> Outcome<Self> {
        run(mkfs[0], &[&mkfs[1..], &[device]].concat())?;
        fs::create_dir_all(path).of(path.display())?;
        run("mount", &[device, &path.to_string_lossy()])?;
        Ok(Self { path: path.to_owned() })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(Failed(reason)) = run("umount", &["--lazy", &self.path.to_string_lossy()]) {
            eprintln!("{reason}");
        }
    }
}
