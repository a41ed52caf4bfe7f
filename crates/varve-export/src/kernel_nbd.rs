//! The door to this kernel: a volume as a block device, over connections of the kernel's NBD client that it is given as sockets.
//!
//! There is no handshake: size and abilities go by netlink. A device outlives the daemon, requests wait meanwhile, and the
//! next daemon knows it again by its identity and gives it new sockets.
//!
//! Invariant KNBD1: a door that cannot be opened leaves no device and no link, except a device that it found.

mod connections;
mod devices;
mod kernel;
mod message;
mod session;
#[cfg(test)]
mod tests;

use crate::attach::{AttachError, AttachOptions, Driver, check_link};
use crate::bell::{Bell, pause};
use crate::block_devices::{BlockDevices, lead, look_until, remove_link};
use crate::device_door::{Attachment, DeviceDoor, KernelDevice, Running};
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
use std::path::Path;
use std::sync::{Arc, PoisonError};
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
/// Devices that others take first.
const TRIES_MAX: usize = 16;

struct Shared {
    kernel: Box<dyn Kernel>,
    devices: Devices,
    identity: String,
    served: Arc<Served>,
    attachment: Attachment,
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

/// Makes the volume behind `portal` a block device, and `link` a link to it; or takes that over which an earlier daemon left.
/// Blocks until it can be read: not for a thread that its requests need.
pub fn open(
    portal: Portal,
    arena: Arena,
    link: &Path,
    options: &AttachOptions,
) -> Result<DeviceDoor, AttachError> {
    let (kernel, devices) = (Box::new(find_kernel()?), Devices(BlockDevices::of_host()));
    open_at(kernel, devices, (portal, arena), link, options)
}

fn open_at(
    kernel: Box<dyn Kernel>,
    devices: Devices,
    (portal, arena): (Portal, Arena),
    link: &Path,
    options: &AttachOptions,
) -> Result<DeviceDoor, AttachError> {
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
    let attachment = Attachment::new(Arc::clone(&requests), link, options.spawn, found.is_some());
    let served = Arc::new(Served { index, requests, connections, stop, spawn: options.spawn });
    let shared = Arc::new(Shared { kernel, devices, identity, served, attachment });
    let door = DeviceDoor::new(Arc::clone(&shared) as Arc<dyn KernelDevice>); // Ends it if the rest fails (KNBD1).
    shared.begin(sockets).map(|()| door)
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
    fn begin(self: &Arc<Self>, sockets: [Option<UnixStream>; CONNECTIONS]) -> Result<(), AttachError> {
        let (node, link, is_taken_over) = (self.node(), &self.attachment.link, self.attachment.is_taken_over);
        for (connection, socket) in sockets.into_iter().enumerate() {
            Self::keep(self, connection, socket).map_err(AttachError::failed("serve", node.clone()))?;
        }
        if is_taken_over {
            self.resize();
        }
        self.wait_until_ready()?;
        self.devices.bound_trims(self.served.index, TRIM_MAX);
        lead(link, &node).map_err(AttachError::failed("make the link", link.clone()))?;
        let (device, link) = (node.display(), link.display());
        tracing::info!(target: "varve::kernel_nbd", %device, %link, is_taken_over, "attached");
        Ok(())
    }

    /// Waits until the device has its size and answers a read.
    fn wait_until_ready(&self) -> Result<(), AttachError> {
        let node = self.node();
        let wanted = parameters(self.served.requests.shape()).size;
        if self.devices.identity(self.served.index).as_deref() != Some(&*self.identity) {
            return Err(AttachError::TooOld(Driver::Nbd));
        }
        if !look_until(|| self.devices.size(self.served.index) == wanted) {
            let source = io::ErrorKind::TimedOut.into();
            return Err(AttachError::Failed { doing: "wait for the size of", path: node, source });
        }
        if !look_until(|| node.exists()) {
            return Err(AttachError::NoNode(node));
        }
        self.devices.0.read_first(&devices::name(self.served.index), wanted)
    }

    /// Serves a connection on a thread, and gives the kernel another socket whenever one has ended.
    fn keep(shared: &Arc<Self>, connection: usize, first: Option<UnixStream>) -> io::Result<()> {
        let running = Running::of(shared);
        (shared.served.spawn)("varve-nbd", Box::new(move || running.0.keep_connection(connection, first)))
    }

    fn keep_connection(self: &Arc<Self>, connection: usize, mut socket: Option<UnixStream>) {
        loop {
            let served = match socket.take().map_or_else(|| self.hand_over(), Ok) {
                Ok(socket) => session::serve(&self.served, connection, socket),
                Err(error) => Err(error),
            };
            if self.attachment.state().is_closed {
                return;
            }
            if let Err(error) = served {
                tracing::info!(target: "varve::kernel_nbd", device = self.served.index, connection, %error, "no connection");
            }
            if !self.devices.is_connected(self.served.index) && !self.attachment.state().is_closing {
                self.attachment.state().has_ended = true;
                tracing::warn!(target: "varve::kernel_nbd", device = %self.node().display(),
                    "another program disconnected it");
                return;
            }
            pause(&self.served.stop);
        }
    }

    /// A connection in the place of one that has ended; one that the kernel has no use for ends at once.
    fn hand_over(&self) -> io::Result<UnixStream> {
        if self.attachment.state().is_closing {
            return Err(Errno::SHUTDOWN.into());
        }
        let (own, kernels) = UnixStream::pair()?;
        self.kernel.replace_socket(self.served.index, &kernels, &self.identity)?;
        Ok(own)
    }
}

impl KernelDevice for Shared {
    fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    fn devices(&self) -> &BlockDevices {
        &self.devices.0
    }

    fn name(&self) -> String {
        devices::name(self.served.index)
    }

    fn stop(&self) {
        self.served.stop.ring();
    }

    fn resize(&self) {
        let _one = self.attachment.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let parameters = parameters(self.served.requests.shape());
        if self.devices.size(self.served.index) == parameters.size || self.attachment.state().is_closed {
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

    /// Waits until nothing has it, and removes the link.
    fn disconnect(&self, claim: Option<File>) -> Result<(), AttachError> {
        let node = self.node();
        self.attachment.state().is_closing = true;
        // Where another program was first, the kernel has nothing to disconnect.
        let is_another = self.devices.identity(self.served.index).is_some_and(|found| found != self.identity);
        let is_own = self.devices.is_connected(self.served.index) && !is_another;
        if is_own && let Err(error) = self.kernel.disconnect(self.served.index) {
            self.attachment.state().is_closing = false;
            return Err(AttachError::failed("disconnect", node)(error));
        }
        if claim.is_some() {
            drop(claim);
            if !look_until(|| self.devices.is_free(self.served.index)) {
                tracing::warn!(target: "varve::kernel_nbd", device = %node.display(), "something has it open still");
            }
        }
        remove_link(&self.attachment.link, &node);
        self.end();
        let (device, link) = (node.display(), self.attachment.link.display());
        tracing::info!(target: "varve::kernel_nbd", %device, %link, "detached");
        Ok(())
    }
}
