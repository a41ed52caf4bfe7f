//! A mapper in the simulated world: copy on write from a base, in clusters, with a table that it keeps. It answers late and out of
//! order, primes, expires, frees, moves clusters about, and dies.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, LocalBoxFuture, select};
use futures_util::stream::FuturesUnordered;
use varve_block::{Device, Durability, LocalFuture, Notify};
use varve_mapper::Decoder;
use varve_mapper::wire::{
    Access, Extent, Intent, Message, Numbered, Place, Status, ToEngine, ToMapper, Welcome,
};
use varve_sim::{Random, SimDisk, World};
use varve_target::delegate::{Connector, Link, LinkError, Received};

/// Bytes of a cluster.
pub(crate) const CLUSTER: u64 = 16 << 10;
/// Number of the base, which the engine gives.
pub(crate) const BASE: u32 = 0;
/// Number of the mapper's own device.
pub(crate) const OWN: u32 = 1;

/// Where a cluster is that is not in the base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    Own(u64),
    Zero,
}

type Table = BTreeMap<u64, Slot>;

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    bytes: RefCell<Vec<u8>>,
    devices: RefCell<Vec<Device>>,
    changed: Notify,
    is_closed: Cell<bool>,
}

impl Pipe {
    fn close(&self) {
        self.is_closed.set(true);
        self.changed.notify_all();
    }

    fn push(&self, bytes: &[u8]) {
        self.bytes.borrow_mut().extend_from_slice(bytes);
        self.changed.notify_all();
    }

    async fn take(&self) -> Result<Received, LinkError> {
        self.changed.until(|| !self.bytes.borrow().is_empty() || self.is_closed.get()).await;
        match self.is_closed.get() {
            true => Err(LinkError),
            false => Ok(Received { bytes: self.bytes.take(), devices: self.devices.take() }),
        }
    }
}

/// The engine's end, and by the other order the mapper's.
struct End {
    from: Rc<Pipe>,
    to: Rc<Pipe>,
}

impl Link for End {
    fn send(&self, bytes: Vec<u8>) {
        self.to.push(&bytes);
    }

    fn receive(&self) -> LocalFuture<'_, Result<Received, LinkError>> {
        Box::pin(self.from.take())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.from.close();
        self.to.close();
    }
}

/// What of the mapper outlives a crash of the host, and how it behaves.
pub(crate) struct SimMapper {
    durable: RefCell<Table>,
    table: RefCell<Table>,
    /// Clusters that are being moved, and slots they are moved to.
    moving: RefCell<BTreeMap<u64, u64>>,
    slots: u64,
    clusters: u64,
    own: SimDisk,
    waiting: RefCell<VecDeque<End>>,
    changed: Notify,
    /// Of a thousand messages, after how many the connection is lost.
    pub(crate) deaths: u64,
    /// How long an answer takes at most.
    pub(crate) delay_max: Duration,
    /// How often it moved a cluster, died, and copied.
    pub(crate) counters: Cell<[u64; 3]>,
}

/// Makes connections to a [`SimMapper`].
pub(crate) struct SimConnector(pub(crate) Rc<SimMapper>);

impl Connector for SimConnector {
    fn connect(&self) -> LocalFuture<'_, Result<Box<dyn Link>, LinkError>> {
        let (one, other) = (Rc::new(Pipe::default()), Rc::new(Pipe::default()));
        self.0.waiting.borrow_mut().push_back(End { from: Rc::clone(&one), to: Rc::clone(&other) });
        self.0.changed.notify_all();
        let link: Box<dyn Link> = Box::new(End { from: other, to: one });
        Box::pin(std::future::ready(Ok(link)))
    }
}

impl SimMapper {
    pub(crate) fn new(size: u64, own: SimDisk, deaths: u64, delay_max: Duration) -> Self {
        Self {
            durable: RefCell::default(),
            table: RefCell::default(),
            moving: RefCell::default(),
            slots: own.options().size / CLUSTER,
            clusters: size / CLUSTER,
            own,
            waiting: RefCell::default(),
            changed: Notify::default(),
            deaths,
            delay_max,
            counters: Cell::default(),
        }
    }

    /// The host has crashed.
    pub(crate) fn crash(&self) {
        self.waiting.take();
        self.moving.take();
    }

    fn count(&self, which: usize) {
        let mut counters = self.counters.get();
        counters[which] += 1;
        self.counters.set(counters);
    }

    /// Serves engines, one after the other; never ends.
    pub(crate) async fn run(&self, world: &World) {
        let random = RefCell::new(world.random());
        loop {
            let end = self.changed.next(|| self.waiting.borrow_mut().pop_front()).await;
            let _ = self.serve(world, &end, &random).await;
            self.count(1);
            self.moving.take();
            self.changed.notify_all();
        }
    }

    async fn serve(&self, world: &World, end: &End, random: &RefCell<Random>) -> Result<(), LinkError> {
        let mut decoder = Decoder::default();
        self.greet(world, end, &mut decoder).await?;
        let invalidated = Invalidated::default();
        let mut tasks: FuturesUnordered<LocalBoxFuture<'_, ()>> = FuturesUnordered::new();
        loop {
            while let Some(message) = decoder.take::<ToMapper>().expect("an engine sends messages") {
                if random.borrow_mut().below(1000) < self.deaths {
                    return Err(LinkError);
                }
                if message.message == ToMapper::Invalidated {
                    invalidated.add(message.id);
                    continue;
                }
                if random.borrow_mut().chance(1, 8) {
                    tasks.push(Box::pin(self.move_a_cluster(world, end, random, &invalidated)));
                }
                tasks.push(Box::pin(self.answer(world, end, random, message)));
            }
            let received = Box::pin(end.from.take());
            if tasks.is_empty() {
                decoder.push(&received.await?.bytes);
                continue;
            }
            match select(received, tasks.next()).await {
                Either::Left((received, _)) => decoder.push(&received?.bytes),
                Either::Right(_) => {}
            }
        }
    }

    async fn greet(&self, world: &World, end: &End, decoder: &mut Decoder) -> Result<(), LinkError> {
        let (mut left, mut hello) = (0, None);
        self.table.replace(self.durable.borrow().clone());
        while hello.is_none() || left > 0 {
            let Some(Numbered { message, .. }) =
                decoder.take::<ToMapper>().expect("an engine sends messages")
            else {
                decoder.push(&end.from.take().await?.bytes);
                continue;
            };
            match message {
                ToMapper::Hello(said) => {
                    left = said.held as usize;
                    hello = Some(said);
                }
                ToMapper::Held(extents) => {
                    left -= extents.len();
                    extents.iter().for_each(|extent| self.adopt(extent));
                }
                other => panic!("{other:?} before the welcome"),
            }
        }
        end.to.devices.borrow_mut().push(self.own.device(world));
        self.send(end, 0, &ToEngine::Device { number: OWN, is_writable: true });
        let trim_unit = u32::try_from(CLUSTER).expect("small");
        let welcome = Welcome { is_persistent: true, keeps_answers: true, trim_unit };
        self.send(end, 0, &ToEngine::Welcome(welcome));
        Ok(())
    }

    fn adopt(&self, held: &Extent) {
        for cluster in held.offset / CLUSTER..(held.offset + held.length).div_ceil(CLUSTER) {
            let slot = match held.place {
                Place::Zero => Slot::Zero,
                Place::Data { device: OWN, offset } => {
                    let start = offset + cluster * CLUSTER - held.offset;
                    assert_eq!(start % CLUSTER, 0, "a cluster lies in a slot");
                    Slot::Own(start / CLUSTER)
                }
                other => panic!("{other:?} cannot be held"),
            };
            self.table.borrow_mut().insert(cluster, slot);
        }
    }

    fn send(&self, end: &End, id: u64, message: &ToEngine) {
        let mut bytes = Vec::new();
        message.encode(id, &mut bytes);
        end.to.push(&bytes);
    }

    async fn pause(&self, world: &World, random: &RefCell<Random>) {
        let nanos = random.borrow_mut().below(self.delay_max.as_nanos() as u64 + 1);
        world.clock().sleep(Duration::from_nanos(nanos)).await;
    }

    async fn answer(&self, world: &World, end: &End, random: &RefCell<Random>, asked: Numbered<ToMapper>) {
        self.pause(world, random).await;
        let id = asked.id;
        match asked.message {
            ToMapper::Map { offset, length, intent } => {
                self.still(offset, length).await;
                let extents = self.map(offset, length, intent, &mut random.borrow_mut());
                self.send(end, id, &ToEngine::Mapped(extents));
            }
            ToMapper::Flush => {
                let table = self.table.borrow().clone();
                self.durable.replace(table);
                self.send(end, id, &ToEngine::Flushed(Status::Done));
            }
            ToMapper::Trim { offset, length } => {
                self.still(offset, length).await;
                self.trim(offset, length);
                self.send(end, id, &ToEngine::Trimmed(Status::Done));
            }
            ToMapper::Failed { offset, .. } => {
                let was = self.durable.borrow().get(&(offset / CLUSTER)).copied();
                let mut table = self.table.borrow_mut();
                match was {
                    Some(slot) => table.insert(offset / CLUSTER, slot),
                    None => table.remove(&(offset / CLUSTER)),
                };
            }
            ToMapper::Durable { .. } => {}
            other => panic!("{other:?} after the welcome"),
        }
    }

    /// Waits until no cluster of the range is being moved.
    async fn still(&self, offset: u64, length: u64) {
        let clusters = offset / CLUSTER..(offset + length).div_ceil(CLUSTER);
        self.changed.until(|| self.moving.borrow().range(clusters.clone()).next().is_none()).await;
    }

    fn map(&self, offset: u64, length: u64, intent: Intent, random: &mut Random) -> Vec<Extent> {
        let last = (offset + length).div_ceil(CLUSTER).min(self.clusters);
        let more = if random.chance(1, 3) { random.below(3) } else { 0 };
        let is_still = |cluster: &u64| *cluster < last || !self.moving.borrow().contains_key(cluster);
        let clusters = (offset / CLUSTER..(last + more).min(self.clusters)).take_while(is_still);
        let extents: Vec<Extent> =
            clusters.filter_map(|cluster| self.map_cluster(cluster, cluster < last, intent)).collect();
        let (once, expiry_ms) = match random.below(8) {
            0 => (true, 0),
            1 => (false, 1),
            _ => (false, 0),
        };
        // What is made durable later is sent again, also if it is for one request alone.
        let expiry = |extent: &Extent| if extent.access == Access::READ { expiry_ms } else { 0 };
        extents.into_iter().map(|extent| Extent { once, expiry_ms: expiry(&extent), ..extent }).collect()
    }

    fn map_cluster(&self, cluster: u64, is_asked: bool, intent: Intent) -> Option<Extent> {
        let at = cluster * CLUSTER;
        let slot = self.table.borrow().get(&cluster).copied();
        let from = match (slot, intent) {
            (Some(Slot::Own(slot)), _) => {
                return Some(Extent::new(at, CLUSTER, Place::Data { device: OWN, offset: slot * CLUSTER }));
            }
            (Some(Slot::Zero), Intent::Read) => return Some(Extent::new(at, CLUSTER, Place::Zero)),
            (None, Intent::Read) => {
                let place = Place::Data { device: BASE, offset: at };
                return Some(Extent { access: Access::READ, ..Extent::new(at, CLUSTER, place) });
            }
            (_, Intent::Write) if !is_asked => return None,
            (Some(Slot::Zero), Intent::Write) => None,
            (None, Intent::Write) => Some((BASE, at)),
        };
        let free = self.free_slot()?;
        self.count(2);
        self.table.borrow_mut().insert(cluster, Slot::Own(free));
        let place = Place::Copy { device: OWN, offset: free * CLUSTER, from };
        Some(Extent { notify: true, ..Extent::new(at, CLUSTER, place) })
    }

    /// A slot that nothing refers to: neither now nor after a crash.
    fn free_slot(&self) -> Option<u64> {
        let (table, durable) = (self.table.borrow(), self.durable.borrow());
        let used = |slot: &Slot| if let Slot::Own(slot) = slot { Some(*slot) } else { None };
        let mut taken: BTreeSet<u64> = table.values().chain(durable.values()).filter_map(used).collect();
        taken.extend(self.moving.borrow().values());
        (0..self.slots).find(|slot| !taken.contains(slot))
    }

    fn trim(&self, offset: u64, length: u64) {
        assert!((offset | length).is_multiple_of(CLUSTER), "whole clusters are trimmed");
        for cluster in offset / CLUSTER..(offset + length) / CLUSTER {
            self.table.borrow_mut().insert(cluster, Slot::Zero);
        }
    }

    /// Moves a cluster that is durable to another slot, itself.
    async fn move_a_cluster(
        &self,
        world: &World,
        end: &End,
        random: &RefCell<Random>,
        invalidated: &Invalidated,
    ) {
        let cluster = random.borrow_mut().below(self.clusters);
        let slot = self.table.borrow().get(&cluster).copied();
        let durable = self.durable.borrow().get(&cluster).copied();
        let (Some(Slot::Own(old)), true) = (slot, slot == durable) else { return };
        if self.moving.borrow().contains_key(&cluster) {
            return;
        }
        let Some(new) = self.free_slot() else { return };
        self.moving.borrow_mut().insert(cluster, new);
        let number = invalidated.next();
        let invalidate =
            ToEngine::Invalidate { offset: cluster * CLUSTER, length: CLUSTER, access: Access::BOTH };
        self.send(end, number, &invalidate);
        invalidated.wait(number).await;
        self.pause(world, random).await;
        let device = self.own.device(world);
        let buffer = world.arena().take(CLUSTER as usize);
        let data = device.read(old * CLUSTER, buffer).await.expect("no faults here");
        let written = device.write(new * CLUSTER, data.freeze(), Durability::Durable).await;
        written.expect("no faults here");
        self.table.borrow_mut().insert(cluster, Slot::Own(new));
        self.durable.borrow_mut().insert(cluster, Slot::Own(new));
        self.moving.borrow_mut().remove(&cluster);
        self.changed.notify_all();
        self.count(0);
    }
}

/// Invalidations that the engine has acknowledged.
#[derive(Default)]
struct Invalidated {
    numbers: RefCell<BTreeSet<u64>>,
    last: Cell<u64>,
    changed: Notify,
}

impl Invalidated {
    fn next(&self) -> u64 {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    fn add(&self, number: u64) {
        self.numbers.borrow_mut().insert(number);
        self.changed.notify_all();
    }

    async fn wait(&self, number: u64) {
        self.changed.until(|| self.numbers.borrow_mut().remove(&number)).await;
    }
}
