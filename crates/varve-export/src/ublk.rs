//! The door to this kernel by its user-space block devices: a volume as a block device whose requests a thread takes over io_uring.
//!
//! A device outlives the daemon: requests wait, what was in flight is asked again, and the next daemon knows the device by what the kernel
//! keeps of its identity.
//!
//! Invariants:
//! - UBLK1. A door that cannot be opened leaves no device and no link, except a device that it found.
//! - UBLK2. The link is there when the device has its size and has answered a read.

mod control;
mod host;
mod queue;
mod request;
mod ring;
#[cfg(test)]
mod tests;
mod uapi;

use crate::attach::{AttachError, AttachOptions, Driver, check_link};
use crate::bell::Spawn;
use crate::block_devices::{BlockDevices, lead, look_until, remove_link};
use crate::device_door::{Attachment, DeviceDoor, KernelDevice, Running};
use crate::requests::Requests;
use control::{ANSWER_MAX, Control, identity_of, name};
use host::HostKernel;
use queue::Served;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use uapi::{Command, DEPTH, Info, Kernel, Operation, SECTOR, UPDATE_SIZE};
use varve_block::{Arena, Portal};

/// A kernel before Linux 6.16, after its volume was resized.
const HAS_OLD_SIZE: &str = "the kernel has its old size until it is detached and attached again";

struct Shared {
    control: Control,
    devices: BlockDevices,
    /// What the kernel can do.
    features: u64,
    /// The number of the device.
    device: u32,
    served: Arc<Served>,
    attachment: Attachment,
    /// Whether the kernel keeps another size of it than it has.
    has_old_size: AtomicBool,
}

/// The host that a door is opened on.
struct Host {
    kernel: Arc<dyn Kernel>,
    devices: BlockDevices,
    /// How long the kernel may take for a command.
    limit: Duration,
}

/// Whether a device could be made and reached at `link`; changes nothing. `spawn` starts the threads that ask.
pub fn check(link: &Path, spawn: Spawn) -> Result<(), AttachError> {
    let host = Host::find()?;
    Control::new(host.kernel, spawn, host.limit).features()?;
    check_link(link)
}

impl Host {
    fn find() -> Result<Self, AttachError> {
        let kernel = HostKernel::find().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => AttachError::NoDriver(Driver::Ublk),
            _ => AttachError::failed("open", "/dev/ublk-control".into())(error),
        })?;
        Ok(Self { kernel: Arc::new(kernel), devices: BlockDevices::of_host(), limit: ANSWER_MAX })
    }
}

/// Makes the volume behind `portal` a block device, and `link` a link to it; or takes that over which an earlier daemon left.
/// Blocks until it can be read: not for a thread that its requests need.
pub fn open(
    portal: Portal,
    arena: Arena,
    link: &Path,
    options: &AttachOptions,
) -> Result<DeviceDoor, AttachError> {
    open_at(Host::find()?, (portal, arena), link, options)
}

fn open_at(
    host: Host,
    (portal, arena): (Portal, Arena),
    link: &Path,
    options: &AttachOptions,
) -> Result<DeviceDoor, AttachError> {
    check_link(link)?;
    let control = Control::new(host.kernel, options.spawn, host.limit);
    let features = control.features()?;
    let requests = Requests::new(portal, arena, options.bytes_in_flight_max, &options.budget);
    let served = Served::new(Arc::clone(&requests), options.spawn)
        .map_err(AttachError::failed("serve", link.into()))?;
    let identity = identity_of(&options.identity, link);
    let found = found(&control, &host.devices, identity)?;
    let device = found.map_or_else(|| control.add(identity), Ok)?;
    let shared = Arc::new(Shared {
        control,
        devices: host.devices,
        features,
        device,
        served: Arc::new(served),
        attachment: Attachment::new(requests, link, options.spawn, found.is_some()),
        has_old_size: AtomicBool::new(false),
    });
    let door = DeviceDoor::new(Arc::clone(&shared) as Arc<dyn KernelDevice>); // Deletes it if the rest fails (UBLK1).
    shared.begin().map(|()| door)
}

/// The device that an earlier daemon left for `identity`, if one did. One that was not finished is deleted; one with other queues, which
/// something may use (DEVICEDOOR1), is refused.
fn found(control: &Control, devices: &BlockDevices, identity: u64) -> Result<Option<u32>, AttachError> {
    while let Some(Info { device, state, queues, depth, .. }) = control.find(&devices.dev, identity) {
        if state.is_left_over() {
            control.run(Command::about(Operation::Delete, device))?;
        } else if (queues, depth) == (1, DEPTH) {
            return Ok(Some(device));
        } else {
            let why =
                format!("it has {queues} queues of {depth} requests, which another version of varve serves");
            let source = io::Error::new(io::ErrorKind::Unsupported, why);
            return Err(AttachError::failed("take over", devices.node(&name(device)))(source));
        }
    }
    Ok(None)
}

impl Shared {
    fn begin(self: &Arc<Self>) -> Result<(), AttachError> {
        let (control, device, requests) = (&self.control, self.device, &self.served.requests);
        let (process, is_taken_over) = (u64::from(std::process::id()), self.attachment.is_taken_over);
        if is_taken_over {
            let mut has_begun = Ok(false);
            look_until(|| {
                has_begun = control.start_recovery(device);
                !matches!(has_begun, Ok(false))
            });
            if !has_begun? {
                return Err(control.stuck(Operation::StartRecovery, device));
            }
            Self::start(self)?;
            control.run(Command::with(Operation::EndRecovery, device, process))?;
            self.resize();
        } else {
            control.describe(device, requests.shape())?;
            Self::start(self)?;
            control.run(Command::with(Operation::Start, device, process))?;
        }
        let (node, link) = (self.node(), &self.attachment.link);
        if !look_until(|| node.exists()) {
            return Err(AttachError::NoNode(node));
        }
        self.devices.read_first(&name(device), uapi::size(requests.shape()))?;
        lead(link, &node).map_err(AttachError::failed("make the link", link.clone()))?;
        let (node, link) = (node.display(), link.display());
        tracing::info!(target: "varve::ublk", device = %node, %link, is_taken_over, "attached");
        Ok(())
    }

    /// Starts the thread of the queue, and waits until it has asked for the first requests.
    fn start(shared: &Arc<Self>) -> Result<(), AttachError> {
        let failed = |source| AttachError::failed("serve", shared.node())(source);
        let (ready, begun) = channel();
        let running = Running::of(shared);
        let serve = move || {
            let shared = &running.0;
            let ended = queue::serve(&shared.served, &*shared.control.kernel, shared.device, &ready);
            shared.note_end(ended);
        };
        (shared.served.spawn)("varve-ublk", Box::new(serve)).map_err(failed)?;
        let begun = begun.recv_timeout(ANSWER_MAX);
        begun.map_err(|_| io::ErrorKind::TimedOut.into()).and_then(|begun| begun).map_err(failed)
    }

    /// The queue's thread has ended.
    fn note_end(&self, ended: io::Result<()>) {
        let mut state = self.attachment.state();
        if state.is_closed || state.is_closing {
            return;
        }
        state.has_ended = true;
        let error = ended.err().map(|error| error.to_string());
        tracing::warn!(target: "varve::ublk", device = %self.node().display(), error,
            "its queue ended: another program stopped it, or the kernel refused to go on");
    }
}

impl KernelDevice for Shared {
    fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    fn devices(&self) -> &BlockDevices {
        &self.devices
    }

    fn name(&self) -> String {
        name(self.device)
    }

    fn stop(&self) {
        self.served.stop();
    }

    fn notice(&self) -> Option<String> {
        self.has_old_size.load(Ordering::Relaxed).then(|| HAS_OLD_SIZE.to_owned())
    }

    fn resize(&self) {
        let _one = self.attachment.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let size = uapi::size(self.served.requests.shape());
        if self.devices.size(&name(self.device)) == size || self.attachment.state().is_closed {
            self.has_old_size.store(false, Ordering::Relaxed);
            return;
        }
        let update = Command::with(Operation::UpdateSize, self.device, size / SECTOR);
        let is_able = self.features & UPDATE_SIZE != 0;
        let updated = if is_able { self.control.run(update).map(drop) } else { Err(AttachError::KeepsSize) };
        self.has_old_size.store(updated.is_err(), Ordering::Relaxed);
        if let Err(error) = updated {
            tracing::warn!(target: "varve::ublk", device = %self.node().display(), %error, "{HAS_OLD_SIZE}");
        }
    }

    /// Stops it, waits until nothing of it is in flight, deletes it, and removes the link.
    fn disconnect(&self, claim: Option<File>) -> Result<(), AttachError> {
        self.attachment.state().is_closing = true;
        if let Err(error) = gone(self.control.run(Command::about(Operation::Stop, self.device))) {
            self.attachment.state().is_closing = false;
            return Err(error);
        }
        let operation = if claim.is_some() { Operation::Delete } else { Operation::DeleteLater };
        drop(claim);
        self.end();
        let (node, link) = (self.node(), &self.attachment.link);
        if let Err(error) = gone(self.control.run(Command::about(operation, self.device))) {
            tracing::warn!(target: "varve::ublk", device = %node.display(), %error, "it is stopped, and not deleted");
        }
        remove_link(link, &node);
        let (device, link) = (node.display(), link.display());
        tracing::info!(target: "varve::ublk", device = %device, %link, "detached");
        Ok(())
    }
}

/// The answer of a command, where a device that has gone is as good as one that is deleted.
fn gone(answer: Result<Vec<u8>, AttachError>) -> Result<(), AttachError> {
    match answer {
        Err(AttachError::Failed { source, .. }) if source.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        answer => answer.map(drop),
    }
}
