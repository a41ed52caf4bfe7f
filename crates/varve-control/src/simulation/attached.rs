//! The kernel of a simulated host, as far as volumes are its block devices: they outlive a daemon, as its own do.

use super::files::SimFiles;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use varve_block::Portal;
use varve_block::host::FileAccess;
use varve_export::{AttachError, DoorCounters, Driver};
use varve_volume::world::{FileDoor, FileDoorError, FindUsers};

/// The kernel.
#[derive(Default)]
pub(crate) struct SimKernel {
    /// Whether it has a client of network block devices.
    pub(crate) has_client: bool,
    /// Whether it has user-space block devices.
    pub(crate) has_ublk: bool,
    /// By their identities and links.
    pub(crate) devices: BTreeMap<(String, PathBuf), SimDevice>,
    connected: u32,
}

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SimDevice {
    pub(crate) driver: Driver,
    pub(crate) number: u32,
    /// Bytes.
    pub(crate) size: u64,
    /// Whether a daemon answers its requests; else they wait.
    pub(crate) is_served: bool,
    pub(crate) users: Vec<String>,
}

struct SimKernelFile {
    files: Arc<SimFiles>,
    key: (String, PathBuf),
}

/// Makes a device, or takes over the one that an earlier daemon left.
pub(super) fn attach(
    files: &Arc<SimFiles>,
    driver: Driver,
    portal: &Portal,
    (path, identity): (&Path, &str),
) -> Result<Box<dyn FileDoor>, AttachError> {
    check(files, driver)?;
    let key = (identity.to_owned(), path.to_owned());
    {
        let kernel = &mut files.table().kernel;
        let number = kernel.connected;
        let new = SimDevice { driver, number, size: 0, is_served: false, users: Vec::new() };
        let device = kernel.devices.entry(key.clone()).or_insert(new);
        (device.size, device.is_served) = (portal.shape().size, true);
        kernel.connected += u32::from(device.number == number);
    }
    let file = SimKernelFile { files: Arc::clone(files), key };
    file.renew(FileAccess::OWNER).map_err(|source| AttachError::Failed {
        doing: "make the link",
        path: path.into(),
        source,
    })?;
    Ok(Box::new(file))
}

/// Whether there is that driver.
pub(super) fn check(files: &SimFiles, driver: Driver) -> Result<(), AttachError> {
    let kernel = &files.table().kernel;
    let is_there = match driver {
        Driver::Nbd => kernel.has_client,
        Driver::Ublk => kernel.has_ublk,
    };
    if is_there { Ok(()) } else { Err(AttachError::NoDriver(driver)) }
}

impl SimKernelFile {
    fn device(&self) -> Option<SimDevice> {
        self.files.table().kernel.devices.get(&self.key).cloned()
    }
}

impl FileDoor for SimKernelFile {
    fn path(&self) -> &Path {
        &self.key.1
    }

    fn replace(&self, portal: Portal) {
        if let Some(device) = self.files.table().kernel.devices.get_mut(&self.key) {
            device.size = portal.shape().size;
        }
    }

    fn renew(&self, _: FileAccess) -> io::Result<()> {
        self.files.make_socket(&self.key.1)
    }

    fn is_serving(&self) -> bool {
        self.device().is_some_and(|device| device.is_served)
    }

    fn counters(&self) -> DoorCounters {
        DoorCounters::default()
    }

    fn clients(&self) -> Vec<String> {
        Vec::new()
    }

    fn more_clients(&self) -> Option<FindUsers> {
        let device = self.device()?;
        Some(Box::new(move || device.users))
    }

    fn device(&self) -> Option<PathBuf> {
        let device = self.device()?;
        let name = match device.driver {
            Driver::Nbd => "nbd",
            Driver::Ublk => "ublkb",
        };
        Some(format!("/dev/{name}{}", device.number).into())
    }

    fn detach(&mut self) {
        let mut table = self.files.table();
        table.kernel.devices.remove(&self.key);
        table.sockets.remove(&self.key.1);
    }

    fn leave(&mut self) {
        if let Some(device) = self.files.table().kernel.devices.get_mut(&self.key) {
            device.is_served = false;
        }
    }

    fn close(&mut self) -> Result<(), FileDoorError> {
        match self.device() {
            Some(device) if !device.users.is_empty() => {
                Err(AttachError::Busy(self.key.1.clone(), device.users).into())
            }
            _ => {
                self.detach();
                Ok(())
            }
        }
    }
}
