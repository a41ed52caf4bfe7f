//! Which exports there are, and what is counted for each.

use super::{DirtyBitmap, Shutdown};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use varve_block::{Access, Clock, Device, Latencies, LocalFuture, Moment, Timed};
use varve_nbd::server::{Listed, Offer};
use varve_nbd::{BlockSizes, Command, ExportFlags};

/// Where the door finds its exports.
pub trait Catalog {
    /// The export that answers to `name`, with a device that can be used on this thread. An export alone behind
    /// its socket answers to the empty name too.
    fn lookup<'a>(&'a self, name: &'a str) -> LocalFuture<'a, Option<Export>>;
    /// All exports that may be listed to any client.
    fn list(&self) -> LocalFuture<'_, Vec<Listed>>;
}

/// One export.
#[derive(Clone)]
pub struct Export {
    /// What is served; blocks of one byte if clients may send any request.
    pub device: Device,
    /// Its own name.
    pub name: String,
    /// A line for users; may be empty.
    pub description: String,
    /// Whether changes are refused although the device would take them.
    pub read_only: bool,
    /// Whether clients may assume that several connections see one device. True wherever every connection of the export leads to
    /// the same volume.
    pub multi_conn: bool,
    /// What was changed since a state of before, if clients may ask.
    pub dirty: Option<Arc<DirtyBitmap>>,
    /// Ends the connections of this export.
    pub shutdown: Shutdown,
    /// What its connections did.
    pub counters: Rc<Counters>,
}

impl Export {
    /// An export of `device` that is writable if the device is, with counters of its own.
    pub fn new(name: impl Into<String>, device: Device) -> Self {
        Self {
            device,
            name: name.into(),
            description: String::new(),
            read_only: false,
            multi_conn: true,
            dirty: None,
            shutdown: Shutdown::new(),
            counters: Rc::default(),
        }
    }

    /// What a client is offered.
    pub(super) fn offer(&self) -> Offer {
        let shape = self.device.shape();
        let read_only = self.read_only || shape.access == Access::ReadOnly;
        let changes = ExportFlags::FUA.with(ExportFlags::WRITE_ZEROES).with(ExportFlags::FAST_ZERO);
        let flags = ExportFlags::FLUSH
            .with(ExportFlags::CACHE)
            .with_if(read_only, ExportFlags::READ_ONLY)
            .with_if(!read_only, changes)
            .with_if(!read_only && shape.discard, ExportFlags::TRIM)
            .with_if(self.multi_conn, ExportFlags::MULTI_CONN);
        let default = BlockSizes::default();
        let block_sizes = BlockSizes {
            minimum: shape.block_size,
            preferred: default.preferred.max(shape.optimal_size).min(default.maximum),
            maximum: default.maximum,
        };
        let (name, description) = (self.name.clone(), self.description.clone());
        let changed_since = self.dirty.as_ref().map(|dirty| dirty.since().to_owned());
        Offer { size: shape.size, flags, block_sizes, name, description, changed_since }
    }
}

/// What the connections of one export did. Plain cells: an export is served by one thread.
#[derive(Default, Debug)]
pub struct Counters {
    /// Reads that succeeded.
    pub reads: Cell<u64>,
    /// Bytes that they brought.
    pub read_bytes: Cell<u64>,
    /// Writes that succeeded, zeroes included.
    pub writes: Cell<u64>,
    /// Bytes that they stored.
    pub written_bytes: Cell<u64>,
    /// Flushes that succeeded.
    pub flushes: Cell<u64>,
    /// Trims that succeeded.
    pub discards: Cell<u64>,
    /// Other requests that succeeded.
    pub others: Cell<u64>,
    /// Requests that failed or were refused.
    pub errors: Cell<u64>,
    /// How the device does.
    pub device: DeviceCounters,
    /// Connections now open.
    pub connections: Cell<u64>,
    /// Connections ever opened.
    pub connections_total: Cell<u64>,
    /// The other ends of the connections now open, by the number of the connection.
    clients: RefCell<BTreeMap<u64, String>>,
}

impl Counters {
    pub(super) fn add(cell: &Cell<u64>, amount: u64) {
        cell.set(cell.get().wrapping_add(amount));
    }

    /// The other ends of the connections now open.
    pub fn clients(&self) -> Vec<String> {
        self.clients.borrow().values().cloned().collect()
    }

    /// A request of a client goes to the device.
    pub(super) fn begin<'c>(&'c self, clock: &Clock) -> UnderWay<'c> {
        Self::add(&self.device.in_flight, 1);
        UnderWay { counters: self, begun: clock.recent() }
    }

    pub(super) fn open(self: &Rc<Self>, client: String) -> OpenConnection {
        Self::add(&self.connections, 1);
        Self::add(&self.connections_total, 1);
        let number = self.connections_total.get();
        self.clients.borrow_mut().insert(number, client);
        OpenConnection { counters: Rc::clone(self), number }
    }
}

/// What the device of an export does with requests.
#[derive(Default, Debug)]
pub struct DeviceCounters {
    /// Those that it has not answered yet.
    pub in_flight: Cell<u64>,
    /// How long it took to answer those that it has answered.
    pub latencies: RefCell<Latencies>,
}

/// Counts a request as long as it is on its way.
pub(super) struct UnderWay<'c> {
    counters: &'c Counters,
    begun: Moment,
}

impl UnderWay<'_> {
    /// It is answered.
    pub(super) fn end(self, command: Command, clock: &Clock) {
        let kind = match command {
            Command::Read => Timed::Read,
            Command::Write | Command::WriteZeroes => Timed::Write,
            Command::Flush => Timed::Flush,
            _ => return,
        };
        self.counters.device.latencies.borrow_mut().record(kind, self.begun, clock.now());
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let in_flight = &self.counters.device.in_flight;
        in_flight.set(in_flight.get() - 1);
    }
}

/// Counts a connection as long as it is open.
pub(super) struct OpenConnection {
    counters: Rc<Counters>,
    number: u64,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.counters.clients.borrow_mut().remove(&self.number);
        self.counters.connections.set(self.counters.connections.get() - 1);
    }
}
