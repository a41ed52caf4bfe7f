//! Doors of this host behind files: mounted devices, block devices of this kernel, and sockets of virtual machines.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use varve_block::Portal;
use varve_block::host::FileAccess;
use varve_export::fuse::FuseDoor;
use varve_export::vhost_user::VhostDoor;
use varve_export::{DeviceDoor, DoorCounters};
use varve_volume::world::{FileDoor, FileDoorError, FindUsers};

/// A device that is served to virtual machines of this host.
pub(crate) struct RealMachineDoor {
    /// Its socket. None once it is closed.
    file: Mutex<Option<varve_os::SocketFile>>,
    door: VhostDoor,
}

impl RealMachineDoor {
    /// Behind the socket `file`.
    pub(crate) fn new(file: varve_os::SocketFile, door: VhostDoor) -> Self {
        Self { file: Mutex::new(Some(file)), door }
    }

    fn file(&self) -> MutexGuard<'_, Option<varve_os::SocketFile>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileDoor for RealMachineDoor {
    fn path(&self) -> &Path {
        self.door.path()
    }

    fn replace(&self, portal: Portal) {
        self.door.replace(portal);
    }

    fn set_access(&self, access: FileAccess) -> io::Result<()> {
        varve_os::set_socket_access(self.door.path(), access)
    }

    fn renew(&self, access: FileAccess) -> io::Result<()> {
        let (socket, file) = varve_os::listen_at(self.door.path(), access)?;
        self.door.listen_at(socket)?;
        *self.file() = Some(file);
        Ok(())
    }

    fn is_serving(&self) -> bool {
        self.door.is_serving()
    }

    fn counters(&self) -> DoorCounters {
        self.door.counters()
    }

    fn clients(&self) -> Vec<String> {
        self.door.clients()
    }

    fn detach(&mut self) {
        drop(self.file().take());
        self.door.close();
    }

    fn close(&mut self) -> Result<(), FileDoorError> {
        self.detach();
        Ok(())
    }
}

/// A block device of this kernel.
pub(crate) struct RealDevice(pub(crate) DeviceDoor);

impl FileDoor for RealDevice {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn replace(&self, portal: Portal) {
        self.0.replace(portal);
    }

    fn renew(&self, _: FileAccess) -> io::Result<()> {
        self.0.renew()
    }

    fn is_serving(&self) -> bool {
        self.0.is_serving()
    }

    fn notice(&self) -> Option<String> {
        self.0.notice()
    }

    fn counters(&self) -> DoorCounters {
        self.0.counters()
    }

    fn clients(&self) -> Vec<String> {
        Vec::new()
    }

    fn more_clients(&self) -> Option<FindUsers> {
        Some(self.0.users())
    }

    fn device(&self) -> Option<PathBuf> {
        Some(self.0.device())
    }

    fn detach(&mut self) {
        self.0.detach();
    }

    fn leave(&mut self) {
        self.0.leave();
    }

    fn close(&mut self) -> Result<(), FileDoorError> {
        Ok(self.0.close()?)
    }
}

/// A device that is mounted as a file of this host.
pub(crate) struct RealFileDoor(pub(crate) FuseDoor);

impl FileDoor for RealFileDoor {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn set_access(&self, access: FileAccess) -> io::Result<()> {
        if self.0.set_access(access) { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
    }

    fn replace(&self, portal: Portal) {
        self.0.replace(portal);
    }

    fn is_serving(&self) -> bool {
        self.0.is_serving()
    }

    fn counters(&self) -> DoorCounters {
        self.0.counters()
    }

    fn clients(&self) -> Vec<String> {
        self.0.clients()
    }

    fn detach(&mut self) {
        self.0.detach();
    }

    fn close(&mut self) -> Result<(), FileDoorError> {
        Ok(self.0.close()?)
    }
}
