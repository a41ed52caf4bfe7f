//! The door to this kernel by its user-space block devices: a volume as a block device whose requests a thread takes over io_uring.
//!
//! A device outlives the daemon: requests wait, what was in flight is asked again, and the next daemon knows the device by what the kernel
//! keeps of its identity.
//!
//! Invariants:
//! - UBLK1. A door that cannot be opened leaves no device and no link, except a device that it found.
//! - UBLK2. A device is deleted when nothing uses it, or when that was forced; never because the daemon ends.
//! - UBLK3. Once the door is closed, no request reaches the volume, and nothing is in flight.
//! - UBLK4. The link is there when the device has its size and has answered a read.

mod control;
mod host;
mod queue;
mod request;
mod ring;
#[cfg(test)]
mod tests;
mod uapi;

use crate::attach::{AttachError, AttachOptions, Driver, check_link};
use crate::bell::{Bell, Spawn, pause};
use crate::block_devices::{BlockDevices, lead, remove_link};
use crate::counters::DoorCounters;
use crate::requests::Requests;
use control::{ANSWER_MAX, Control, identity_of, name};
use host::HostKernel;
use queue::Served;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use uapi::{Command, DEPTH, Info, Kernel, Operation, SECTOR, UPDATE_SIZE};
use varve_block::{Arena, Portal};

/// Looks at the host's files, a moment apart, until they show what was asked for.
const LOOKS_MAX: usize = 100;

/// A volume that is a user-space block device of this kernel. Dropping it deletes the device, unless it was found.
pub struct UblkDoor {
    shared: Arc<Shared>,
}

struct Shared {
    control: Control,
    devices: BlockDevices,
    /// What the kernel can do.
    features: u64,
    /// The number of the device.
    device: u32,
    /// Whether an earlier daemon had made it.
    is_taken_over: bool,
    link: PathBuf,
    served: Arc<Served>,
    state: Mutex<State>,
    changed: Condvar,
    resizing: Mutex<()>,
}

#[derive(Default)]
struct State {
    /// Whether the queue's thread runs.
    is_running: bool,
    /// Whether the device is being deleted.
    is_closing: bool,
    /// Whether another program has stopped it.
    has_ended: bool,
    is_closed: bool,
    /// Whether the kernel keeps another size of it than it has.
    has_old_size: bool,
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

impl UblkDoor {
    /// Makes the volume behind `portal` a block device, and `link` a link to it; or takes that over which an earlier daemon left.
    /// Blocks until it can be read: not for a thread that its requests need.
    pub fn open(
        portal: Portal,
        arena: Arena,
        link: &Path,
        options: &AttachOptions,
    ) -> Result<Self, AttachError> {
        Self::open_at(Host::find()?, (portal, arena), link, options)
    }

    fn open_at(
        host: Host,
        (portal, arena): (Portal, Arena),
        link: &Path,
        options: &AttachOptions,
    ) -> Result<Self, AttachError> {
        check_link(link)?;
        let control = Control::new(host.kernel, options.spawn, host.limit);
        let features = control.features()?;
        let requests = Requests::new(portal, arena, options.bytes_in_flight_max, &options.budget);
        let served =
            Served::new(requests, options.spawn).map_err(AttachError::failed("serve", link.into()))?;
        let identity = identity_of(&options.identity, link);
        let found = found(&control, &host.devices, identity)?;
        let device = found.map_or_else(|| control.add(identity), Ok)?;
        let shared = Shared {
            control,
            devices: host.devices,
            features,
            device,
            is_taken_over: found.is_some(),
            link: link.to_owned(),
            served: Arc::new(served),
            state: Mutex::default(),
            changed: Condvar::new(),
            resizing: Mutex::default(),
        };
        let door = Self { shared: Arc::new(shared) }; // Deletes the device if the rest fails (UBLK1).
        door.begin().map(|()| door)
    }

    fn begin(&self) -> Result<(), AttachError> {
        let shared = &self.shared;
        let (control, device, requests) = (&shared.control, shared.device, &shared.served.requests);
        let process = u64::from(std::process::id());
        if shared.is_taken_over {
            let mut has_begun = Ok(false);
            shared.look_until(|shared| {
                has_begun = shared.control.start_recovery(device);
                !matches!(has_begun, Ok(false))
            });
            if !has_begun? {
                return Err(control.stuck(Operation::StartRecovery, device));
            }
            Shared::start(shared)?;
            control.run(Command::with(Operation::EndRecovery, device, process))?;
            shared.resize();
        } else {
            control.describe(device, requests.shape())?;
            Shared::start(shared)?;
            control.run(Command::with(Operation::Start, device, process))?;
        }
        if !shared.look_until(|shared| shared.node().exists()) {
            return Err(AttachError::NoNode(shared.node()));
        }
        shared.devices.read_first(&name(device), uapi::size(requests.shape()))?;
        lead(&shared.link, &shared.node())
            .map_err(AttachError::failed("make the link", shared.link.clone()))?;
        let (node, link, is_taken_over) = (shared.node(), shared.link.display(), shared.is_taken_over);
        tracing::info!(target: "varve::ublk", device = %node.display(), %link, is_taken_over, "attached");
        Ok(())
    }

    /// The link that leads to the device.
    pub fn path(&self) -> &Path {
        &self.shared.link
    }

    /// The device.
    pub fn device(&self) -> PathBuf {
        self.shared.node()
    }

    /// What was done so far.
    pub fn counters(&self) -> DoorCounters {
        self.shared.served.requests.counters()
    }

    /// Finds out what uses the device, for people. Looks through all processes of the host.
    pub fn users(&self) -> Box<dyn FnOnce() -> Vec<String> + Send> {
        let (devices, name) = (self.shared.devices.clone(), name(self.shared.device));
        Box::new(move || devices.users(&name))
    }

    /// Whether requests are served: not once another program has stopped it.
    pub fn is_serving(&self) -> bool {
        let state = self.shared.state();
        !state.has_ended && !state.is_closed
    }

    /// What whoever uses the device has to know.
    pub fn notice(&self) -> Option<String> {
        let notice = "the kernel has its old size until it is detached and attached again";
        self.shared.state().has_old_size.then(|| notice.to_owned())
    }

    /// Leads to another device from the next request on: the volume was resized. The kernel hears of it on a thread.
    pub fn replace(&self, portal: Portal) {
        self.shared.served.requests.replace(portal);
        let shared = Arc::clone(&self.shared);
        if let Err(error) = (self.shared.served.spawn)("varve-ublk", Box::new(move || shared.resize())) {
            tracing::warn!(target: "varve::ublk", device = %self.device().display(), %error,
                "the kernel was not told the size");
        }
    }

    /// Makes the link again.
    pub fn renew(&self) -> io::Result<()> {
        lead(&self.shared.link, &self.shared.node())
    }

    /// Deletes the device if nothing uses it; all that was written through it is flushed first.
    pub fn close(&self) -> Result<(), AttachError> {
        let shared = &self.shared;
        let claim = if self.is_serving() { Some(shared.devices.claim(&name(shared.device))?) } else { None };
        shared.delete(claim)
    }

    /// Deletes the device; what uses it gets errors.
    pub fn detach(&self) {
        if let Err(error) = self.shared.delete(None) {
            tracing::warn!(target: "varve::ublk", device = %self.device().display(), %error,
                "the kernel did not delete it");
            self.leave();
        }
    }

    /// Takes nothing from now on, and waits for what is in flight. The device stays for the next daemon (UBLK2).
    pub fn leave(&self) {
        self.shared.end();
    }
}

impl Drop for UblkDoor {
    fn drop(&mut self) {
        if self.shared.state().is_closed {
            return;
        }
        if self.shared.is_taken_over {
            self.leave(); // What uses the device waits for another attempt (UBLK2).
        } else {
            self.detach();
        }
    }
}

/// The device that an earlier daemon left for `identity`, if one did. One that was not finished is deleted; one with other queues, which
/// something may use (UBLK2), is refused.
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
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self) -> PathBuf {
        self.devices.node(&name(self.device))
    }

    /// Looks until what is asked for is so, for a bounded time.
    fn look_until(&self, mut is_so: impl FnMut(&Self) -> bool) -> bool {
        let Ok(silence) = Bell::new() else { return is_so(self) };
        (0..LOOKS_MAX).any(|_| {
            let found = is_so(self);
            if !found {
                pause(&silence);
            }
            found
        })
    }

    /// Starts the thread of the queue, and waits until it has asked for the first requests.
    fn start(shared: &Arc<Self>) -> Result<(), AttachError> {
        let failed = |source| AttachError::failed("serve", shared.node())(source);
        let (ready, begun) = channel();
        shared.state().is_running = true;
        let running = Running(Arc::clone(shared));
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
        let mut state = self.state();
        if state.is_closed || state.is_closing {
            return;
        }
        state.has_ended = true;
        let error = ended.err().map(|error| error.to_string());
        tracing::warn!(target: "varve::ublk", device = %self.node().display(), error,
            "its queue ended: another program stopped it, or the kernel refused to go on");
    }

    /// Tells the kernel the size.
    fn resize(&self) {
        let _one = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let size = uapi::size(self.served.requests.shape());
        if self.devices.size(&name(self.device)) == size || self.state().is_closed {
            self.state().has_old_size = false;
            return;
        }
        let update = Command::with(Operation::UpdateSize, self.device, size / SECTOR);
        let is_able = self.features & UPDATE_SIZE != 0;
        let updated = if is_able { self.control.run(update).map(drop) } else { Err(AttachError::KeepsSize) };
        self.state().has_old_size = updated.is_err();
        if let Err(error) = updated {
            tracing::warn!(target: "varve::ublk", device = %self.node().display(), %error,
                "the kernel has its old size until it is detached and attached again");
        }
    }

    /// Stops the device, waits until nothing of it is in flight, deletes it, and removes the link (UBLK2).
    fn delete(&self, claim: Option<File>) -> Result<(), AttachError> {
        self.state().is_closing = true;
        if let Err(error) = gone(self.control.run(Command::about(Operation::Stop, self.device))) {
            self.state().is_closing = false;
            return Err(error);
        }
        let operation = if claim.is_some() { Operation::Delete } else { Operation::DeleteLater };
        drop(claim);
        self.end();
        if let Err(error) = gone(self.control.run(Command::about(operation, self.device))) {
            tracing::warn!(target: "varve::ublk", device = %self.node().display(), %error, "it is stopped, and not deleted");
        }
        remove_link(&self.link, &self.node());
        let (device, link) = (self.node(), self.link.display());
        tracing::info!(target: "varve::ublk", device = %device.display(), %link, "detached");
        Ok(())
    }

    /// Ends the queue's thread (UBLK3).
    fn end(&self) {
        let mut state = self.state();
        state.is_closed = true;
        self.served.stop();
        while state.is_running {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        self.served.requests.shut();
    }
}

/// The answer of a command, where a device that has gone is as good as one that is deleted.
fn gone(answer: Result<Vec<u8>, AttachError>) -> Result<(), AttachError> {
    match answer {
        Err(AttachError::Failed { source, .. }) if source.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        answer => answer.map(drop),
    }
}

/// The queue's thread, which ends with this.
struct Running(Arc<Shared>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.state().is_running = false;
        self.0.changed.notify_all();
    }
}

impl std::fmt::Debug for UblkDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UblkDoor({})", self.path().display())
    }
}
