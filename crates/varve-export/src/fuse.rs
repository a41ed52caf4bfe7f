//! The FUSE door: one regular file that is the volume, so that loop devices and file tools can use it.
//!
//! The volume is mounted *on a file*: the root of the FUSE file system is itself the regular file. Each request
//! of the kernel becomes one [`varve_block::Io`] for the volume's shard, and is answered from the shard's
//! callback: no thread waits for a disk.
//!
//! Invariants:
//! - FUSE1. A request is answered exactly once, also when the shard is gone.
//! - FUSE2. At most `bytes_in_flight_max` bytes of data are on their way; beyond that no request is taken from the
//!   kernel until one is done. They come from the budget that all doors share, and so do the buffers into which the
//!   door's threads receive for as long as it is open.
//! - FUSE3. A hole that was punched reads as zeros, whatever the device below promises for discarded blocks.
//! - FUSE4. A file that holds data is never hidden under a mount.
//! - FUSE5. Once the door is closed or detached, no request reaches the volume.

mod clients;
mod errno;
mod filesystem;
mod mountpoint;
mod options;
mod seek;
#[cfg(test)]
mod tests;

pub use mountpoint::{FuseError, check_driver};
pub use options::{Audience, FuseOptions};

use crate::budget::Reservation;
use crate::counters::DoorCounters;
use filesystem::{REQUEST_BYTES_MAX, Shared, VolumeFile};
use fuser::{BackgroundSession, Config, INodeNo, MountOption, Notifier, Session, SessionACL};
use mountpoint::{MountPoint, Unmount};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use varve_block::host::FileAccess;
use varve_block::{Access, Arena, Portal};

/// A volume offered as a file. Dropping it detaches it.
pub struct FuseDoor {
    mountpoint: MountPoint,
    shared: Arc<Shared>,
    notifier: Notifier,
    audience: Audience,
    /// `None` once closed.
    session: Option<BackgroundSession>,
    /// The buffers of the threads.
    _buffers: Reservation,
}

impl FuseDoor {
    /// Offers the volume behind `portal` (blocks of one byte; otherwise ragged requests are refused) as `file`,
    /// which is created if it is missing and must else be an empty regular file. A mount that a killed process
    /// left there is cleared away. Blocks for the time of a mount; call it where that does no harm.
    pub fn open(portal: Portal, arena: Arena, file: &Path, options: &FuseOptions) -> Result<Self, FuseError> {
        let threads = options.threads.max(1) as u64;
        let buffers = options.budget.reserve(threads * u64::from(REQUEST_BYTES_MAX));
        let buffers = buffers.ok_or(FuseError::NoMemory(options.budget.capacity()))?;
        let mountpoint = MountPoint::prepare(file)?;
        let access = portal.shape().access;
        let shared = Arc::new(Shared::new(portal, arena, options));
        let session = Session::new(
            VolumeFile::new(Arc::clone(&shared)),
            mountpoint.path(),
            &session_config(options, access),
        )
        .and_then(Session::spawn)
        .map_err(|source| mountpoint.abandon("mount", source))?;
        let notifier = session.notifier();
        tracing::info!(target: "varve::fuse", file = %mountpoint.path().display(), "serving");
        let audience = options.audience;
        Ok(Self { mountpoint, shared, notifier, audience, session: Some(session), _buffers: buffers })
    }

    /// The file, as an absolute path.
    pub fn path(&self) -> &Path {
        self.mountpoint.path()
    }

    /// What was done so far.
    pub fn counters(&self) -> DoorCounters {
        self.shared.requests.counters()
    }

    /// What has the file open, one for each opening: loop devices, processes, or that it is not known who it is.
    pub fn clients(&self) -> Vec<String> {
        self.shared.openings.clients(self.path())
    }

    /// Whether requests are served: `false` after [`FuseDoor::close`], or when another process unmounted the file.
    pub fn is_serving(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.guard.is_finished())
    }

    /// Leads to another device from the next request on: the volume was resized. Loop devices on the file need
    /// `losetup --set-capacity` to see the new size.
    pub fn replace(&self, portal: Portal) {
        self.shared.requests.replace(portal);
        if let Err(error) = self.notifier.inval_inode(INodeNo::ROOT, -1, 0) {
            tracing::warn!(target: "varve::fuse", file = %self.path().display(), %error,
                "the kernel was not told the new size; it asks again within a second");
        }
    }

    /// Gives the file another mode and group. Whether it did: a file that is mounted for its owner cannot let others in.
    pub fn set_access(&self, access: FileAccess) -> bool {
        if access.is_shared() && self.audience != Audience::Everybody {
            return false;
        }
        self.shared.set_access(access);
        if let Err(error) = self.notifier.inval_inode(INodeNo::ROOT, -1, 0) {
            tracing::warn!(target: "varve::fuse", file = %self.path().display(), %error,
                "the kernel was not told the new permissions; it asks again within a second");
        }
        true
    }

    /// Unmounts. Fails with [`FuseError::Busy`] while the file is open (a loop device, a copy under way); then
    /// the door goes on serving. Once closed, closing again does nothing.
    pub fn close(&mut self) -> Result<(), FuseError> {
        if self.is_serving() {
            self.mountpoint.unmount(Unmount::Orderly)?;
        }
        self.end();
        Ok(())
    }

    /// Unmounts even when the file is open; programs that have it open get errors from now on.
    pub fn detach(&mut self) {
        if self.close().is_ok() {
            return;
        }
        if let Err(error) = self.mountpoint.unmount(Unmount::Lazy) {
            tracing::warn!(target: "varve::fuse", file = %self.path().display(), %error, "not unmounted");
        }
        self.end();
    }

    /// The threads of the session are not joined: they end when the kernel lets the last user of the file go,
    /// which may be never.
    fn end(&mut self) {
        self.shared.requests.shut();
        if self.session.take().is_some() {
            self.mountpoint.remove_if_made_here();
            tracing::info!(target: "varve::fuse", file = %self.path().display(), "closed");
        }
    }
}

impl Drop for FuseDoor {
    fn drop(&mut self) {
        self.detach();
    }
}

impl std::fmt::Debug for FuseDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FuseDoor({})", self.path().display())
    }
}

/// Where a file would be mounted, for a dry run: checks everything that [`FuseDoor::open`] checks of the file
/// before it mounts, and changes nothing.
pub fn check_file(file: &Path) -> Result<PathBuf, FuseError> {
    MountPoint::check(file)
}

fn session_config(options: &FuseOptions, access: Access) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(plain(&options.name)),
        MountOption::Subtype("varve".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
    ];
    if access == Access::ReadOnly {
        config.mount_options.push(MountOption::RO);
    }
    config.acl = match options.audience {
        Audience::Owner => SessionACL::Owner,
        Audience::OwnerAndRoot => SessionACL::RootAndOwner,
        Audience::Everybody => SessionACL::All,
    };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = options.threads > 1;
    config
}

/// Mount options are separated by commas; a name must not bring its own.
fn plain(name: &str) -> String {
    let keep =
        |letter: char| if letter.is_alphanumeric() || "/@._+-:".contains(letter) { letter } else { '_' };
    name.chars().map(keep).collect()
}
