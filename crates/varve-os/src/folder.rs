//! Names of files: their folders, whether a file can be made there, that its name is durable, and names of what is open.

use rustix::fs::{Access, access};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

/// A path that leads to what is open, for calls that take paths alone: short, and whatever its own name is by now. It holds as long as the
/// descriptor is open.
pub fn descriptor_path(open: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_fd().as_raw_fd()))
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

/// Refuses a path at which this process can make no file, for the sake of its folder; nothing is changed.
pub fn check_folder(file: &Path) -> io::Result<()> {
    Ok(access(folder_of(file), Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Makes the name of a file durable that was made, or renamed, there.
pub fn sync_folder(file: &Path) -> io::Result<()> {
    File::open(folder_of(file))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_plain_name_is_the_present_one() {
        let folders = ["a", "./a", "/a", "b/a"].map(|file| folder_of(Path::new(file)));
        assert_eq!(folders, [".", ".", "/", "b"].map(Path::new));
        assert!(check_folder(Path::new("no such folder/a")).is_err());
        assert!(sync_folder(Path::new("no such folder/a")).is_err());
        check_folder(Path::new("Cargo.toml")).expect("the crate's own folder");
        sync_folder(Path::new("Cargo.toml")).expect("the crate's own folder");
    }
}
