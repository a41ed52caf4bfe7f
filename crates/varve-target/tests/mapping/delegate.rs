//! Volumes whose mapping a program decides, in the simulated world: the program is slow, moves things, dies and comes back, and the
//! power fails.

mod mapper;

use mapper::{CLUSTER, SimConnector, SimMapper};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Device, IoError};
use varve_sim::{
    Client, CrashAt, CrashKind, DiskOptions, Mix, Oracle, Random, SharedOracle, SimDisk, World, caught_share,
    run_seeds, test_name,
};
use varve_target::delegate::{Delegate, DelegateOptions, InjectedBug};

const SIZE: u64 = 8 * CLUSTER;

struct Host {
    world: World,
    base: SimDisk,
    mapper: Rc<SimMapper>,
    oracle: SharedOracle,
    bug: Option<InjectedBug>,
}

impl Host {
    fn new(seed: u64, deaths: u64, bug: Option<InjectedBug>) -> Self {
        let world = World::new(seed);
        let mut random = world.random();
        let mut disk = |size| {
            let latency_max = Duration::from_micros(*random.pick(&[50, 400, 4000]));
            SimDisk::with(DiskOptions { latency_max, ..DiskOptions::sized(size) })
        };
        let (base, own) = (disk(SIZE), disk(3 * SIZE));
        let delay_max = Duration::from_micros(*random.pick(&[0, 100, 2000]));
        let mapper = Rc::new(SimMapper::new(SIZE, own, deaths, delay_max));
        Self { world, base, mapper, oracle: Rc::new(RefCell::new(Oracle::new(1, SIZE))), bug }
    }

    /// Gives the base its content.
    async fn fill(&self, random: &mut Random) {
        let device = self.base.device(&self.world);
        let client = Client::new(device, self.world.arena(), Rc::clone(&self.oracle));
        client.exercise(&Mix::default(), 40, random).await.expect("a good disk");
        client.flush().await.expect("a good disk");
    }

    /// Works on the volume for a while.
    async fn boot(&self, count: u64, random: &mut Random) -> Result<(), IoError> {
        let options = DelegateOptions {
            name: "data/vol".to_owned(),
            size: SIZE,
            block_size: 512,
            devices: vec![("data/base".to_owned(), self.base.device(&self.world))],
            answer_wait: Duration::from_secs(30),
            entries_max: *random.pick(&[2, 6, 1000]),
        };
        let delegate = Delegate::with_bug(options, &self.world.clock(), &self.world.arena(), self.bug);
        let client = Client::new(Device::new(delegate.clone()), self.world.arena(), Rc::clone(&self.oracle));
        let connector = SimConnector(Rc::clone(&self.mapper));
        let mix = Mix { overlaps: 50, depth: 8, length_max: 40 << 10, ..Mix::default() };
        let work = async {
            client.verify().await?;
            client.exercise(&mix, count, random).await?;
            client.verify().await
        };
        let serving = futures_util::future::join(delegate.run(&connector), self.mapper.run(&self.world));
        let (work, serving) = (std::pin::pin!(work), std::pin::pin!(serving));
        match futures_util::future::select(work, serving).await {
            futures_util::future::Either::Left((worked, _)) => worked,
            futures_util::future::Either::Right(_) => unreachable!("they never end"),
        }
    }
}

fn history(seed: u64, deaths: u64, bug: Option<InjectedBug>) -> [u64; 3] {
    let host = Host::new(seed, deaths, bug);
    let mut random = host.world.random();
    host.world.run(host.fill(&mut random));
    for _ in 0..random.between(1, 3) {
        let spread = *random.pick(&[300, 3000]);
        host.world.schedule(CrashAt::Event(random.between(1, spread)), CrashKind::Power);
        let mut choices = random.fork();
        let ran = host.world.run_until_crash(host.boot(150, &mut choices));
        host.world.disarm();
        if !ran.crashed() {
            host.world.crash(CrashKind::Power);
        }
        host.mapper.crash();
        host.oracle.borrow_mut().crashed();
    }
    host.world.run(async { host.boot(100, &mut random).await.expect("nothing fails") });
    host.mapper.counters.get()
}

fn histories(name: varve_sim::TestName, deaths: u64) {
    let seen = std::sync::Mutex::new([0; 3]);
    run_seeds(name, 1000, |seed| {
        let counted = history(seed, deaths, None);
        let mut seen = seen.lock().expect("no seed panicked");
        seen.iter_mut().zip(counted).for_each(|(sum, count)| *sum += count);
    });
    let [moved, died, copied] = seen.into_inner().expect("no seed panicked");
    println!("sim: clusters moved: {moved}, copied: {copied}, deaths of the mapper: {died}");
    assert!(moved > 0 && copied > 0 && (died > 0) == (deaths > 0), "each of these happens");
}

#[test]
fn a_delegated_volume_survives_every_crash() {
    histories(test_name!("a_delegated_volume_survives_every_crash"), 0);
}

#[test]
fn nothing_is_lost_when_the_mapper_dies_and_comes_back() {
    histories(test_name!("nothing_is_lost_when_the_mapper_dies_and_comes_back"), 40);
}

/// A copy lands while a trim of its range waits, the mapper dies before the trim, and the power fails after a flush.
#[test]
fn a_write_that_is_acknowledged_before_a_trim_is_durable_after_a_flush() {
    history(1902, 40, None);
}

fn noticed(bug: InjectedBug, deaths: u64, percent_min: u64) {
    caught_share(&format!("{bug:?}"), 200, percent_min, |seed| {
        history(seed, deaths, Some(bug));
    });
}

#[test]
fn a_mapping_that_is_durable_before_its_data_is_noticed() {
    noticed(InjectedBug::FlushMappingFirst, 0, 3);
}

#[test]
fn an_invalidation_that_is_acknowledged_at_once_is_noticed() {
    noticed(InjectedBug::AcknowledgeAtOnce, 0, 3);
}

#[test]
fn a_mapper_that_is_told_nothing_when_it_comes_back_is_noticed() {
    noticed(InjectedBug::ForgetHeld, 40, 3);
}

#[test]
fn an_answer_that_is_shared_before_it_is_copied_is_noticed() {
    noticed(InjectedBug::ShareEarly, 0, 3);
}
