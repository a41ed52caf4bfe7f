//! A copy that fails while the same range is asked for again: what the mapper answered before it heard of that is not used.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Device, Durability, Extent, IoError, LocalFuture, Notify};
use varve_mapper::Decoder;
use varve_mapper::wire::{self, Intent, Message, Place, ToEngine, ToMapper, Welcome};
use varve_sim::{FaultBudget, FaultPlan, SimDisk, World};
use varve_target::delegate::{Connector, Delegate, DelegateOptions, Link, LinkError, Received};

const SIZE: u64 = 64 << 10;
const BLOCK: u64 = 4096;
/// Number of the device that the engine gives, and of the mapper's own.
const BASE: u32 = 0;
const OWN: u32 = 1;

/// Lets the first write copy two blocks to its own device. What is asked for while that copy is under way it answers before it
/// hears that the copy has failed; the answer arrives behind that.
struct Mapper {
    /// What it answers to that question.
    late: Place,
    own: Device,
    decoder: RefCell<Decoder>,
    output: RefCell<Vec<u8>>,
    changed: Notify,
    first: Cell<Option<u64>>,
    second: Cell<Option<u64>>,
    /// Questions whose copies have failed.
    failed: RefCell<Vec<u64>>,
}

impl Mapper {
    fn new(late: Place, own: Device) -> Rc<Self> {
        Rc::new(Self {
            late,
            own,
            decoder: RefCell::default(),
            output: RefCell::default(),
            changed: Notify::default(),
            first: Cell::default(),
            second: Cell::default(),
            failed: RefCell::default(),
        })
    }

    fn copy() -> Place {
        Place::Copy { device: OWN, offset: 0, from: Some((BASE, 0)) }
    }

    fn say(&self, number: u64, message: &ToEngine) {
        message.encode(number, &mut self.output.borrow_mut());
    }

    /// Both blocks lie there.
    fn map(&self, number: u64, place: Place) {
        self.say(number, &ToEngine::Mapped(vec![wire::Extent::new(0, 2 * BLOCK, place)]));
    }

    fn hear(&self, number: u64, message: &ToMapper) {
        match message {
            ToMapper::Hello(_) => {
                self.say(0, &ToEngine::Device { number: OWN, is_writable: true });
                let welcome = Welcome { is_persistent: true, ..Welcome::default() };
                self.say(0, &ToEngine::Welcome(welcome));
            }
            ToMapper::Map { .. } if self.first.get().is_none() => self.first.set(Some(number)),
            ToMapper::Map { .. } if self.second.get().is_none() => {
                self.second.set(Some(number));
                self.map(self.first.get().expect("it was asked before"), Self::copy());
            }
            ToMapper::Map { intent: Intent::Read, .. } => {
                let place = Place::Data { device: BASE, offset: 0 };
                let access = wire::Access::READ;
                let extent = wire::Extent { access, ..wire::Extent::new(0, 2 * BLOCK, place) };
                self.say(number, &ToEngine::Mapped(vec![extent]));
            }
            ToMapper::Map { intent: Intent::Write, .. } => self.map(number, Self::copy()),
            ToMapper::Failed { .. } => {
                if self.failed.borrow().is_empty() {
                    self.map(self.second.get().expect("it was asked before"), self.late);
                }
                self.failed.borrow_mut().push(number);
            }
            other => panic!("{other:?} is not to be expected"),
        }
    }
}

struct MapperLink(Rc<Mapper>);

impl Link for MapperLink {
    fn send(&self, bytes: Vec<u8>) {
        self.0.decoder.borrow_mut().push(&bytes);
        let take = || self.0.decoder.borrow_mut().take::<ToMapper>().expect("an engine sends messages");
        while let Some(said) = take() {
            self.0.hear(said.id, &said.message);
        }
        self.0.changed.notify_all();
    }

    fn receive(&self) -> LocalFuture<'_, Result<Received, LinkError>> {
        Box::pin(async {
            self.0.changed.until(|| !self.0.output.borrow().is_empty()).await;
            Ok(Received { bytes: self.0.output.take(), devices: vec![self.0.own.clone()] })
        })
    }
}

struct MapperConnector(Rc<Mapper>);

impl Connector for MapperConnector {
    fn connect(&self) -> LocalFuture<'_, Result<Box<dyn Link>, LinkError>> {
        let link: Box<dyn Link> = Box::new(MapperLink(Rc::clone(&self.0)));
        Box::pin(std::future::ready(Ok(link)))
    }
}

/// A volume whose base holds `b`, and whose mapper's device holds `o`; one write fails there.
struct Host {
    world: World,
    own: SimDisk,
    mapper: Rc<Mapper>,
    delegate: Delegate,
}

impl Host {
    fn new(late: Place) -> Self {
        let world = World::new(1);
        let (base, own) = (SimDisk::new(SIZE), SimDisk::new(SIZE));
        base.poke(0, &[b'b'; SIZE as usize]);
        own.poke(0, &[b'o'; SIZE as usize]);
        own.set_faults(FaultPlan { write_error: 1_000_000, ..FaultPlan::default() }, FaultBudget::new(1, 1));
        let options = DelegateOptions {
            name: "data/vol".to_owned(),
            size: SIZE,
            block_size: 512,
            devices: vec![("data/base".to_owned(), base.device(&world))],
            answer_wait: Duration::from_secs(30),
            entries_max: 20,
        };
        let delegate = Delegate::new(options, &world.clock(), &world.arena());
        let mapper = Mapper::new(late, own.device(&world));
        Self { world, own, mapper, delegate }
    }

    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let connector = MapperConnector(Rc::clone(&self.mapper));
        self.world.run(async {
            let run = std::pin::pin!(self.delegate.run(&connector));
            match futures_util::future::select(std::pin::pin!(work), run).await {
                futures_util::future::Either::Left((ended, _)) => ended,
                futures_util::future::Either::Right(_) => unreachable!("it runs for ever"),
            }
        })
    }

    async fn write(&self, offset: u64) -> Result<(), IoError> {
        let data = self.world.arena().copy(&[b'w'; BLOCK as usize]);
        Device::new(self.delegate.clone()).write(offset, data, Durability::Volatile).await.map(drop)
    }

    async fn read(&self, offset: u64) -> Vec<u8> {
        let buffer = self.world.arena().take(BLOCK as usize);
        Device::new(self.delegate.clone()).read(offset, buffer).await.expect("it can be read").to_vec()
    }
}

#[test]
fn a_read_is_not_led_to_where_a_copy_has_failed_by_an_answer_that_was_given_before() {
    let host = Host::new(Place::Data { device: OWN, offset: 0 });
    let (written, read) =
        host.run(async { futures_util::future::join(host.write(BLOCK), host.read(0)).await });
    assert_eq!(written, Err(IoError::Medium));
    assert_eq!(*host.mapper.failed.borrow(), [host.mapper.first.get().expect("it was asked")], "DELEGATE2");
    assert!(read.iter().all(|byte| *byte == b'b'), "DELEGATE2: what its base has, not what lay there before");
}

#[test]
fn a_copy_that_was_answered_before_another_one_failed_is_given_back_and_asked_for_again() {
    let host = Host::new(Mapper::copy());
    let (first, second, read) = host.run(async {
        let (first, second) = futures_util::future::join(host.write(BLOCK), host.write(0)).await;
        (first, second, host.read(0).await)
    });
    assert_eq!((first, second), (Err(IoError::Medium), Ok(())));
    let asked = [&host.mapper.first, &host.mapper.second].map(|number| number.get().expect("it was asked"));
    assert_eq!(*host.mapper.failed.borrow(), asked, "DELEGATE2: the mapper hears that neither copy holds");
    let copied = host.own.peek(Extent::new(BLOCK, BLOCK));
    assert!(copied.iter().all(|byte| *byte == b'b'), "DELEGATE2: it was copied anew");
    assert_eq!(read, [b'w'; BLOCK as usize]);
}
