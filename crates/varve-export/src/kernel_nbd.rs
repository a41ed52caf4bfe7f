//! The door to this kernel: a volume as a block device, over connections of the kernel's NBD client that it is given as sockets.
//!
//! There is no handshake: size and abilities go by netlink. A device outlives the daemon, requests wait meanwhile, and the
//! next daemon knows it again by its identity and gives it new sockets.
//!
//! Invariants:
//! - KNBD1. A door that cannot be opened leaves no device and no link.
//! - KNBD2. A device is disconnected when nothing uses it, or when that was forced; never because the daemon ends.
//! - KNBD3. Once the door is closed, no request reaches the volume, and nothing is in flight.

mod connections;
mod devices;
mod kernel;
mod message;
mod session;
#[cfg(test)]
mod tests;

use crate::attach::{AttachError, AttachOptions, Driver, check_link};
use crate::bell::{Bell, pause};
use crate::block_devices::{BlockDevices, lead, remove_link};
use crate::counters::DoorCounters;
use crate::requests::Requests;
use connections::Connections;
use devices::Devices;
use kernel::{HostKernel, Kernel};
use message::Parameters;
use rustix::io::Errno;
use session::Served;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use varve_block::{Arena, MIB, Portal, Shape};

/// Connections of a device.
const CONNECTIONS: usize = 2;
/// Bytes of a logical sector.
const SECTOR: u64 = 512;
/// Seconds after which the kernel sends a request again over another connection: for so long what was in flight when a daemon was
/// killed waits for the next one.
const TIMEOUT: u64 = 5;
/// Seconds for which requests wait for a daemon. Then they fail.
const DEAD_CONNECTION_TIMEOUT: u64 = 600;
/// Bytes of one trim.
const TRIM_MAX: u64 = 256 * MIB;
/// Looks at the host's files, a moment apart, until they show what was asked for.
const LOOKS_MAX: usize = 100;
/// Devices that others take first.
const TRIES_MAX: usize = 16;

/// A volume that is a block device of this kernel. Dropping it disconnects the device.
pub struct KernelDoor {
    shared: Arc<Shared>,
}

struct Shared {
    kernel: Box<dyn Kernel>,
    devices: Devices,
    identity: String,
    link: PathBuf,
    served: Arc<Served>,
    state: Mutex<State>,
    changed: Condvar,
    resizing: Mutex<()>,
}

#[derive(Default)]
struct State {
    /// Threads of connections.
    threads: usize,
    /// Whether it is being disconnected: no connection gets another socket.
    is_closing: bool,
    /// Whether somebody else disconnected it.
    has_ended: bool,
    is_closed: bool,
}

/// Whether a device could be attached and reached at `link`; changes nothing.
pub fn check(link: &Path) -> Result<(), AttachError> {
    find_kernel()?;
    check_link(link)
}

fn find_kernel() -> Result<HostKernel, AttachError> {
    HostKernel::find().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => AttachError::NoDriver(Driver::Nbd),
        _ => AttachError::failed("ask the kernel for", "nbd".into())(error),
    })
}

/// What the kernel hears of a device of this shape.
fn parameters(shape: Shape) -> Parameters {
    Parameters {
        size: shape.size - shape.size % SECTOR,
        block_size: SECTOR,
        flags: session::flags(shape).0,
        timeout: TIMEOUT,
        dead_connection_timeout: DEAD_CONNECTION_TIMEOUT,
    }
}

impl KernelDoor {
    /// Makes the volume behind `portal` a block device, and `link` a link to it; or takes that over which an earlier daemon left.
    /// Blocks until it can be read: not for a thread that its requests need.
    pub fn open(
        portal: Portal,
        arena: Arena,
        link: &Path,
        options: &AttachOptions,
    ) -> Result<Self, AttachError> {
        Self::open_at(
            Box::new(find_kernel()?),
            Devices(BlockDevices::of_host()),
            (portal, arena),
            link,
            options,
        )
    }

    fn open_at(
        kernel: Box<dyn Kernel>,
        devices: Devices,
        (portal, arena): (Portal, Arena),
        link: &Path,
        options: &AttachOptions,
    ) -> Result<Self, AttachError> {
        check_link(link)?;
        let identity = format!("varve:{}:{}", options.identity, link.display());
        let shape = portal.shape();
        let found = devices.find(&identity);
        let (index, sockets) = match found {
            Some(index) => (index, std::array::from_fn(|_| None)),
            None => connect(&*kernel, &devices, shape, &identity)?,
        };
        let node = devices.node(index);
        let requests = Requests::new(portal, arena, options.bytes_in_flight_max, &options.budget);
        let stop = Bell::new().map_err(AttachError::failed("serve", node))?;
        let connections = Connections::new(CONNECTIONS);
        let shared = Shared {
            kernel,
            devices,
            identity,
            link: link.to_owned(),
            served: Arc::new(Served { index, requests, connections, stop, spawn: options.spawn }),
            state: Mutex::default(),
            changed: Condvar::new(),
            resizing: Mutex::default(),
        };
        let door = Self { shared: Arc::new(shared) }; // Disconnects the device if the rest fails (KNBD1).
        let begun = door.begin(sockets, found.is_some());
        if begun.is_err() && found.is_some() {
            door.leave(); // What uses the device waits for another attempt (KNBD2).
        }
        begun.map(|()| door)
    }

    fn begin(
        &self,
        sockets: [Option<UnixStream>; CONNECTIONS],
        is_taken_over: bool,
    ) -> Result<(), AttachError> {
        let (shared, node) = (&self.shared, self.shared.node());
        for (connection, socket) in sockets.into_iter().enumerate() {
            Shared::keep(shared, connection, socket).map_err(AttachError::failed("serve", node.clone()))?;
        }
        if is_taken_over {
            shared.resize();
        }
        shared.wait_until_ready()?;
        shared.devices.bound_trims(shared.served.index, TRIM_MAX);
        lead(&shared.link, &node).map_err(AttachError::failed("make the link", shared.link.clone()))?;
        let (device, link) = (node.display(), shared.link.display());
        tracing::info!(target: "varve::kernel_nbd", %device, %link, is_taken_over, "attached");
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
        let (devices, name) = (self.shared.devices.0.clone(), devices::name(self.shared.served.index));
        Box::new(move || devices.users(&name))
    }

    /// Whether requests are served: not once another program has disconnected it.
    pub fn is_serving(&self) -> bool {
        let state = self.shared.state();
        !state.has_ended && !state.is_closed
    }

    /// Leads to another device from the next request on: the volume was resized. The kernel hears of it on a thread.
    pub fn replace(&self, portal: Portal) {
        self.shared.served.requests.replace(portal);
        let shared = Arc::clone(&self.shared);
        if let Err(error) = (self.shared.served.spawn)("varve-nbd", Box::new(move || shared.resize())) {
            tracing::warn!(target: "varve::kernel_nbd", device = %self.device().display(), %error,
                "the kernel was not told the size");
        }
    }

    /// Makes the link again.
    pub fn renew(&self) -> io::Result<()> {
        lead(&self.shared.link, &self.shared.node())
    }

    /// Disconnects the device if nothing uses it; all that was written through it is flushed first.
    pub fn close(&self) -> Result<(), AttachError> {
        let shared = &self.shared;
        let claim = if self.is_serving() {
            Some(shared.devices.0.claim(&devices::name(shared.served.index))?)
        } else {
            None
        };
        shared.disconnect(claim)
    }

    /// Disconnects the device; what uses it gets errors.
    pub fn detach(&self) {
        if let Err(error) = self.shared.disconnect(None) {
            tracing::warn!(target: "varve::kernel_nbd", device = %self.device().display(), %error,
                "the kernel did not disconnect it");
            self.leave();
        }
    }

    /// Takes nothing from now on, and waits for what is in flight. The device stays for the next daemon (KNBD2).
    pub fn leave(&self) {
        self.shared.end();
    }
}

impl Drop for KernelDoor {
    fn drop(&mut self) {
        if !self.shared.state().is_closed {
            self.detach();
        }
    }
}

/// Connects a device that nothing has; its index, and this side of its connections.
fn connect(
    kernel: &dyn Kernel,
    devices: &Devices,
    shape: Shape,
    identity: &str,
) -> Result<(u32, [Option<UnixStream>; CONNECTIONS]), AttachError> {
    let mut after = 0;
    for _ in 0..TRIES_MAX {
        let index = devices.free(after).ok_or(AttachError::NoneFree)?;
        let failed = |source| AttachError::failed("connect", devices.node(index))(source);
        let (mut own, mut theirs) = (std::array::from_fn(|_| None), Vec::new());
        for socket in &mut own {
            let (ours, kernels) = UnixStream::pair().map_err(failed)?;
            *socket = Some(ours);
            theirs.push(kernels);
        }
        match kernel.connect(index, &parameters(shape), &theirs, identity) {
            Ok(()) => return Ok((index, own)),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => after = index + 1,
            Err(error) => return Err(failed(error)),
        }
    }
    Err(AttachError::NoneFree)
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self) -> PathBuf {
        self.devices.node(self.served.index)
    }

    /// Looks until what is asked for is so, for a bounded time.
    fn look_until(&self, is_so: impl Fn(&Self) -> bool) -> bool {
        (0..LOOKS_MAX).any(|_| {
            let found = is_so(self);
            if !found {
                pause(&self.served.stop);
            }
            found
        })
    }

    /// Waits until the device has its size and answers a read.
    fn wait_until_ready(&self) -> Result<(), AttachError> {
        let node = self.node();
        let wanted = parameters(self.served.requests.shape()).size;
        if self.devices.identity(self.served.index).as_deref() != Some(&*self.identity) {
            return Err(AttachError::TooOld(Driver::Nbd));
        }
        if !self.look_until(|shared| shared.devices.size(shared.served.index) == wanted) {
            let source = io::ErrorKind::TimedOut.into();
            return Err(AttachError::Failed { doing: "wait for the size of", path: node, source });
        }
        if !self.look_until(|shared| shared.node().exists()) {
            return Err(AttachError::NoNode(node));
        }
        self.devices.0.read_first(&devices::name(self.served.index), wanted)
    }

    /// Serves a connection on a thread, and gives the kernel another socket whenever one has ended.
    fn keep(shared: &Arc<Self>, connection: usize, first: Option<UnixStream>) -> io::Result<()> {
        shared.state().threads += 1;
        let kept = Kept(Arc::clone(shared));
        (shared.served.spawn)("varve-nbd", Box::new(move || kept.0.keep_connection(connection, first)))
    }

    fn keep_connection(self: &Arc<Self>, connection: usize, mut socket: Option<UnixStream>) {
        loop {
            let served = match socket.take().map_or_else(|| self.hand_over(), Ok) {
                Ok(socket) => session::serve(&self.served, connection, socket),
                Err(error) => Err(error),
            };
            if self.state().is_closed {
                return;
            }
            if let Err(error) = served {
                tracing::info!(target: "varve::kernel_nbd", device = self.served.index, connection, %error, "no connection");
            }
            if !self.devices.is_connected(self.served.index) && !self.state().is_closing {
                self.state().has_ended = true;
                tracing::warn!(target: "varve::kernel_nbd", device = %self.node().display(),
                    "another program disconnected it");
                return;
            }
            pause(&self.served.stop);
        }
    }

    /// A connection in the place of one that has ended; one that the kernel has no use for ends at once.
    fn hand_over(&self) -> io::Result<UnixStream> {
        if self.state().is_closing {
            return Err(Errno::SHUTDOWN.into());
        }
        let (own, kernels) = UnixStream::pair()?;
        self.kernel.replace_socket(self.served.index, &kernels, &self.identity)?;
        Ok(own)
    }

    /// Tells the kernel the size.
    fn resize(&self) {
        let _one = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let parameters = parameters(self.served.requests.shape());
        if self.devices.size(self.served.index) == parameters.size || self.state().is_closed {
            return;
        }
        match self.kernel.resize(self.served.index, &parameters, &self.identity) {
            Ok(()) => self.devices.bound_trims(self.served.index, TRIM_MAX),
            Err(error) => {
                tracing::warn!(target: "varve::kernel_nbd", device = %self.node().display(), %error,
                "the kernel does not take the new size: detach it and attach it again");
            }
        }
    }

    /// Disconnects the device, waits until nothing has it, and removes the link (KNBD2).
    fn disconnect(&self, claim: Option<File>) -> Result<(), AttachError> {
        let node = self.node();
        self.state().is_closing = true;
        // Where another program was first, the kernel has nothing to disconnect.
        let is_another = self.devices.identity(self.served.index).is_some_and(|found| found != self.identity);
        let is_own = self.devices.is_connected(self.served.index) && !is_another;
        if is_own && let Err(error) = self.kernel.disconnect(self.served.index) {
            self.state().is_closing = false;
            return Err(AttachError::failed("disconnect", node)(error));
        }
        if claim.is_some() {
            drop(claim);
            if !self.look_until(|shared| shared.devices.is_free(shared.served.index)) {
                tracing::warn!(target: "varve::kernel_nbd", device = %node.display(), "something has it open still");
            }
        }
        remove_link(&self.link, &node);
        self.end();
        let (device, link) = (node.display(), self.link.display());
        tracing::info!(target: "varve::kernel_nbd", %device, %link, "detached");
        Ok(())
    }

    /// Ends all threads (KNBD3).
    fn end(&self) {
        let mut state = self.state();
        state.is_closed = true;
        self.served.stop.ring();
        while state.threads > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        self.served.requests.shut();
    }
}

/// The thread of a connection, which ends with this.
struct Kept(Arc<Shared>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.state().threads -= 1;
        self.0.changed.notify_all();
    }
}

impl std::fmt::Debug for KernelDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KernelDoor({})", self.path().display())
    }
}
