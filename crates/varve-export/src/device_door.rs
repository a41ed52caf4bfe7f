//! A volume as a block device of this kernel: what the door does whatever the driver, and what its threads share.
//!
//! Invariants:
//! - DEVICEDOOR1. A device is taken from the kernel when nothing uses it, or when that was forced; never because the daemon ends, or because
//!   a device that an earlier daemon left cannot be served.
//! - DEVICEDOOR2. Once the door is closed, no request reaches the volume, and nothing is in flight.

#[cfg(test)]
pub(crate) mod memory;

use crate::attach::AttachError;
use crate::bell::Spawn;
use crate::block_devices::{BlockDevices, lead};
use crate::counters::DoorCounters;
use crate::requests::Requests;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use varve_block::Portal;

/// A volume that is a block device of this kernel. Dropping it takes the device from the kernel, unless an earlier daemon had made it.
pub struct DeviceDoor {
    device: Arc<dyn KernelDevice>,
}

/// A block device of the kernel by one of its drivers.
pub(crate) trait KernelDevice: Send + Sync {
    /// What is alike for all drivers.
    fn attachment(&self) -> &Attachment;
    /// Where the host shows its devices.
    fn devices(&self) -> &BlockDevices;
    /// Its name there.
    fn name(&self) -> String;
    /// Has its threads take no more requests, and end when what they took is answered.
    fn stop(&self);
    /// Tells the kernel the size of the volume.
    fn resize(&self);
    /// Takes it from the kernel; what uses it gets errors, unless it is claimed.
    fn disconnect(&self, claim: Option<File>) -> Result<(), AttachError>;
    /// What whoever uses it has to know.
    fn notice(&self) -> Option<String> {
        None
    }

    /// Its device file.
    fn node(&self) -> PathBuf {
        self.devices().node(&self.name())
    }

    /// Ends its threads (DEVICEDOOR2).
    fn end(&self) {
        let attachment = self.attachment();
        let mut state = attachment.state();
        state.is_closed = true;
        self.stop();
        while state.threads > 0 {
            state = attachment.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        attachment.requests.shut();
    }
}

/// What is alike for all drivers.
pub(crate) struct Attachment {
    /// The way to the volume.
    pub(crate) requests: Arc<Requests>,
    /// The link that leads to the device.
    pub(crate) link: PathBuf,
    /// Starts a thread.
    pub(crate) spawn: Spawn,
    /// Whether an earlier daemon had made the device.
    pub(crate) is_taken_over: bool,
    /// Held while a size is sent to the kernel.
    pub(crate) resizing: Mutex<()>,
    state: Mutex<AttachmentState>,
    changed: Condvar,
}

/// Where an attachment stands.
#[derive(Default)]
pub(crate) struct AttachmentState {
    threads: usize,
    /// Whether the device is being taken from the kernel.
    pub(crate) is_closing: bool,
    /// Whether another program has taken it from the kernel.
    pub(crate) has_ended: bool,
    pub(crate) is_closed: bool,
}

impl Attachment {
    /// That of a device at `link`.
    pub(crate) fn new(requests: Arc<Requests>, link: &Path, spawn: Spawn, is_taken_over: bool) -> Self {
        let (state, changed, resizing) = (Mutex::default(), Condvar::new(), Mutex::default());
        Self { requests, link: link.to_owned(), spawn, is_taken_over, resizing, state, changed }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, AttachmentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread of a device, which ends with this.
pub(crate) struct Running<D: KernelDevice>(pub(crate) Arc<D>);

impl<D: KernelDevice> Running<D> {
    /// A thread that is about to begin.
    pub(crate) fn of(device: &Arc<D>) -> Self {
        device.attachment().state().threads += 1;
        Self(Arc::clone(device))
    }
}

impl<D: KernelDevice> Drop for Running<D> {
    fn drop(&mut self) {
        self.0.attachment().state().threads -= 1;
        self.0.attachment().changed.notify_all();
    }
}

impl DeviceDoor {
    /// The door to a device.
    pub(crate) fn new(device: Arc<dyn KernelDevice>) -> Self {
        Self { device }
    }

    /// The link that leads to the device.
    pub fn path(&self) -> &Path {
        &self.device.attachment().link
    }

    /// The device.
    pub fn device(&self) -> PathBuf {
        self.device.node()
    }

    /// What was done so far.
    pub fn counters(&self) -> DoorCounters {
        self.device.attachment().requests.counters()
    }

    /// Finds out what uses the device, for people. Looks through all processes of the host.
    pub fn users(&self) -> Box<dyn FnOnce() -> Vec<String> + Send> {
        let (devices, name) = (self.device.devices().clone(), self.device.name());
        Box::new(move || devices.users(&name))
    }

    /// Whether requests are served: not once another program has taken the device from the kernel.
    pub fn is_serving(&self) -> bool {
        let state = self.device.attachment().state();
        !state.has_ended && !state.is_closed
    }

    /// What whoever uses the device has to know.
    pub fn notice(&self) -> Option<String> {
        self.device.notice()
    }

    /// Leads to another device from the next request on: the volume was resized. The kernel hears of it on a thread.
    pub fn replace(&self, portal: Portal) {
        let attachment = self.device.attachment();
        attachment.requests.replace(portal);
        let device = Arc::clone(&self.device);
        if let Err(error) = (attachment.spawn)("varve-resize", Box::new(move || device.resize())) {
            tracing::warn!(target: "varve::device_door", device = %self.device().display(), %error,
                "the kernel was not told the size");
        }
    }

    /// Makes the link again.
    pub fn renew(&self) -> io::Result<()> {
        lead(self.path(), &self.device())
    }

    /// Takes the device from the kernel if nothing uses it; all that was written through it is flushed first.
    pub fn close(&self) -> Result<(), AttachError> {
        let claim = match self.is_serving() {
            true => Some(self.device.devices().claim(&self.device.name())?),
            false => None,
        };
        self.device.disconnect(claim)
    }

    /// Takes the device from the kernel; what uses it gets errors.
    pub fn detach(&self) {
        if let Err(error) = self.device.disconnect(None) {
            tracing::warn!(target: "varve::device_door", device = %self.device().display(), %error,
                "the kernel keeps the device");
            self.leave();
        }
    }

    /// Takes nothing from now on, and waits for what is in flight. The device stays for the next daemon (DEVICEDOOR1).
    pub fn leave(&self) {
        self.device.end();
    }
}

impl Drop for DeviceDoor {
    fn drop(&mut self) {
        let attachment = self.device.attachment();
        if attachment.state().is_closed {
            return;
        }
        if attachment.is_taken_over {
            self.leave(); // What uses the device waits for another attempt (DEVICEDOOR1).
        } else {
            self.detach();
        }
    }
}

impl std::fmt::Debug for DeviceDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceDoor({})", self.path().display())
    }
}
