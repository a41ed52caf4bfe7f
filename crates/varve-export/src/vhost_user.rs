//! The vhost-user-blk door: a virtio disk for a virtual machine, over a socket and the memory that the machine shares.
//!
//! One thread handles the machine's messages, and one a queue takes its requests. Each becomes one [`varve_block::Io`] for the
//! volume's shard; another thread writes what that answers into the guest's memory. No thread waits for a disk.
//!
//! Invariants:
//! - VHOST1. One machine is connected at a time; the next is served once nothing of the one before is in flight.
//! - VHOST2. Nothing that a machine or guest sends ends more than its own session or queue.
//! - VHOST3. Once the door is closed, no request reaches the volume, and nothing is in flight.
//! - VHOST4. No shard touches a guest's memory or notifies it: either may wait for the machine as long as that likes.

mod config;
mod connection;
mod in_flight;
mod lost_pages;
mod memory;
mod message;
mod queue;
mod request;
mod ring;
mod session;
#[cfg(test)]
mod tests;

use crate::answers::Answers;
use crate::bell::{Bell, Spawn, pause, wait};
use crate::budget::Budget;
use crate::counters::DoorCounters;
use crate::requests::Requests;
use connection::{Connection, End};
use queue::Machine;
use rustix::io::Errno;
use session::Session;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use varve_block::{Arena, MIB, Portal};

/// How the disk is offered.
#[derive(Clone, Debug)]
pub struct VhostOptions {
    /// How guests know the disk again.
    pub serial: String,
    /// Bytes of requests that may be on their way at the same time.
    pub bytes_in_flight_max: u64,
    /// Memory that the clients of all doors share.
    pub budget: Budget,
    /// Starts a thread of a name.
    pub spawn: Spawn,
}

impl VhostOptions {
    /// With what is usual.
    pub fn new(serial: &str, budget: Budget, spawn: Spawn) -> Self {
        Self { serial: serial.to_owned(), bytes_in_flight_max: 64 * MIB, budget, spawn }
    }
}

/// A volume offered to a virtual machine. Dropping it closes it.
#[derive(Debug)]
pub struct VhostDoor {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    requests: Arc<Requests>,
    listener: RwLock<Arc<OwnedFd>>,
    options: VhostOptions,
    stop: Bell,
    changed: Bell,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    client: Option<String>,
    has_ended: bool,
}

impl VhostDoor {
    /// Offers the volume behind `portal` (blocks of one byte; otherwise ragged requests are refused) to the machine that connects to
    /// `listener`, a socket that listens at `path`.
    pub fn open(
        portal: Portal,
        arena: Arena,
        listener: OwnedFd,
        path: &Path,
        options: VhostOptions,
    ) -> io::Result<Self> {
        let requests = Requests::new(portal, arena, options.bytes_in_flight_max, &options.budget);
        let (stop, changed, state) = (Bell::new()?, Bell::new()?, Mutex::default());
        let (path, spawn) = (path.to_owned(), options.spawn);
        rustix::io::ioctl_fionbio(&listener, true)?;
        let (listener, ended) = (RwLock::new(Arc::new(listener)), Condvar::new());
        let shared = Arc::new(Shared { path, requests, listener, options, stop, changed, state, ended });
        let serving = Serving(Arc::clone(&shared));
        spawn("varve-vhost", Box::new(move || serving.0.serve()))?;
        tracing::info!(target: "varve::vhost", socket = %shared.path.display(), "serving");
        Ok(Self { shared })
    }

    /// Where its socket is.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// What was done so far.
    pub fn counters(&self) -> DoorCounters {
        self.shared.requests.counters()
    }

    /// The machine that is connected, if one is.
    pub fn clients(&self) -> Vec<String> {
        self.shared.state().client.iter().cloned().collect()
    }

    /// Whether machines are served.
    pub fn is_serving(&self) -> bool {
        !self.shared.state().has_ended
    }

    /// Leads to another device from the next request on: the volume was resized. The machine is notified.
    pub fn replace(&self, portal: Portal) {
        self.shared.requests.replace(portal);
        self.shared.changed.ring();
    }

    /// Machines connect to another socket at its path from now on; the one that is connected stays.
    pub fn listen_at(&self, listener: OwnedFd) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&listener, true)?;
        *self.shared.listener.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(listener);
        self.shared.changed.ring();
        Ok(())
    }

    /// Takes nothing from now on, and waits for what is in flight (VHOST3). Closing again does nothing.
    pub fn close(&self) {
        self.shared.stop.ring();
        let mut state = self.shared.state();
        while !state.has_ended {
            state = self.shared.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.shared.requests.shut();
    }
}

impl Drop for VhostDoor {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listener(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.listener.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The next machine that waits. If none can be taken in now, a moment passes.
    fn accept(&self) -> Option<OwnedFd> {
        match rustix::net::accept(&*self.listener()) {
            Ok(socket) => Some(socket),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => None,
            Err(error) => {
                tracing::warn!(target: "varve::vhost", socket = %self.path.display(), %error,
                    "no machine can connect now");
                pause(&self.stop);
                None
            }
        }
    }

    /// One machine after the other (VHOST1).
    fn serve(&self) {
        loop {
            let [_, is_changed, stops] = wait([&*self.listener(), &self.changed, &self.stop]);
            if stops {
                break;
            }
            if is_changed {
                self.changed.hush();
            }
            if let Some(socket) = self.accept() {
                self.serve_machine(&Connection { socket, stop: &self.stop });
            }
        }
        tracing::info!(target: "varve::vhost", socket = %self.path.display(), "closed");
    }

    fn serve_machine(&self, connection: &Connection<'_>) {
        let (peer, socket) = (connection.peer(), self.path.display());
        // The thread ends when the machine has left, and nothing of it is in flight.
        let answers = match Answers::start(self.options.spawn, "varve-vhost") {
            Ok((answers, _)) => answers,
            Err(error) => {
                tracing::warn!(target: "varve::vhost", %socket, peer, %error, "turned away: no thread can be started");
                return;
            }
        };
        tracing::info!(target: "varve::vhost", %socket, peer, "connected");
        self.state().client = Some(peer.clone());
        let machine = Machine {
            path: self.path.clone(),
            requests: Arc::clone(&self.requests),
            serial: serial(&self.options.serial),
            memory: RwLock::default(),
            answers,
        };
        let mut session = Session::new(connection, Arc::new(machine), self.options.spawn);
        let end = self.answer(connection, &mut session);
        drop(session); // VHOST1
        self.state().client = None;
        match end {
            End::Failed(why) => tracing::warn!(target: "varve::vhost", %socket, peer, why, "disconnected"),
            End::Left | End::Stopped => tracing::info!(target: "varve::vhost", %socket, peer, "disconnected"),
        }
    }

    /// Answers a machine until it leaves; others are turned away meanwhile (VHOST1).
    fn answer(&self, connection: &Connection<'_>, session: &mut Session<'_>) -> End {
        loop {
            let [speaks, is_changed, others, stops] =
                wait([&connection.socket, &self.changed, &*self.listener(), &self.stop]);
            if stops {
                return End::Stopped;
            }
            if is_changed {
                self.changed.hush();
                session.tell_change();
            }
            if speaks && let Err(end) = session.answer_next() {
                return end;
            }
            // One that leaves is heard first: who connects may be itself again.
            if others && !speaks && self.accept().is_some() {
                tracing::warn!(target: "varve::vhost", socket = %self.path.display(),
                    "a machine was turned away: another one is connected");
            }
        }
    }
}

/// The thread of a door, which ends with this.
struct Serving(Arc<Shared>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.state().has_ended = true;
        self.0.ended.notify_all();
    }
}

/// As many bytes of a name as a guest is given.
fn serial(name: &str) -> [u8; request::SERIAL] {
    let mut serial = [0; request::SERIAL];
    let length = name.len().min(serial.len());
    serial[..length].copy_from_slice(&name.as_bytes()[..length]);
    serial
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VhostDoor({})", self.path.display())
    }
}
