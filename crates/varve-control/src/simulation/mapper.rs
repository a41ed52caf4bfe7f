//! A program in the simulated world that maps a volume to the devices that it is given: every byte to the same place of one device;
//! with two of them first to that of the base, and after a write to that of the other device, into which it is copied.
//!
//! It comes and goes. What it answers is cut as it likes, and some of it holds for a moment only. What it says of copies it keeps
//! when it is flushed.

use super::host::Host;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use varve_block::host::Peer;
use varve_block::{LocalFuture, Notify};
use varve_mapper::Decoder;
use varve_mapper::wire::{
    Access, Extent, GivenDevice, Intent, Message, Numbered, Place, Status, ToEngine, ToMapper, Welcome,
};
use varve_sim::Random;
use varve_volume::world::{FileLink, LinkEnd, WithFiles};

/// Where mappers listen.
pub(super) const MAPPERS: &str = "/mappers/";
/// Bytes of a unit: an extent of an answer has at most eight.
const UNIT: u64 = 16 << 10;

/// Units that are in the second device.
type Copied = BTreeSet<u64>;

/// The mappers of the host, for all connections.
#[derive(Default)]
pub(crate) struct Mappers {
    /// Those that cannot be reached.
    gone: RefCell<BTreeSet<PathBuf>>,
    /// What each has made durable.
    durable: RefCell<BTreeMap<PathBuf, Copied>>,
    /// Whether connections break now and then.
    are_lost: Cell<bool>,
    changed: Notify,
}

impl Mappers {
    /// Connections break now and then from now on, or no more: a daemon that stops waits for no mapper.
    pub(super) fn lose_connections(&self, are_lost: bool) {
        self.are_lost.set(are_lost);
    }

    /// The program at `path` ends, or is started again.
    pub(super) fn set_gone(&self, path: &Path, is_gone: bool) {
        match is_gone {
            true => self.gone.borrow_mut().insert(path.to_owned()),
            false => self.gone.borrow_mut().remove(path),
        };
        self.changed.notify_all();
    }

    /// Whether no program listens at `path`.
    pub(super) fn is_gone(&self, path: &Path) -> bool {
        self.gone.borrow().contains(path)
    }
}

/// A connection to a mapper.
pub(super) struct MapperLink {
    host: Rc<Host>,
    path: PathBuf,
    random: RefCell<Random>,
    decoder: RefCell<Decoder>,
    /// Bytes of the volume, and held answers that are still to come, once the engine has said so.
    hello: Cell<Option<(u64, usize)>>,
    has_two_devices: Cell<bool>,
    copied: RefCell<Copied>,
    is_welcomed: Cell<bool>,
    output: RefCell<Vec<u8>>,
    last_number: Cell<u64>,
}

impl MapperLink {
    /// A connection to the program at `path`.
    pub(super) fn new(host: &Rc<Host>, path: &Path, random: Random) -> Self {
        Self {
            host: Rc::clone(host),
            path: path.to_owned(),
            random: RefCell::new(random),
            decoder: RefCell::default(),
            hello: Cell::new(None),
            has_two_devices: Cell::new(false),
            copied: RefCell::new(host.mappers.durable.borrow().get(path).cloned().unwrap_or_default()),
            is_welcomed: Cell::new(false),
            output: RefCell::default(),
            last_number: Cell::new(0),
        }
    }

    fn tell(&self, id: u64, message: &ToEngine) {
        message.encode(id, &mut self.output.borrow_mut());
    }

    fn hear(&self, asked: Numbered<ToMapper>) {
        match asked.message {
            ToMapper::Hello(hello) => {
                let is_fit = |device: &GivenDevice| device.is_writable && device.size >= hello.size;
                assert!((1..=2).contains(&hello.devices.len()), "{hello:?}");
                assert!(hello.devices.iter().all(is_fit), "{hello:?}");
                self.has_two_devices.set(hello.devices.len() == 2);
                self.hello.set(Some((hello.size, hello.held as usize)));
            }
            ToMapper::Held(extents) => {
                let (size, left) = self.hello.get().expect("the hello comes first");
                self.hello.set(Some((size, left - extents.len())));
                extents.iter().for_each(|extent| self.adopt(extent));
            }
            ToMapper::Map { offset, length, intent } => self.map(asked.id, offset, length, intent),
            ToMapper::Flush => {
                let copied = self.copied.borrow().clone();
                self.host.mappers.durable.borrow_mut().insert(self.path.clone(), copied);
                self.tell(asked.id, &ToEngine::Flushed(Status::Done));
            }
            ToMapper::Failed { offset, length } => {
                let failed = units(offset, length);
                self.copied.borrow_mut().retain(|unit| !failed.contains(unit) || self.is_durable(*unit));
            }
            ToMapper::Invalidated | ToMapper::Durable { .. } => {}
            other => panic!("{other:?} is for mappers that free"),
        }
        if !self.is_welcomed.get() && self.hello.get().is_some_and(|(_, left)| left == 0) {
            self.is_welcomed.set(true);
            let welcome = Welcome { is_persistent: true, keeps_answers: true, trim_unit: 0 };
            self.tell(0, &ToEngine::Welcome(welcome));
        }
    }

    /// Where the bytes from `offset` on lie. What is about to be written is in the second device from now on.
    fn place(&self, offset: u64, intent: Intent) -> Place {
        let is_copied = self.copied.borrow().contains(&(offset / UNIT));
        let device = u32::from(self.has_two_devices.get());
        if is_copied || !self.has_two_devices.get() {
            return Place::Data { device, offset };
        }
        if intent == Intent::Read {
            return Place::Data { device: 0, offset };
        }
        self.copied.borrow_mut().insert(offset / UNIT);
        Place::Copy { device, offset, from: Some((0, offset)) }
    }

    /// What an engine relies on though it was not flushed.
    fn adopt(&self, held: &Extent) {
        let device = u32::from(self.has_two_devices.get());
        assert_eq!(held.place, Place::Data { device, offset: held.offset }, "{held:?}");
        if self.has_two_devices.get() {
            self.copied.borrow_mut().extend(units(held.offset, held.length));
        }
    }

    fn map(&self, id: u64, offset: u64, length: u64, intent: Intent) {
        let (size, _) = self.hello.get().expect("the hello comes first");
        let mut random = self.random.borrow_mut();
        let (mut at, end) = (offset / UNIT * UNIT, (offset + length).next_multiple_of(UNIT).min(size));
        let mut extents = Vec::new();
        while at < end {
            let most = if self.has_two_devices.get() { 1 } else { random.between(1, 9) };
            let length = (most * UNIT).min(end - at);
            extents.push(self.extent(at, length, intent, &mut random));
            at += length;
        }
        self.tell(id, &ToEngine::Mapped(extents));
        let unit = random.below(size / UNIT);
        // What is not durable is held: the engine is not to forget it.
        if random.chance(1, 8) && (!self.copied.borrow().contains(&unit) || self.is_durable(unit)) {
            self.last_number.set(self.last_number.get() + 1);
            let (offset, access) = (unit * UNIT, Access::BOTH);
            self.tell(self.last_number.get(), &ToEngine::Invalidate { offset, length: UNIT, access });
        }
    }

    fn extent(&self, at: u64, length: u64, intent: Intent, random: &mut Random) -> Extent {
        let mut extent = Extent::new(at, length, self.place(at, intent));
        let is_base = self.has_two_devices.get() && matches!(extent.place, Place::Data { device: 0, .. });
        if is_base || intent == Intent::Read && random.chance(1, 4) {
            extent.access = Access::READ;
        }
        extent.notify = matches!(extent.place, Place::Copy { .. });
        if extent.access == Access::READ || !self.has_two_devices.get() {
            match random.below(6) {
                0 => extent.once = true,
                1 => extent.expiry_ms = 1,
                _ => {}
            }
        }
        extent
    }

    fn is_durable(&self, unit: u64) -> bool {
        let durable = self.host.mappers.durable.borrow();
        durable.get(&self.path).is_some_and(|durable| durable.contains(&unit))
    }
}

/// The units of a range.
fn units(offset: u64, length: u64) -> Range<u64> {
    offset / UNIT..(offset + length).div_ceil(UNIT)
}

impl FileLink for MapperLink {
    fn peer(&self) -> Peer {
        Peer { process: 1, user: 0 }
    }

    fn send(&self, bytes: Vec<u8>) -> LocalFuture<'_, Result<(), LinkEnd>> {
        Box::pin(async move {
            self.host.delay().await;
            let is_lost = self.host.mappers.are_lost.get() && self.random.borrow_mut().chance(1, 200);
            if is_lost || self.host.mappers.is_gone(&self.path) {
                return Err(LinkEnd::Lost);
            }
            self.decoder.borrow_mut().push(&bytes);
            loop {
                let next = self.decoder.borrow_mut().take().expect("an engine sends messages");
                let Some(message) = next else { break };
                self.hear(message);
            }
            self.host.mappers.changed.notify_all();
            Ok(())
        })
    }

    fn receive(&self) -> LocalFuture<'_, Result<WithFiles, LinkEnd>> {
        Box::pin(async {
            let mappers = &self.host.mappers;
            let is_gone = || mappers.is_gone(&self.path);
            mappers.changed.until(|| is_gone() || !self.output.borrow().is_empty()).await;
            match is_gone() {
                true => Err(LinkEnd::Lost),
                false => Ok((self.output.take(), Vec::new())),
            }
        })
    }
}
