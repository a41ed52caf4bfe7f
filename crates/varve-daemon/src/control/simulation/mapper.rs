//! A program in the simulated world that maps volumes: each has one device, and every byte lies at the same place there.
//!
//! It keeps nothing, so it can come and go. What it answers is cut as it likes, and some of it holds for a moment only.

use super::host::Host;
use crate::world::{FileLink, LinkEnd, WithFiles};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use varve_block::{LocalFuture, Notify};
use varve_mapper::Decoder;
use varve_mapper::wire::{
    Access, Extent, Intent, Message, Numbered, Place, Status, ToEngine, ToMapper, Welcome,
};
use varve_os::Peer;
use varve_sim::Random;

/// Where mappers listen.
pub(super) const MAPPERS: &str = "/mappers/";
/// Bytes of an answer, in units of these, at most eight of them.
const UNIT: u64 = 16 << 10;

/// Which mappers cannot be reached, for all connections.
#[derive(Default)]
pub(super) struct Mappers {
    gone: RefCell<BTreeSet<PathBuf>>,
    changed: Notify,
}

impl Mappers {
    /// The program at `path` ends, or is started again.
    pub(super) fn set_gone(&self, path: &Path, is_gone: bool) {
        match is_gone {
            true => self.gone.borrow_mut().insert(path.to_owned()),
            false => self.gone.borrow_mut().remove(path),
        };
        self.changed.notify_all();
    }

    /// Whether nobody listens at `path`.
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
                assert_eq!(hello.devices.len(), 1, "{hello:?}");
                assert!(hello.devices[0].is_writable && hello.devices[0].size >= hello.size, "{hello:?}");
                self.hello.set(Some((hello.size, hello.held as usize)));
            }
            ToMapper::Held(extents) => {
                let (size, left) = self.hello.get().expect("the hello comes first");
                self.hello.set(Some((size, left - extents.len())));
                extents.iter().for_each(|extent| assert_eq!(extent.place, place(extent.offset)));
            }
            ToMapper::Map { offset, length, intent } => self.map(asked.id, offset, length, intent),
            ToMapper::Flush => self.tell(asked.id, &ToEngine::Flushed(Status::Done)),
            ToMapper::Invalidated => {}
            other => panic!("{other:?} is for mappers that copy or free"),
        }
        if !self.is_welcomed.get() && self.hello.get().is_some_and(|(_, left)| left == 0) {
            self.is_welcomed.set(true);
            let welcome = Welcome { is_persistent: true, keeps_answers: true, trim_unit: 0 };
            self.tell(0, &ToEngine::Welcome(welcome));
        }
    }

    fn map(&self, id: u64, offset: u64, length: u64, intent: Intent) {
        let (size, _) = self.hello.get().expect("the hello comes first");
        let mut random = self.random.borrow_mut();
        let (mut at, end) = (offset / UNIT * UNIT, (offset + length).next_multiple_of(UNIT).min(size));
        let mut extents = Vec::new();
        while at < end {
            let length = (random.between(1, 9) * UNIT).min(end - at);
            let mut extent = Extent::new(at, length, place(at));
            if intent == Intent::Read && random.chance(1, 4) {
                extent.access = Access::READ;
            }
            match random.below(6) {
                0 => extent.once = true,
                1 => extent.expiry_ms = 1,
                _ => {}
            }
            extents.push(extent);
            at += length;
        }
        self.tell(id, &ToEngine::Mapped(extents));
        if random.chance(1, 8) {
            self.last_number.set(self.last_number.get() + 1);
            let length = (random.between(1, 5) * UNIT).min(size);
            self.tell(
                self.last_number.get(),
                &ToEngine::Invalidate { offset: 0, length, access: Access::BOTH },
            );
        }
    }
}

/// Where a byte lies.
fn place(offset: u64) -> Place {
    Place::Data { device: 0, offset }
}

impl FileLink for MapperLink {
    fn peer(&self) -> Peer {
        Peer { process: 1, user: 0 }
    }

    fn send(&self, bytes: Vec<u8>) -> LocalFuture<'_, Result<(), LinkEnd>> {
        Box::pin(async move {
            self.host.delay().await;
            if self.host.mappers.is_gone(&self.path) {
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
