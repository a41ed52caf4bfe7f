//! The file on which a volume is mounted: made ready, cleared of leftovers, unmounted.
//!
//! Invariant MOUNT1: the path is absolute and its last part is not a symbolic link, so that what is unmounted is what
//! was mounted.

use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the kernel serves files through.
const DRIVER: &str = "/dev/fuse";
/// What mounts and unmounts for those who are not root.
const HELPER: &str = "fusermount3";
/// Stacked mounts of killed processes that are cleared from one file at most.
const LEFTOVERS_MAX: usize = 16;

/// Why a file cannot be offered, or not be withdrawn.
#[derive(Debug)]
pub enum FuseError {
    /// There is something there, and it is not a regular file.
    NotAFile(PathBuf),
    /// The file holds data, which a mount would hide.
    NotEmpty(PathBuf),
    /// Another export, or another file system, is mounted there and alive.
    Occupied(PathBuf),
    /// The file is in use and cannot be withdrawn.
    Busy(PathBuf),
    /// This machine has no `/dev/fuse`, or it may not be opened.
    NoDriver(io::Error),
    /// Only root may mount, and the helper for others is not installed.
    NoHelper,
    /// The memory for requests, so many bytes, is taken by other clients.
    NoMemory(u64),
    /// A system call failed.
    Failed {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl fmt::Display for FuseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FuseError::NotAFile(path) => write!(f, "{} is not a regular file", path.display()),
            FuseError::NotEmpty(path) => {
                write!(f, "{} holds data, which the export would hide", path.display())
            }
            FuseError::Occupied(path) => {
                write!(f, "something else is mounted on {} already", path.display())
            }
            FuseError::Busy(path) => write!(f, "{} is in use", path.display()),
            FuseError::NoDriver(source) => write!(f, "cannot open /dev/fuse: {source}"),
            FuseError::NoHelper => {
                write!(f, "only root may mount, and there is no {HELPER} that mounts for others")
            }
            FuseError::NoMemory(bytes) => {
                write!(f, "the {} MiB for requests are taken by other exports and clients", bytes >> 20)
            }
            FuseError::Failed { doing, path, source } => {
                write!(f, "cannot {doing} {}: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for FuseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            FuseError::NoDriver(source) | FuseError::Failed { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// How to unmount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unmount {
    /// Only if the file is not in use.
    Orderly,
    /// From the tree of names now; from the users when the last of them is done.
    Lazy,
}

/// A file that is ready to be mounted on, or is.
#[derive(Debug)]
pub(super) struct MountPoint {
    path: PathBuf,
    made_here: bool,
}

/// What stands at a path.
enum Found {
    Nothing,
    EmptyFile,
    /// A mount whose server is dead.
    Leftover,
}

impl MountPoint {
    /// Makes sure that there is an empty regular file at `file` and nothing mounted on it.
    pub(super) fn prepare(file: &Path) -> Result<Self, FuseError> {
        let path = absolute(file)?;
        for _ in 0..LEFTOVERS_MAX {
            match look(&path)? {
                Found::EmptyFile => return Ok(Self { path, made_here: false }),
                Found::Nothing => {
                    make(&path)?;
                    return Ok(Self { path, made_here: true });
                }
                Found::Leftover => {
                    tracing::warn!(target: "varve::fuse", file = %path.display(),
                        "cleared away a mount whose server is gone");
                    unmount(&path, Unmount::Lazy)?;
                }
            }
        }
        Err(FuseError::Occupied(path))
    }

    /// What [`MountPoint::prepare`] would refuse is refused; nothing is changed.
    pub(super) fn check(file: &Path) -> Result<PathBuf, FuseError> {
        let path = absolute(file)?;
        look(&path)?;
        Ok(path)
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the mount away.
    pub(super) fn unmount(&self, how: Unmount) -> Result<(), FuseError> {
        unmount(&self.path, how)
    }

    /// Gives up after `doing` failed: leaves no file that was not there before.
    pub(super) fn abandon(&self, doing: &'static str, source: io::Error) -> FuseError {
        self.remove_if_made_here();
        match check_driver() {
            Err(refused) => refused,
            Ok(()) => FuseError::Failed { doing, path: self.path.clone(), source },
        }
    }

    /// Removes the file if it was made here and still is an empty file.
    pub(super) fn remove_if_made_here(&self) {
        if !self.made_here || !matches!(look(&self.path), Ok(Found::EmptyFile)) {
            return;
        }
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(target: "varve::fuse", file = %self.path.display(), %error, "left behind");
        }
    }
}

/// Whether this process can have files mounted.
pub fn check_driver() -> Result<(), FuseError> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let helper = match rustix::process::geteuid().is_root() {
        true => None,
        false => Some(std::env::split_paths(&folders).collect()),
    };
    check_driver_of(Path::new(DRIVER), helper)
}

/// Whether there is a driver, and the helper in one of the folders if that is needed.
fn check_driver_of(driver: &Path, helper_in: Option<Vec<PathBuf>>) -> Result<(), FuseError> {
    File::options().read(true).write(true).open(driver).map_err(FuseError::NoDriver)?;
    let has_helper = |folder: &PathBuf| rustix::fs::access(folder.join(HELPER), Access::EXEC_OK).is_ok();
    match helper_in.is_none_or(|folders| folders.iter().any(has_helper)) {
        true => Ok(()),
        false => Err(FuseError::NoHelper),
    }
}

/// MOUNT1. The file itself is not looked at: a leftover mount answers no question.
fn absolute(file: &Path) -> Result<PathBuf, FuseError> {
    let failed = |source| FuseError::Failed { doing: "find the directory of", path: file.into(), source };
    let name = file.file_name().ok_or_else(|| FuseError::NotAFile(file.into()))?;
    let parent = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok(parent.canonicalize().map_err(failed)?.join(name))
}

fn look(path: &Path) -> Result<Found, FuseError> {
    // Opening is the one question that the kernel never answers from what it remembers of a dead server.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(Found::Nothing),
        Err(Errno::NOTCONN | Errno::CONNABORTED) => return Ok(Found::Leftover),
        Err(Errno::LOOP | Errno::NXIO) => return Err(FuseError::NotAFile(path.into())),
        Err(error) => return Err(failed("open", path, error)),
    };
    let met = |source| FuseError::Failed { doing: "look at", path: path.into(), source };
    let metadata = file.metadata().map_err(met)?;
    if !metadata.is_file() {
        return Err(FuseError::NotAFile(path.into()));
    }
    let parent = path.parent().ok_or_else(|| FuseError::NotAFile(path.into()))?;
    if metadata.dev() != parent.metadata().map_err(met)?.dev() {
        return Err(FuseError::Occupied(path.into()));
    }
    if metadata.len() > 0 {
        return Err(FuseError::NotEmpty(path.into()));
    }
    Ok(Found::EmptyFile)
}

fn make(path: &Path) -> Result<(), FuseError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|error| failed("create", path, error))?;
    Ok(())
}

fn unmount(path: &Path, how: Unmount) -> Result<(), FuseError> {
    let flags = match how {
        Unmount::Orderly => UnmountFlags::NOFOLLOW,
        Unmount::Lazy => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
    };
    match rustix::mount::unmount(path, flags) {
        // Not a mount point any more: another process was faster.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(Errno::BUSY) => Err(FuseError::Busy(path.into())),
        Err(Errno::PERM) => unmount_by_helper(path, how),
        Err(error) => Err(failed("unmount", path, error)),
    }
}

/// Only root may unmount; others have a helper with that right, which also mounted.
fn unmount_by_helper(path: &Path, how: Unmount) -> Result<(), FuseError> {
    let mut arguments: Vec<OsString> = vec!["-u".into()];
    if how == Unmount::Lazy {
        arguments.push("-z".into());
    }
    arguments.extend(["--".into(), path.into()]);
    let output = Command::new(HELPER)
        .args(&arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| FuseError::Failed { doing: "run fusermount3 on", path: path.into(), source })?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false if said.contains("busy") => Err(FuseError::Busy(path.into())),
        false => {
            let source = io::Error::other(said.trim().to_owned());
            Err(FuseError::Failed { doing: "unmount", path: path.into(), source })
        }
    }
}

fn failed(doing: &'static str, path: &Path, error: Errno) -> FuseError {
    FuseError::Failed { doing, path: path.into(), source: error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn without_a_driver_or_the_helper_that_is_needed_no_file_is_offered() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let (driver, helper) = (folder.path().join("fuse"), folder.path().join(HELPER));
        let check = |helper_in| check_driver_of(&driver, helper_in);
        let folders = Some(vec![PathBuf::from("/nowhere"), folder.path().to_owned()]);
        assert!(matches!(check(None), Err(FuseError::NoDriver(_))));
        std::fs::write(&driver, "").expect("a writable folder");
        assert!(check(None).is_ok(), "root needs no helper");
        assert!(matches!(check(folders.clone()), Err(FuseError::NoHelper)));
        std::fs::write(&helper, "").expect("a writable folder");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&helper, executable).expect("it is its own");
        assert!(check(folders).is_ok());
    }
}
