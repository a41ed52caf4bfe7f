//! Clients of the NBD door in the simulated world, on thin volumes and on volumes with snapshots: random requests over
//! several connections that end in any way, a crash at any moment, everything read and compared.

mod remote;

use futures_util::future::join3;
use remote::{Once, Remote};
use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use varve_block::{Device, IoError, KIB, LocalFuture, MIB, Switch, accept_unaligned};
use varve_export::nbd::{Activity, Admission, Budget, Catalog, Door, Export, Limits, Listed, Shutdown};
use varve_nbd::client::Wish;
use varve_sim::{
    Client, CrashAt, CrashKind, DiskOptions, FaultBudget, FaultPlan, Mix, Oracle, Random, SharedOracle,
    SimDisk, World, caught_share, run_seeds, stream_pair, test_name,
};
use varve_target::snapshot::{self, NewSnapshot, SnapshotStore};
use varve_target::thin::{self, NewVolume, Pool, PoolFormat, PoolOptions};

const SIZE: u64 = 192 * KIB;

/// What lies below the door.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Below {
    Thin,
    Snapshots,
}

/// A volume in use.
enum Engine {
    Thin(Rc<Pool>, u64),
    Snapshots(Rc<SnapshotStore>),
}

impl Engine {
    fn device(&self) -> Device {
        match self {
            Engine::Thin(pool, volume) => pool.volume(*volume).expect("it is there"),
            Engine::Snapshots(store) => store.origin(),
        }
    }

    /// Takes a snapshot in the midst of everything; what it holds is not looked at here.
    async fn snapshot(&self, name: String) -> bool {
        match self {
            Engine::Thin(pool, volume) => {
                let Ok(frozen) = pool.freeze(*volume).await else { return false };
                let cloned = frozen.snapshot(&name, true).is_ok();
                drop(frozen);
                cloned && pool.commit().await.is_ok()
            }
            Engine::Snapshots(store) => {
                store.create(&NewSnapshot { name, read_only: true, held: false }).await.is_ok()
            }
        }
    }
}

struct OneExport(Export);

impl Catalog for OneExport {
    fn lookup<'a>(&'a self, _name: &'a str) -> LocalFuture<'a, Option<Export>> {
        Box::pin(async move { Some(self.0.clone()) })
    }
    fn list(&self) -> LocalFuture<'_, Vec<Listed>> {
        Box::pin(async { Vec::new() })
    }
}

/// A door that breaks its word, for a negative control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InjectedBug {
    None,
    /// Flushes end before anything is durable.
    ForgetsFlushes,
}

struct ForgetsFlushes(Device);

impl varve_block::BlockDevice for ForgetsFlushes {
    fn shape(&self) -> varve_block::Shape {
        self.0.shape()
    }
    fn submit(&self, io: varve_block::Checked) -> varve_block::Completion<'_> {
        match io.into_io() {
            varve_block::Io::Flush => varve_block::Completion::done(),
            io => self.0.submit(io),
        }
    }
}

struct Host {
    world: World,
    disks: [SimDisk; 2],
    below: Below,
    injected_bug: InjectedBug,
    faulty: bool,
    /// Bytes that the clients of the door may make it keep.
    budget: u64,
    oracle: SharedOracle,
}

/// Over all histories: connections that ended in order, and in the midst of something; snapshots that were taken.
static ENDED: AtomicU64 = AtomicU64::new(0);
static BROKEN: AtomicU64 = AtomicU64::new(0);
static SNAPSHOTS: AtomicU64 = AtomicU64::new(0);

impl Host {
    fn new(seed: u64, below: Below, faulty: bool, injected_bug: InjectedBug) -> Host {
        let world = World::new(seed);
        let block_size = if seed.is_multiple_of(4) { 512 } else { 4096 };
        let disk = |size| SimDisk::with(DiskOptions { block_size, ..DiskOptions::sized(size) });
        let disks = [disk(if below == Below::Thin { 4 * MIB } else { SIZE }), disk(MIB)];
        let oracle = Rc::new(RefCell::new(Oracle::new(1, SIZE)));
        let budget = [16 * MIB, MIB, 64 * KIB][seed as usize % 3];
        let host = Host { world, disks, below, injected_bug, faulty, budget, oracle };
        host.world.run(host.format());
        host
    }

    fn devices(&self) -> [Device; 2] {
        [self.disks[0].device(&self.world), self.disks[1].device(&self.world)]
    }

    async fn format(&self) {
        let ([first, second], arena) = (self.devices(), self.world.arena());
        match self.below {
            Below::Thin => {
                let format = PoolFormat::new(thin::Uuid::from_u128(7 << 64));
                Pool::format(&first, &arena, format).await.expect("no faults");
                let pool = Pool::open(first, arena, self.world.clock(), PoolOptions::default()).await;
                let new = NewVolume { name: "v".into(), bytes: SIZE, origin: None };
                pool.expect("no faults").create(&new).await.expect("there is space");
            }
            Below::Snapshots => {
                let format = snapshot::FormatOptions::new(snapshot::Uuid::from_u128(7));
                SnapshotStore::format(&second, &arena, format).await.expect("no faults");
            }
        }
    }

    async fn open(&self) -> Engine {
        let ([first, second], arena, clock) = (self.devices(), self.world.arena(), self.world.clock());
        match self.below {
            Below::Thin => {
                let pool = Pool::open(first, arena, clock, PoolOptions::default()).await.expect("no faults");
                let volume = pool.list().into_iter().find(|volume| volume.name == "v").expect("it is there");
                Engine::Thin(pool, volume.id)
            }
            Below::Snapshots => {
                let options = snapshot::StoreOptions::default();
                let store = SnapshotStore::open(first, second, arena, clock, options).await;
                Engine::Snapshots(store.expect("no faults"))
            }
        }
    }

    /// The whole stack as the daemon puts it together, and a door to it.
    fn door(&self, engine: &Engine) -> Rc<Door> {
        let top = Switch::new(accept_unaligned(engine.device(), self.world.arena())).device();
        let device = match self.injected_bug {
            InjectedBug::None => top,
            InjectedBug::ForgetsFlushes => Device::new(ForgetsFlushes(top)),
        };
        Rc::new(Door {
            catalog: Rc::new(OneExport(Export::new("v", device))),
            limits: Limits::default(),
            budget: Budget::new(self.budget),
            admission: Admission::new(64),
            tls: None,
            activity: Activity::default(),
            arena: self.world.arena(),
            clock: self.world.clock(),
            shutdown: Shutdown::new(),
            detachment: Default::default(),
        })
    }

    async fn connect(&self, door: &Rc<Door>, random: &mut Random) -> (Rc<Remote>, Client) {
        let (ours, theirs) = stream_pair(&self.world);
        let served = Once::default();
        let (door, ended) = (Rc::clone(door), served.clone());
        self.world.spawner().spawn(async move {
            // The client's oracle tells how it ended.
            let _ = door.serve(ours).await;
            ended.happen();
        });
        let mut wish = Wish::new("v");
        (wish.extended_headers, wish.structured_replies) = (random.chance(1, 2), random.chance(3, 4));
        let remote = Remote::connect(theirs, self.world.arena(), wish, served).await.expect("it is let in");
        self.world.spawner().spawn(Rc::clone(&remote).run());
        let client = Client::new(remote.device(), self.world.arena(), Rc::clone(&self.oracle));
        (remote, client)
    }

    /// One connection after the other, each used for a while and ended in some way.
    async fn use_door(&self, door: &Rc<Door>, mut random: Random) {
        for _ in 0..random.between(1, 4) {
            let (remote, client) = self.connect(door, &mut random).await;
            let mix = Mix {
                depth: random.index(8) + 1,
                length_max: *random.pick(&[2 * KIB, 16 * KIB, 100 * KIB]),
                ..Mix::default()
            };
            let breaks = random.chance(1, 4);
            let after = Duration::from_micros(random.below(20_000));
            let clock = self.world.clock();
            let cut = async {
                clock.sleep(after).await;
                if breaks {
                    remote.break_off();
                }
            };
            let mut choices = random.fork();
            let (outcome, ()) = futures_util::join!(client.exercise(&mix, 25, &mut choices), cut);
            match outcome {
                Ok(()) => remote.disconnect(),
                Err(error) => {
                    let is_fault = matches!(error, IoError::Medium | IoError::NoSpace);
                    assert!((breaks && error == IoError::Gone) || (self.faulty && is_fault), "{error}");
                    remote.break_off();
                }
            }
            let counter = if outcome.is_ok() { &ENDED } else { &BROKEN };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn take_snapshots(&self, engine: &Engine, boot: u64, mut random: Random) {
        for number in 0..random.below(3) {
            self.world.clock().sleep(Duration::from_micros(random.below(8000))).await;
            if engine.snapshot(format!("s{boot}.{number}")).await {
                SNAPSHOTS.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn set_faults(&self, random: &mut Random) {
        let loud = FaultPlan { latent: 3000, write_error: 4000, flush_error: 4000, ..FaultPlan::default() };
        let plan = match random.below(3) {
            _ if !self.faulty => FaultPlan::default(),
            0 => FaultPlan { flush_loss: 8000, ..loud },
            1 => FaultPlan { no_space: 4000, ..loud },
            _ => loud,
        };
        self.disks.iter().for_each(|disk| disk.set_faults(plan, FaultBudget::unlimited()));
    }

    fn repair(&self) {
        for disk in &self.disks {
            disk.repair();
            disk.set_faults(FaultPlan::default(), FaultBudget::unlimited());
        }
    }

    fn crashed(&self, kind: CrashKind) {
        // What a thin pool has received and not committed is lost with the process too.
        let mut oracle = self.oracle.borrow_mut();
        if self.disks.iter().filter(|disk| disk.take_lost_flush()).count() > 0 {
            oracle.flush_failed();
        }
        match kind {
            CrashKind::Process if self.below == Below::Snapshots => oracle.killed(),
            _ => oracle.crashed(),
        }
    }
}

fn history(seed: u64, below: Below, faulty: bool, injected_bug: InjectedBug) {
    let host = Host::new(seed, below, faulty, injected_bug);
    let mut random = host.world.random();
    for boot in 0..random.between(1, 4) {
        let kind = if random.chance(1, 4) { CrashKind::Process } else { CrashKind::Power };
        let reach = *random.pick(&[50, 200, 600]);
        host.world.schedule(CrashAt::Event(random.between(1, reach)), kind);
        let choices = [random.fork(), random.fork(), random.fork()];
        let ran = host.world.run_until_crash(async {
            let engine = host.open().await;
            host.set_faults(&mut random);
            let door = host.door(&engine);
            let [first, second, third] = choices;
            let snapshots = host.take_snapshots(&engine, boot, third);
            join3(host.use_door(&door, first), host.use_door(&door, second), snapshots).await;
        });
        if !ran.crashed() {
            host.world.crash(CrashKind::Process);
        }
        host.crashed(if ran.crashed() { kind } else { CrashKind::Process });
        host.repair();
        host.world.run(async {
            let engine = host.open().await;
            let door = host.door(&engine);
            let (remote, client) = host.connect(&door, &mut random).await;
            client.verify().await.expect("no faults");
            remote.disconnect();
            remote.ended().await;
            assert_eq!(door.budget.used(), 0, "all is given back");
        });
        host.world.crash(CrashKind::Power);
        host.crashed(CrashKind::Power);
    }
}

fn say(name: &str) {
    let [ended, broken, snapshots] =
        [&ENDED, &BROKEN, &SNAPSHOTS].map(|number| number.load(Ordering::Relaxed));
    let _ = writeln!(
        std::io::stderr(),
        "sim: {name}: {ended} connections ended in order, {broken} broke, {snapshots} snapshots were taken"
    );
    assert!(broken < 100 || ended > broken, "most connections come to an end in order");
}

#[test]
fn what_nbd_clients_write_to_thin_volumes_survives_every_crash() {
    let name = test_name!("what_nbd_clients_write_to_thin_volumes_survives_every_crash");
    run_seeds(name, 600, |seed| history(seed, Below::Thin, false, InjectedBug::None));
    say(name.function);
}

#[test]
fn what_nbd_clients_write_to_volumes_with_snapshots_survives_every_crash() {
    let name = test_name!("what_nbd_clients_write_to_volumes_with_snapshots_survives_every_crash");
    run_seeds(name, 600, |seed| history(seed, Below::Snapshots, false, InjectedBug::None));
    say(name.function);
}

#[test]
fn disks_that_fail_cost_nbd_clients_requests_but_no_content() {
    let name = test_name!("disks_that_fail_cost_nbd_clients_requests_but_no_content");
    run_seeds(name, 600, |seed| {
        let below = if seed.is_multiple_of(2) { Below::Thin } else { Below::Snapshots };
        history(seed, below, true, InjectedBug::None);
    });
    say(name.function);
}

#[test]
fn a_door_that_forgets_flushes_is_noticed() {
    caught_share("a door that forgets flushes", 200, 10, |seed| {
        history(seed, Below::Thin, false, InjectedBug::ForgetsFlushes);
    });
}
