//! The name of the disk: the file on which it is mounted, which can go and come back while others have the disk open.

use crate::orders::Order;
use rustix::fd::OwnedFd;
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Where the disk is.
pub(crate) struct Name {
    /// Where it is without faults.
    usual: PathBuf,
    place: Place,
}

enum Place {
    At(PathBuf),
    /// Nowhere: this keeps the file system, to be mounted again.
    Deleted(OwnedFd),
}

impl Name {
    /// Of a disk that is mounted at `file`.
    pub(crate) fn of(file: &Path) -> io::Result<Self> {
        let usual = std::path::absolute(file)?;
        Ok(Self { place: Place::At(usual.clone()), usual })
    }

    /// Carries out an order that changes the name.
    pub(crate) fn obey(&mut self, order: &Order) -> io::Result<()> {
        match order {
            Order::Delete => self.delete(),
            Order::Rename(to) => self.rename(&std::path::absolute(to)?),
            Order::Heal => self.rename(&self.usual.clone()),
            _ => Ok(()),
        }
    }

    /// The disk is mounted nowhere any more.
    pub(crate) fn unmount(&self) -> io::Result<()> {
        match &self.place {
            Place::At(path) => Ok(unmount(path, UnmountFlags::DETACH)?),
            Place::Deleted(_) => Ok(()),
        }
    }

    fn delete(&mut self) -> io::Result<()> {
        let Place::At(path) = &self.place else { return Ok(()) };
        let tree = copy(path)?;
        remove(path)?;
        self.place = Place::Deleted(tree);
        Ok(())
    }

    /// The new name is there before the old one goes.
    fn rename(&mut self, to: &Path) -> io::Result<()> {
        let tree = match &self.place {
            Place::At(path) if path == to => return Ok(()),
            Place::At(path) => &copy(path)?,
            Place::Deleted(tree) => tree,
        };
        File::options().write(true).create_new(true).open(to)?;
        move_mount(tree, "", CWD, to, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        match std::mem::replace(&mut self.place, Place::At(to.to_owned())) {
            Place::At(path) => remove(&path),
            Place::Deleted(_) => Ok(()),
        }
    }
}

/// A mount of what is mounted at `path`, that is nowhere yet.
fn copy(path: &Path) -> io::Result<OwnedFd> {
    Ok(open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?)
}

/// Takes the mount and the file below it away; who has the disk open keeps it.
fn remove(path: &Path) -> io::Result<()> {
    unmount(path, UnmountFlags::DETACH)?;
    std::fs::remove_file(path)
}
