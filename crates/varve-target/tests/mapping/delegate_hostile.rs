//! A mapper that says anything: the volume answers every request, reaches nothing but what it may, and does not panic.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Device, Durability, Extent, IoError, LocalFuture, ZeroOptions};
use varve_mapper::Decoder;
use varve_mapper::wire::{
    self, Access, BODY_LENGTH_MAX, EXTENTS_MAX, Message, Place, Status, ToEngine, ToMapper, Welcome,
};
use varve_sim::{Random, SimDisk, World, run_seeds, test_name};
use varve_target::delegate::{Connector, Delegate, DelegateOptions, Link, LinkError, Received};

const SIZE: u64 = 256 << 10;

/// Answers every message with something.
struct Hostile {
    world: Rc<World>,
    random: Rc<RefCell<Random>>,
    decoder: RefCell<Decoder>,
    output: RefCell<Vec<u8>>,
    own: SimDisk,
    notify: varve_block::Notify,
}

impl Hostile {
    fn number(&self) -> u64 {
        let mut random = self.random.borrow_mut();
        match random.below(6) {
            0 => u64::MAX - random.below(3),
            1 => random.below(SIZE * 2),
            2 => 0,
            _ => random.below(SIZE / 512) * 512,
        }
    }

    fn extent(&self) -> wire::Extent {
        let (offset, length) = (self.number(), self.number());
        let mut random = self.random.borrow_mut();
        let device = *random.pick(&[0, 1, 1, 1, 2, 7, u32::MAX]);
        let access = *random.pick(&[Access::READ, Access::WRITE, Access::BOTH]);
        let (kind, once, notify) = (random.below(4), random.chance(1, 4), random.chance(1, 4));
        let expiry_ms = u32::try_from(random.below(3)).expect("small");
        drop(random);
        let at = self.number();
        let place = match kind {
            0 => Place::Data { device, offset: at },
            1 => Place::Zero,
            2 => Place::Error,
            _ => Place::Copy {
                device,
                offset: at,
                from: (!at.is_multiple_of(3)).then_some((device, self.number())),
            },
        };
        wire::Extent { offset, length, place, access, once, notify, expiry_ms }
    }

    fn say(&self, id: u64) {
        let choice = self.random.borrow_mut().below(60);
        let mut output = Vec::new();
        let count = self.random.borrow_mut().below(if choice == 0 { EXTENTS_MAX as u64 } else { 5 });
        match choice {
            0..30 => ToEngine::Mapped((0..count).map(|_| self.extent()).collect()).encode(id, &mut output),
            30..38 => ToEngine::Flushed(Status::Done).encode(id, &mut output),
            38..44 => ToEngine::Trimmed(Status::Done).encode(id, &mut output),
            44..52 => {
                let (offset, length) = (self.number(), self.number());
                ToEngine::Invalidate { offset, length, access: Access::BOTH }.encode(id, &mut output);
            }
            52 => ToEngine::Welcome(Welcome::default()).encode(id, &mut output),
            53 => ToEngine::Device { number: 3, is_writable: true }.encode(id, &mut output),
            54 => output.extend((0..40).map(|_| self.random.borrow_mut().below(256) as u8)),
            55 => output.extend([69, 0, 0, 0, 255, 255, 255, 255].repeat(3)),
            _ => {}
        }
        assert!(output.len() <= BODY_LENGTH_MAX + 16);
        self.output.borrow_mut().extend(output);
    }
}

impl Link for Hostile {
    fn send(&self, bytes: Vec<u8>) {
        self.decoder.borrow_mut().push(&bytes);
        while let Some(message) =
            self.decoder.borrow_mut().take::<ToMapper>().expect("an engine sends messages")
        {
            if let ToMapper::Hello(_) = message.message {
                let mut output = Vec::new();
                ToEngine::Device { number: 1, is_writable: true }.encode(0, &mut output);
                let trim_unit = *self.random.borrow_mut().pick(&[0, 1, 4096, 1 << 31]);
                let is_persistent = self.random.borrow_mut().chance(1, 2);
                ToEngine::Welcome(Welcome { is_persistent, keeps_answers: true, trim_unit })
                    .encode(0, &mut output);
                self.output.borrow_mut().extend(output);
            }
            let ids = [message.id, message.id, message.id, 0, 1];
            let count = self.random.borrow_mut().below(4);
            for _ in 0..count {
                let id = *self.random.borrow_mut().pick(&ids);
                self.say(id);
            }
        }
        self.notify.notify_all();
    }

    fn receive(&self) -> LocalFuture<'_, Result<Received, LinkError>> {
        Box::pin(async {
            self.notify.until(|| !self.output.borrow().is_empty()).await;
            self.world.clock().sleep(Duration::from_micros(10)).await;
            let devices = vec![self.own.device(&self.world)];
            Ok(Received { bytes: self.output.take(), devices })
        })
    }
}

struct HostileConnector(Rc<World>, Rc<RefCell<Random>>, SimDisk);

impl Connector for HostileConnector {
    fn connect(&self) -> LocalFuture<'_, Result<Box<dyn Link>, LinkError>> {
        let link: Box<dyn Link> = Box::new(Hostile {
            world: Rc::clone(&self.0),
            random: Rc::clone(&self.1),
            decoder: RefCell::default(),
            output: RefCell::default(),
            own: self.2.clone(),
            notify: varve_block::Notify::default(),
        });
        Box::pin(std::future::ready(Ok(link)))
    }
}

fn history(seed: u64) {
    let world = Rc::new(World::new(seed));
    let random = Rc::new(RefCell::new(world.random()));
    let (base, own) = (SimDisk::new(SIZE / 2), SimDisk::new(SIZE));
    let base_device = varve_block::read_only(base.device(&world));
    let options = DelegateOptions {
        name: "data/vol".to_owned(),
        size: SIZE,
        block_size: 512,
        devices: vec![("data/base".to_owned(), base_device)],
        answer_wait: Duration::from_millis(50),
        entries_max: 20,
    };
    let delegate = Delegate::new(options, &world.clock(), &world.arena());
    let connector = HostileConnector(Rc::clone(&world), Rc::clone(&random), own);
    let device = Device::new(delegate.clone());
    let requests = async {
        for _ in 0..200 {
            let (offset, length) = {
                let mut random = random.borrow_mut();
                let offset = random.below(SIZE / 512) * 512;
                (offset, (random.between(1, 64) * 512).min(SIZE - offset))
            };
            let buffer = world.arena().take(usize::try_from(length).expect("small"));
            let choice = random.borrow_mut().below(6);
            let outcome = match choice {
                0 | 1 => device.read(offset, buffer).await,
                2 => device.write(offset, buffer.freeze(), Durability::Volatile).await,
                3 => device.zero(Extent::new(offset, length), ZeroOptions::default()).await,
                4 => device.discard(Extent::new(offset, length)).await,
                _ => device.flush().await,
            };
            if let Err(error) = outcome {
                assert!(matches!(error, IoError::Medium | IoError::Unsupported), "{error:?}");
            }
        }
    };
    world.run(async {
        let run = std::pin::pin!(delegate.run(&connector));
        futures_util::future::select(std::pin::pin!(requests), run).await;
    });
    assert!(delegate.status().entries <= 20 + 2 * EXTENTS_MAX + 64, "REMAP3: {:?}", delegate.status());
    assert_eq!(base.counters().writes, 0, "DELEGATE1: what may not be written is not");
}

#[test]
fn whatever_a_mapper_says_every_request_is_answered() {
    run_seeds(test_name!("whatever_a_mapper_says_every_request_is_answered"), 1000, history);
}

/// Primes every block of the volume again and again, each in another place.
struct Flood {
    world: Rc<World>,
    own: SimDisk,
    sent: std::cell::Cell<u64>,
}

impl Link for Flood {
    fn send(&self, _bytes: Vec<u8>) {}

    fn receive(&self) -> LocalFuture<'_, Result<Received, LinkError>> {
        let turn = self.sent.get();
        self.sent.set(turn + 1);
        let mut bytes = Vec::new();
        match turn {
            0 => {
                ToEngine::Device { number: 1, is_writable: true }.encode(0, &mut bytes);
                let welcome = Welcome { is_persistent: true, ..Welcome::default() };
                ToEngine::Welcome(welcome).encode(0, &mut bytes);
            }
            1..50 => {
                let place = |block: u64| Place::Data { device: 1, offset: (block * 7 + turn) % 512 * 512 };
                let extents = (0..512).map(|block| wire::Extent::new(block * 512, 512, place(block)));
                ToEngine::Mapped(extents.collect()).encode(0, &mut bytes);
            }
            _ => return Box::pin(std::future::pending()),
        }
        let devices = vec![self.own.device(&self.world)];
        Box::pin(std::future::ready(Ok(Received { bytes, devices })))
    }
}

struct FloodConnector(Rc<World>, SimDisk);

impl Connector for FloodConnector {
    fn connect(&self) -> LocalFuture<'_, Result<Box<dyn Link>, LinkError>> {
        let sent = std::cell::Cell::new(0);
        let link = Flood { world: Rc::clone(&self.0), own: self.1.clone(), sent };
        let link: Box<dyn Link> = Box::new(link);
        Box::pin(std::future::ready(Ok(link)))
    }
}

#[test]
fn a_mapper_that_primes_without_end_takes_no_more_memory() {
    let world = Rc::new(World::new(1));
    let options = DelegateOptions {
        name: "data/vol".to_owned(),
        size: SIZE,
        block_size: 512,
        devices: Vec::new(),
        answer_wait: Duration::from_secs(1),
        entries_max: 20,
    };
    let delegate = Delegate::new(options, &world.clock(), &world.arena());
    let connector = FloodConnector(Rc::clone(&world), SimDisk::new(SIZE));
    world.run(async {
        let run = std::pin::pin!(delegate.run(&connector));
        let wait = world.clock().sleep(Duration::from_millis(10));
        futures_util::future::select(wait, run).await;
    });
    let status = delegate.status();
    assert!(status.is_connected && (1..=22).contains(&status.entries), "REMAP3: {status:?}");
}

/// The mapper is never there.
struct Away;

impl Connector for Away {
    fn connect(&self) -> LocalFuture<'_, Result<Box<dyn Link>, LinkError>> {
        Box::pin(std::future::ready(Err(LinkError)))
    }
}

#[test]
fn requests_that_wait_for_a_mapper_that_is_away_fail_at_once_when_told_to() {
    let world = World::new(1);
    let options = DelegateOptions {
        name: "data/vol".to_owned(),
        size: SIZE,
        block_size: 512,
        devices: Vec::new(),
        answer_wait: Duration::from_secs(1000),
        entries_max: 20,
    };
    let delegate = Delegate::new(options, &world.clock(), &world.arena());
    let device = Device::new(delegate.clone());
    let waited = world.run(async {
        let read = async {
            let outcome = device.read(0, world.arena().take(512)).await;
            assert_eq!(outcome.err(), Some(IoError::Medium), "DELEGATE7");
            world.clock().now()
        };
        let told = async {
            world.clock().sleep(Duration::from_secs(7)).await;
            delegate.let_fail(true);
        };
        let work = futures_util::future::join(read, told);
        let run = std::pin::pin!(delegate.run(&Away));
        match futures_util::future::select(std::pin::pin!(work), run).await {
            futures_util::future::Either::Left(((ended, ()), _)) => ended,
            futures_util::future::Either::Right(_) => unreachable!("it runs for ever"),
        }
    });
    let waited = waited.since(varve_block::Moment::default());
    assert!((Duration::from_secs(7)..Duration::from_secs(8)).contains(&waited), "{waited:?}");
    delegate.let_fail(false);
    assert_eq!(delegate.status().timeouts, 1);
}
