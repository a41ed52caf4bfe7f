//! A mapper in the simulated world that says what a script has it say, and a volume that it maps.

use futures_util::future::{Either, select};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Device, Durability, Extent, IoError, LocalFuture, Notify};
use varve_mapper::Decoder;
use varve_mapper::wire::{self, Message, Numbered, Status, ToEngine, ToMapper, Welcome};
use varve_sim::{Holder, SimDisk, World};
use varve_target::delegate::{Connector, Delegate, DelegateOptions, Link, LinkError, Received};

/// Bytes of the volume, and of both devices.
pub(crate) const SIZE: u64 = 64 << 10;
/// Bytes of a request.
pub(crate) const BLOCK: u64 = 4096;
/// Number of the device that the engine gives, and of the mapper's own.
pub(crate) const BASE: u32 = 0;
pub(crate) const OWN: u32 = 1;

/// What a mapper says.
pub(crate) trait Script {
    /// A message other than the hello, and answers that are held, has come.
    fn hear(&self, mapper: &ScriptedMapper, number: u64, message: &ToMapper);
}

/// Says something to the question with this number.
pub(crate) type Turn = Box<dyn Fn(&ScriptedMapper, u64)>;

/// Has a turn for each question where a range is, in order, and is good at all else.
pub(crate) struct Turns {
    turns: RefCell<VecDeque<Turn>>,
    /// What it says to a trim, if anything.
    pub(crate) trimmed: Cell<Option<Status>>,
}

impl Turns {
    pub(crate) fn new(turns: Vec<Turn>) -> Self {
        Self { turns: RefCell::new(turns.into()), trimmed: Cell::new(Some(Status::Done)) }
    }

    /// Says where one range is.
    pub(crate) fn map(extent: wire::Extent) -> Turn {
        Box::new(move |mapper, number| mapper.map(number, extent))
    }
}

impl Script for Turns {
    fn hear(&self, mapper: &ScriptedMapper, number: u64, message: &ToMapper) {
        match message {
            ToMapper::Map { .. } => {
                let turn = self.turns.borrow_mut().pop_front();
                turn.unwrap_or_else(|| panic!("no turn for {message:?}"))(mapper, number);
            }
            ToMapper::Flush => mapper.say(number, &ToEngine::Flushed(Status::Done)),
            ToMapper::Trim { .. } => {
                let said = self.trimmed.get().map(ToEngine::Trimmed);
                said.iter().for_each(|said| mapper.say(number, said));
            }
            ToMapper::Durable { .. } | ToMapper::Invalidated => {}
            other => panic!("{other:?} is not to be expected"),
        }
    }
}

/// The mapper. It greets each engine that connects.
pub(crate) struct ScriptedMapper {
    welcome: Welcome,
    own: Device,
    decoder: RefCell<Decoder>,
    output: RefCell<Vec<u8>>,
    devices: RefCell<Vec<Device>>,
    /// How often it has died.
    deaths: Cell<u64>,
    /// It cannot be reached.
    pub(crate) is_away: Cell<bool>,
    changed: Notify,
    heard: RefCell<Vec<Numbered<ToMapper>>>,
}

impl ScriptedMapper {
    /// Says something.
    pub(crate) fn say(&self, number: u64, message: &ToEngine) {
        message.encode(number, &mut self.output.borrow_mut());
        self.changed.notify_all();
    }

    /// Says where a range is.
    pub(crate) fn map(&self, number: u64, extent: wire::Extent) {
        self.say(number, &ToEngine::Mapped(vec![extent]));
    }

    /// Loses the connection; the next one is another life.
    pub(crate) fn die(&self) {
        self.deaths.set(self.deaths.get() + 1);
        self.changed.notify_all();
    }

    /// The messages that came, of those that `wanted` takes something of.
    pub(crate) fn heard<T>(&self, wanted: impl Fn(&Numbered<ToMapper>) -> Option<T>) -> Vec<T> {
        self.heard.borrow().iter().filter_map(wanted).collect()
    }

    /// Questions and ranges that it was told are durable.
    pub(crate) fn durable(&self) -> Vec<(u64, Extent)> {
        self.heard(|heard| match heard.message {
            ToMapper::Durable { offset, length } => Some((heard.id, Extent::new(offset, length))),
            _ => None,
        })
    }

    /// Questions of which it was told that an answer does not hold.
    pub(crate) fn failed(&self) -> Vec<u64> {
        self.heard(|heard| matches!(heard.message, ToMapper::Failed { .. }).then_some(heard.id))
    }

    /// Questions where a range is.
    pub(crate) fn questions(&self) -> Vec<u64> {
        self.heard(|heard| matches!(heard.message, ToMapper::Map { .. }).then_some(heard.id))
    }

    /// Questions to free a range.
    pub(crate) fn trims(&self) -> Vec<u64> {
        self.heard(|heard| matches!(heard.message, ToMapper::Trim { .. }).then_some(heard.id))
    }

    /// How often it was asked to make its mapping durable.
    pub(crate) fn flushes(&self) -> usize {
        self.heard(|heard| (heard.message == ToMapper::Flush).then_some(())).len()
    }

    /// What it was told to hold when the engine connected last.
    pub(crate) fn held(&self) -> Vec<wire::Extent> {
        let heard = self.heard.borrow();
        let last = heard.iter().rposition(|heard| matches!(heard.message, ToMapper::Hello(_)));
        let said = heard[last.expect("an engine was there")..].iter();
        let held = said.filter_map(|heard| match &heard.message {
            ToMapper::Held(extents) => Some(extents.clone()),
            _ => None,
        });
        held.flatten().collect()
    }

    fn greet(&self) {
        self.devices.borrow_mut().push(self.own.clone());
        self.say(0, &ToEngine::Device { number: OWN, is_writable: true });
        self.say(0, &ToEngine::Welcome(self.welcome));
    }
}

/// A connection, and in which life of the mapper it was made.
struct ScriptedLink<S>(Rc<ScriptedMapper>, Rc<S>, u64);

impl<S: Script> Link for ScriptedLink<S> {
    fn send(&self, bytes: Vec<u8>) {
        let Self(mapper, script, life) = self;
        if *life != mapper.deaths.get() {
            return;
        }
        mapper.decoder.borrow_mut().push(&bytes);
        let take = || mapper.decoder.borrow_mut().take::<ToMapper>().expect("an engine sends messages");
        while let Some(said) = take() {
            mapper.heard.borrow_mut().push(said.clone());
            match &said.message {
                ToMapper::Hello(_) => mapper.greet(),
                ToMapper::Held(_) => {}
                message => script.hear(mapper, said.id, message),
            }
        }
    }

    fn receive(&self) -> LocalFuture<'_, Result<Received, LinkError>> {
        let Self(mapper, _, life) = self;
        Box::pin(async {
            let is_dead = || *life != mapper.deaths.get();
            mapper.changed.until(|| is_dead() || !mapper.output.borrow().is_empty()).await;
            match is_dead() {
                true => Err(LinkError),
                false => Ok(Received { bytes: mapper.output.take(), devices: mapper.devices.take() }),
            }
        })
    }
}

struct ScriptedConnector<S>(Rc<ScriptedMapper>, Rc<S>);

impl<S: Script + 'static> Connector for ScriptedConnector<S> {
    fn connect(&self) -> LocalFuture<'_, Result<Box<dyn Link>, LinkError>> {
        let Self(mapper, script) = self;
        if mapper.is_away.get() {
            return Box::pin(std::future::ready(Err(LinkError)));
        }
        mapper.decoder.take();
        mapper.output.take();
        let link: Box<dyn Link> =
            Box::new(ScriptedLink(Rc::clone(mapper), Rc::clone(script), mapper.deaths.get()));
        Box::pin(std::future::ready(Ok(link)))
    }
}

/// A volume whose base holds `b`, and whose mapper's device holds `o`.
pub(crate) struct Host<S> {
    pub(crate) world: World,
    pub(crate) own: SimDisk,
    /// Keeps requests to the mapper's device back.
    pub(crate) holder: Holder,
    pub(crate) mapper: Rc<ScriptedMapper>,
    pub(crate) script: Rc<S>,
    pub(crate) delegate: Delegate,
}

impl<S: Script + 'static> Host<S> {
    pub(crate) fn new(script: S, welcome: Welcome) -> Self {
        let world = World::new(1);
        let (base, own) = (SimDisk::new(SIZE), SimDisk::new(SIZE));
        base.poke(0, &[b'b'; SIZE as usize]);
        own.poke(0, &[b'o'; SIZE as usize]);
        let options = DelegateOptions {
            name: "data/vol".to_owned(),
            size: SIZE,
            block_size: 512,
            devices: vec![("data/base".to_owned(), base.device(&world))],
            answer_wait: Duration::from_secs(30),
            entries_max: 20,
        };
        let delegate = Delegate::new(options, &world.clock(), &world.arena());
        let (holder, device) = Holder::new(own.device(&world));
        let mapper = Rc::new(ScriptedMapper {
            welcome,
            own: device,
            decoder: RefCell::default(),
            output: RefCell::default(),
            devices: RefCell::default(),
            deaths: Cell::new(0),
            is_away: Cell::new(false),
            changed: Notify::default(),
            heard: RefCell::default(),
        });
        Self { world, own, holder, mapper, script: Rc::new(script), delegate }
    }

    /// Works on the volume.
    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let connector = ScriptedConnector(Rc::clone(&self.mapper), Rc::clone(&self.script));
        self.world.run(async {
            let run = pin!(self.delegate.run(&connector));
            match select(pin!(work), run).await {
                Either::Left((ended, _)) => ended,
                Either::Right(_) => unreachable!("it runs for ever"),
            }
        })
    }

    fn device(&self) -> Device {
        Device::new(self.delegate.clone())
    }

    /// Writes `count` blocks of `w`.
    pub(crate) async fn write_blocks(&self, offset: u64, count: u64) -> Result<(), IoError> {
        let length = usize::try_from(count * BLOCK).expect("small");
        let data = self.world.arena().copy(&vec![b'w'; length]);
        self.device().write(offset, data, Durability::Volatile).await.map(drop)
    }

    pub(crate) async fn write(&self, offset: u64) -> Result<(), IoError> {
        self.write_blocks(offset, 1).await
    }

    pub(crate) async fn read(&self, offset: u64) -> Vec<u8> {
        let buffer = self.world.arena().take(BLOCK as usize);
        self.device().read(offset, buffer).await.expect("it can be read").to_vec()
    }

    pub(crate) async fn flush(&self) -> Result<(), IoError> {
        self.device().flush().await.map(drop)
    }

    pub(crate) async fn discard(&self, extent: Extent) -> Result<(), IoError> {
        self.device().discard(extent).await.map(drop)
    }

    /// Lets all that is under way go as far as it can.
    pub(crate) async fn settle(&self) {
        self.world.clock().sleep(Duration::from_millis(500)).await;
    }

    /// The connection is lost, and another one is made.
    pub(crate) async fn reconnect(&self) {
        self.mapper.die();
        self.delegate.connected(false).await;
        self.delegate.connected(true).await;
    }
}
