//! A host with a thin pool on a simulated disk, and the model of what each of its volumes may hold: plain arrays.

mod verbs;

use super::watch::{Counts, Watched, count, count_if};
use crate::by_map::{Moves, by_map};
use crate::faults::{loses_nodes, random_faults};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use varve_block::accept_unaligned;
use varve_block::{Clock, Device, Durability, Extent, IoError, KIB, Suspended, Switch, ZeroOptions};
use varve_format::pdata::{Block, BlockRun};
use varve_format::thin::{PART_SIZE, Superblock};
use varve_sim::{
    Client, DiskOptions, FaultBudget, FaultPlan, Holder, Holds, Mix, Oracle, Random, SharedOracle, SimDisk,
    World,
};
use varve_target::Linear;
use varve_target::pdata::{CachePolicy, MetadataOrder};
use varve_target::thin::{
    Backing, Discards, InjectedBug, NewVolume, Origin, Pool, PoolError, PoolFormat, PoolOptions, Trashed,
    Uuid, VolumeFlags, WhenFull, check_pool,
};

const POOL_SIZE_MAX: u64 = 24 << 20;
/// The origin of some of the volumes.
const ORIGIN: Origin = Origin {
    backing: Backing::Snapshot { store: Uuid::from_u128(9), number: 3, created: 5 },
    bytes: 96 * KIB,
};

/// A volume as the model knows it.
struct Known {
    id: u64,
    snapshot_of: Option<u64>,
    oracle: SharedOracle,
    read_only: bool,
}

fn set_size(oracle: &mut Oracle, size: u64) {
    if size < oracle.size() { oracle.cut(size) } else { oracle.grow(size) }
}

/// What was under way when the crash came.
enum Doubt {
    Create(String, Known),
    Remove(String),
    /// The volume, and its new size.
    Resize(String, u64),
    /// The volume, on its way into the trash or out of it.
    Trash(String),
    /// The volume, and what it was to become and was before.
    RollBack(String, Box<RollBack>),
}

struct RollBack {
    source: String,
    before: Oracle,
    /// Changes when it happens.
    mark: u64,
    /// Bytes that it has afterwards.
    bytes: u64,
}

impl RollBack {
    /// What the volume is when it has happened.
    fn apply(&self, oracle: &mut Oracle, source: &Oracle) {
        let mut becomes = source.fork();
        becomes.cut(self.bytes.min(source.size()));
        becomes.grow(self.bytes);
        oracle.restore(&becomes);
    }
}

struct Model {
    /// An empty volume, the root of the family.
    nothing: Oracle,
    /// The origin of volumes; it is never changed.
    origin: Oracle,
    volumes: BTreeMap<String, Known>,
    trashed: BTreeSet<String>,
    doubts: Vec<Doubt>,
    count: u16,
    pool_size: u64,
}

impl Model {
    fn new(nothing: Oracle, origin: Oracle, pool_size: u64) -> Self {
        let (volumes, trashed) = (BTreeMap::new(), BTreeSet::new());
        Self { nothing, origin, volumes, trashed, doubts: Vec::new(), count: 2, pool_size }
    }
}

/// What a history is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A bit of everything.
    Plain,
    /// Disks that fail now and then.
    Faulty,
    /// Volumes whose maps have several leaves, changed here and there, with much to log at a time.
    Wide,
    /// A pool that is nearly full from the start.
    Full,
    /// Volumes and clones of them that are changed in the same places.
    Clones,
    /// Reads that hang in the disk while blocks are freed and used again.
    Stalls,
    /// Writes of nodes of the maps that are lost, or go over other nodes.
    LostNodes,
    /// Volumes that go to the trash, come back, and are given up.
    Trash,
}

impl Kind {
    fn faults(self, random: &mut Random) -> FaultPlan {
        if self == Kind::LostNodes { loses_nodes(100_000) } else { random_faults(0, random) }
    }
}

pub(crate) struct Host {
    world: World,
    disk: SimDisk,
    below: SimDisk,
    options: PoolOptions,
    discards: Discards,
    /// What a history is about.
    pub(crate) kind: Kind,
    counts: &'static Counts,
    /// What goes wrong with the disk now and then, while clients are at work.
    faults: Option<FaultPlan>,
    /// Where the log's ring is.
    ring: Extent,
    /// Whether it goes wrong while the pool is opened, too.
    fails_at_boot: bool,
    /// The disk of this boot with a holder in front of it, if requests are to hang.
    held: RefCell<Option<(Holder, Device)>>,
    stall: u32,
    model: RefCell<Model>,
    /// How clients move bytes by themselves; every other one does.
    pub(crate) moves: Moves,
    clients: Cell<u64>,
}

impl Host {
    /// A host whose sizes and settings follow from `seed`.
    pub(crate) fn new(seed: u64, kind: Kind, bug: Option<InjectedBug>, counts: &'static Counts) -> Host {
        let world = World::new(seed);
        let mut random = world.random();
        let pool_size = *random.pick(match kind {
            Kind::Stalls | Kind::LostNodes => &[1200 * KIB, 1300 * KIB, 1600 * KIB],
            Kind::Wide => &[8000 * KIB, 16_000 * KIB, 16_000 * KIB, 20_000 * KIB],
            Kind::Full => &[1100 * KIB, 1200 * KIB, 1300 * KIB, 1400 * KIB],
            _ => &[1200 * KIB, 2000 * KIB, 4000 * KIB, 8000 * KIB],
        });
        let options = PoolOptions {
            cache_bytes: *random.pick(if kind == Kind::LostNodes { &[0, 0] } else { &[0, 1 << 20] }),
            commit_interval: Duration::from_millis(if kind == Kind::Clones {
                1000
            } else {
                *random.pick(&[1, 5, 1000])
            }),
            metadata: if seed.is_multiple_of(5) {
                MetadataOrder::WriteThrough
            } else {
                MetadataOrder::Logged
            },
            when_full: *random
                .pick(&[WhenFull::Error, WhenFull::Pause { timeout: Duration::from_millis(2) }]),
            flatten_bytes: *random.pick(&[4 * KIB, 20 * KIB, 1 << 20]),
            injected_bug: bug,
            ..PoolOptions::default()
        };
        let nothing = Oracle::new(1, 0);
        let (below, origin) = write_origin(&world, &nothing, &mut random);
        let model = Model::new(nothing, origin, pool_size);
        let discards =
            *random.pick(&[Discards::Keep, Discards::PassDown, Discards::PassDown, Discards::Ignore]);
        // Now and then a request takes so long that whole checkpoints pass by it.
        let stall = *random.pick(&[0, 10_000, 50_000]);
        // Most disks have blocks that are larger than those of the clients.
        let block_size = if random.chance(3, 4) { 4096 } else { 512 };
        let disk = SimDisk::with(DiskOptions { block_size, ..DiskOptions::sized(POOL_SIZE_MAX) });
        let is_faulty =
            matches!(kind, Kind::Faulty | Kind::LostNodes) || kind == Kind::Stalls && random.chance(1, 4);
        let mut host = Host {
            disk,
            below,
            options,
            discards,
            kind,
            counts,
            faults: is_faulty.then(|| kind.faults(&mut random)),
            ring: Extent::new(0, 0),
            held: RefCell::default(),
            fails_at_boot: random.chance(1, 3),
            stall,
            model: RefCell::new(model),
            moves: Moves::Guarded,
            clients: Cell::new(0),
            world,
        };
        let format = PoolFormat {
            block_size: *random.pick(if kind == Kind::Wide {
                &[4 * KIB, 4 * KIB, 16 * KIB, 64 * KIB]
            } else {
                &[4 * KIB, 16 * KIB, 64 * KIB, 64 * KIB]
            }),
            log_bytes: Some(*random.pick(&[32 * KIB, 64 * KIB, 128 * KIB])),
            ..PoolFormat::new(Uuid::from_u128((u128::from(seed) + 1) << 64))
        };
        host.ring = host.format(format);
        host.let_fail(false);
        host
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// Makes the pool. Where its log's ring is.
    fn format(&self, format: PoolFormat) -> Extent {
        let (device, arena) = (self.device(), self.world.arena());
        self.world.run(async { Pool::format(&device, &arena, format).await }).expect("no faults");
        let first = self.disk.peek(Extent::new(0, PART_SIZE));
        let length = Superblock::slot_length(&first, Block::default()).expect("it was made") * PART_SIZE;
        let slot = self.disk.peek(Extent::new(0, length));
        let superblock = Superblock::decode(&slot, Block::default()).expect("it was made");
        BlockRun::new(superblock.ring(), superblock.log_blocks).extent()
    }

    /// `device` for one client.
    fn for_client(&self, device: Device) -> Device {
        let number = self.clients.replace(self.clients.get() + 1);
        let by_itself = number % 2 == 1 || self.moves == Moves::Unguarded;
        if by_itself { by_map(device, &self.world, self.moves) } else { device }
    }

    fn device(&self) -> Device {
        let size = self.model.borrow().pool_size;
        let held = self.held.borrow().as_ref().map(|(_, device)| device.clone());
        let disk = held.unwrap_or_else(|| self.disk.device(&self.world));
        let device = Device::new(Linear::new(vec![(size, disk, 0)]));
        Device::new(Watched { device, counts: self.counts, last: Cell::new(0) })
    }

    /// Repairs the disk, and lets it fail from now on, or not.
    pub(crate) fn let_fail(&self, enabled: bool) {
        let plan = self.faults.filter(|_| enabled).unwrap_or_default();
        let spared = Some(self.ring); // What the last record says may rot unseen.
        self.disk.repair();
        self.disk.reappear();
        self.disk.set_faults(FaultPlan { stall: self.stall, spared, ..plan }, FaultBudget::unlimited());
    }

    pub(crate) fn is_faulty(&self) -> bool {
        self.faults.is_some()
    }

    /// The crash has come. What was not committed may be gone, with the process too: only the pool knew of it.
    pub(crate) fn crashed(&self) {
        let mut model = self.model.borrow_mut();
        for known in model.volumes.values() {
            known.oracle.borrow_mut().crashed();
        }
        for doubt in &mut model.doubts {
            match doubt {
                Doubt::Create(_, known) => known.oracle.borrow_mut().crashed(),
                Doubt::RollBack(_, rollback) => rollback.before.crashed(),
                Doubt::Remove(_) | Doubt::Resize(..) | Doubt::Trash(_) => {}
            }
        }
    }

    fn attach_origin(&self, pool: &Pool) {
        pool.attach_origin(&ORIGIN, &self.below.device(&self.world)).expect("it is what it was");
    }

    /// What a crash left is sound before it is served, and a check writes nothing.
    pub(crate) async fn check_offline(&self) {
        self.let_fail(false);
        self.held.replace(None);
        let (device, arena, clock) = (self.device(), self.world.arena(), self.world.clock());
        let report = check_pool(&device, &arena, &clock).await.expect("a superblock can always be read");
        assert!(report.is_sound(), "{report:#?}");
    }

    /// Reads what a crash left on a disk that has lost nodes, before that is repaired: all of it is right, or an error; and
    /// where a check says that nothing is wrong there is none.
    pub(crate) async fn read_with_nodes_lost(&self) {
        self.disk.set_faults(FaultPlan::default(), FaultBudget::unlimited());
        let (device, arena, clock) = (self.device(), self.world.arena(), self.world.clock());
        let report = check_pool(&device, &arena, &clock).await.expect("a superblock can always be read");
        let opened = Pool::open(device, arena.clone(), clock, self.options).await;
        assert!(opened.is_ok() || !report.is_sound(), "what is sound can be opened: {:?}", opened.err());
        count_if(opened.is_err(), &self.counts.boots_failed);
        let Ok(pool) = opened else { return };
        self.attach_origin(&pool);
        let listed: BTreeMap<u64, u64> =
            pool.list().into_iter().map(|volume| (volume.id, volume.bytes)).collect();
        let clients: Vec<Client> = {
            let model = self.model.borrow();
            let in_doubt = |name: &String| {
                model.doubts.iter().any(|doubt| match doubt {
                    Doubt::Create(..) | Doubt::Trash(_) => false,
                    Doubt::Remove(doubtful) | Doubt::Resize(doubtful, _) | Doubt::RollBack(doubtful, _) => {
                        doubtful == name
                    }
                })
            };
            let known = model.volumes.iter().filter(|(name, _)| !in_doubt(name));
            let client = |(name, known): (&String, &Known)| {
                let size = known.oracle.borrow().size();
                assert_eq!(listed.get(&known.id), Some(&size), "{name} is there, and as large as it was");
                let device = accept_unaligned(pool.volume(known.id).expect("listed"), arena.clone());
                Client::new(device, arena.clone(), Rc::clone(&known.oracle))
            };
            known.map(client).collect()
        };
        for client in clients {
            for (_, piece) in Extent::new(0, client.size()).pieces(16 * KIB) {
                let read = client.read(piece).await;
                let expected = read.is_ok() || !report.is_sound() && read == Err(IoError::Corrupt);
                assert!(expected, "it is right or damaged: {read:?}");
                count_if(read.is_err(), &self.counts.refused);
            }
        }
    }

    /// Opens the pool and resolves what the last crash left in doubt; nothing if the disk has failed meanwhile.
    pub(crate) async fn boot(&self, may_fail: bool) -> Option<Boot<'_>> {
        let may_fail = may_fail && self.fails_at_boot && self.is_faulty();
        self.let_fail(may_fail);
        let held = (self.kind == Kind::Stalls).then(|| Holder::new(self.disk.device(&self.world)));
        self.held.replace(held);
        let (device, arena, clock) = (self.device(), self.world.arena(), self.world.clock());
        let opened = Pool::open(device, arena, clock, self.options).await;
        if may_fail && opened.is_err() {
            count(&self.counts.boots_failed);
            return None;
        }
        self.let_fail(false);
        let pool = opened.expect("a pool can always be opened");
        self.attach_origin(&pool);
        pool.set_discards(self.discards);
        let boot = Boot {
            host: self,
            pool,
            tops: RefCell::default(),
            pairs: RefCell::default(),
            full: Cell::new(false),
            has_shrunk: Cell::new(false),
            ended: Cell::new(false),
        };
        boot.resolve_doubts().await;
        Some(boot)
    }
}

/// A disk with the origin of volumes, durably: written here and there.
fn write_origin(world: &World, nothing: &Oracle, random: &mut Random) -> (SimDisk, Oracle) {
    let below = SimDisk::new(ORIGIN.bytes);
    let mut oracle = nothing.snapshot(2);
    oracle.grow(ORIGIN.bytes);
    let oracle = Rc::new(RefCell::new(oracle));
    let client = Client::new(below.device(world), world.arena(), Rc::clone(&oracle));
    world.run(async {
        for (_, piece) in Extent::new(0, ORIGIN.bytes).pieces(8 * KIB) {
            if random.chance(3, 4) {
                client.write(piece, Durability::Volatile).await.expect("no faults");
            }
        }
        client.flush().await.expect("no faults");
    });
    let written = oracle.borrow().snapshot(2);
    (below, written)
}

/// Reads what is in the disk while the same client frees it and others take its place.
struct Puller {
    client: Client,
    holder: Holder,
    clock: Clock,
    pool: Rc<Pool>,
    faulty: bool,
}

impl Puller {
    fn tolerate(&self, result: Result<(), IoError>) {
        match result {
            Ok(()) | Err(IoError::Gone | IoError::NoSpace | IoError::ReadOnly) => {}
            Err(IoError::Medium | IoError::HostFull | IoError::Corrupt) if self.faulty => {}
            Err(error) => panic!("no faults: {error}"),
        }
    }

    async fn pull_away(self, mut random: Random) {
        let client = &self.client;
        let first = random.below(client.size() / (4 * KIB)) * 4 * KIB;
        let extent = Extent::new(first, (random.between(1, 5) * 4 * KIB).min(client.size() - first));
        self.tolerate(client.write(extent, Durability::Volatile).await);
        self.tolerate(client.flush().await);
        self.holder.hold_next(1, Holds::Reads);
        let pull = async {
            for _ in 0..8 {
                // The read may have no block to read, or not have begun.
                if self.holder.held() > 0 || self.pool.checkpoint().await.is_err() {
                    break;
                }
            }
            self.tolerate(client.discard(extent).await);
            // What is freed may be taken again after a checkpoint.
            let _ = (self.pool.checkpoint().await, self.pool.checkpoint().await);
            for (_, piece) in Extent::new(0, client.size()).pieces(16 * KIB) {
                if piece.intersect(extent).is_none() {
                    self.tolerate(client.discard(piece).await);
                    self.tolerate(client.write(piece, Durability::Volatile).await);
                }
            }
            self.holder.release();
        };
        // A checkpoint that frees what is being read may wait for the read.
        let release = async {
            self.clock.sleep(Duration::from_micros(random.between(2000, 25_000))).await;
            self.holder.release();
        };
        let (read, (), ()) = futures_util::join!(client.read(extent), pull, release);
        self.tolerate(read);
    }
}

/// The host, running.
pub(crate) struct Boot<'a> {
    host: &'a Host,
    pool: Rc<Pool>,
    /// What doors lead to, as in the daemon: for each volume a switch, below it blocks of any size.
    tops: RefCell<BTreeMap<u64, Switch>>,
    /// Volumes and clones that were made of them in this boot.
    pairs: RefCell<Vec<[String; 2]>>,
    /// Whether requests may find that what they are for is gone.
    has_shrunk: Cell<bool>,
    /// Whether a request failed for lack of space.
    full: Cell<bool>,
    /// Something failed half way: what is true now only the next boot can tell.
    pub(crate) ended: Cell<bool>,
}

impl Boot<'_> {
    fn listed(&self) -> BTreeMap<String, u64> {
        let alive = self.pool.list().into_iter().filter(|volume| !volume.flags.has(VolumeFlags::REMOVING));
        alive.map(|volume| (volume.name, volume.id)).collect()
    }

    async fn resolve_doubts(&self) {
        let listed = self.listed();
        let doubts = std::mem::take(&mut self.host.model.borrow_mut().doubts);
        for doubt in doubts {
            match doubt {
                Doubt::Create(name, known) => {
                    if let Some(id) = listed.get(&name) {
                        let known = Known { id: *id, ..known };
                        self.host.model.borrow_mut().volumes.insert(name, known);
                    }
                }
                Doubt::Remove(name) => {
                    if !listed.contains_key(&name) {
                        let mut model = self.host.model.borrow_mut();
                        model.volumes.remove(&name);
                        model.trashed.remove(&name);
                    }
                }
                Doubt::Trash(name) => self.resolve_trash(name),
                Doubt::Resize(name, size) => self.resolve_resize(&name, size),
                Doubt::RollBack(name, rollback) => self.resolve_rollback(&name, &rollback).await,
            }
        }
        let model = self.host.model.borrow();
        for volume in self.pool.list() {
            let Some(known) = model.volumes.get(&volume.name) else { continue };
            assert_eq!(
                known.oracle.borrow().size(),
                volume.bytes,
                "{} has the size that it was given",
                volume.name
            );
            assert_eq!(known.snapshot_of, volume.snapshot_of, "what {} is a snapshot of", volume.name);
            assert_eq!(
                volume.trashed.is_some(),
                model.trashed.contains(&volume.name),
                "POOLTRASH1: {}",
                volume.name
            );
            // A leaf has 126 entries, each of a block at most.
            if volume.mapped_bytes > 126 * self.pool.block_size() {
                count(&self.host.counts.leaves);
            }
        }
        let known: BTreeMap<String, u64> =
            model.volumes.iter().map(|(name, known)| (name.clone(), known.id)).collect();
        assert_eq!(listed, known, "every acknowledged volume exists, and no other");
    }

    fn volume(&self, name: &str) -> Device {
        self.top(name).device()
    }

    fn top(&self, name: &str) -> Switch {
        let id = self.id(name);
        self.tops.borrow_mut().entry(id).or_insert_with(|| Switch::new(self.unaligned(id))).clone()
    }

    fn unaligned(&self, id: u64) -> Device {
        accept_unaligned(self.pool.volume(id).expect("known volumes exist"), self.host.world.arena())
    }

    fn id(&self, name: &str) -> u64 {
        self.host.model.borrow().volumes[name].id
    }

    fn client(&self, name: &str) -> Client {
        let oracle = Rc::clone(&self.host.model.borrow().volumes[name].oracle);
        Client::new(self.host.for_client(self.volume(name)), self.host.world.arena(), oracle)
    }

    async fn content(&self, name: &str) -> Vec<u8> {
        let device = self.volume(name);
        let length = usize::try_from(device.shape().size).expect("small");
        device.read(0, self.host.world.arena().take(length)).await.expect("no faults").to_vec()
    }

    fn names(&self) -> Vec<String> {
        self.host.model.borrow().volumes.keys().cloned().collect()
    }

    /// Reads and checks everything.
    pub(crate) async fn verify(&self) {
        for name in self.names() {
            self.client(&name).verify().await.expect("no faults");
        }
    }

    /// Asserts that the books balance.
    pub(crate) async fn check(&self) {
        let report = self.pool.check().await.expect("no faults");
        assert!(report.errors.is_empty(), "{:#?}", report.errors);
    }

    /// Sets some reads going that hang in the disk, for a while or until others have freed and used what they read.
    fn begin_long_reads(&self, random: &mut Random) {
        let names = self.names();
        let Some(holder) = self.host.held.borrow().as_ref().map(|(holder, _)| holder.clone()) else { return };
        if holder.held() > 0 || names.is_empty() {
            return;
        }
        let faulty = self.host.is_faulty();
        for _ in 0..random.between(1, 5) {
            holder.hold_next(1, Holds::Reads);
            let (client, mut choices) = (self.client(random.pick::<String>(&names)), random.fork());
            let mix = Mix {
                reads: 1,
                writes: 0,
                durable_writes: 0,
                zeros: 0,
                discards: 0,
                flushes: 0,
                length_max: 64 * KIB,
                depth: 1,
                overlaps: 0,
            };
            count(&self.host.counts.hung);
            self.host.world.spawner().spawn(async move {
                match client.step(&mix, &mut choices).await {
                    Ok(()) | Err(IoError::Gone) => {}
                    Err(IoError::Medium | IoError::HostFull | IoError::Corrupt) if faulty => {}
                    Err(error) => panic!("no faults: {error}"),
                }
            });
        }
        if random.chance(1, 2) {
            holder.hold_next(0, Holds::Reads);
            let client = self.client(random.pick::<String>(&names));
            let clock = self.host.world.clock();
            let puller = Puller { client, holder, clock, pool: Rc::clone(&self.pool), faulty };
            self.host.world.spawner().spawn(puller.pull_away(random.fork()));
            return;
        }
        let (clock, while_held) =
            (self.host.world.clock(), Duration::from_micros(random.between(500, 25_000)));
        self.host.world.spawner().spawn(async move {
            clock.sleep(while_held).await;
            holder.release();
        });
    }

    /// One round: clients of some volumes, beside something that happens to volumes.
    pub(crate) async fn round(&self, random: &mut Random) {
        self.begin_long_reads(random);
        if self.host.kind == Kind::Clones && random.chance(3, 4) {
            // Nothing else asks for a commit meanwhile.
            return self.part(self.pick_pair(random), random).await;
        }
        let names = self.names();
        let count = if names.is_empty() { 0 } else { random.below(4) };
        let mut busy: Vec<String> = (0..count).map(|_| random.pick(&names).clone()).collect();
        let pair = self.pick_pair(random);
        busy.extend(pair.iter().flatten().cloned());
        let mut choices = [random.fork(), random.fork(), random.fork(), random.fork(), random.fork()];
        let [first, second, third, fourth, fifth] = &mut choices;
        futures_util::join!(
            self.exercise_one(busy.first(), first),
            self.exercise_one(busy.get(1), second),
            self.exercise_one(busy.get(2), third),
            self.part(pair, fifth),
            self.manage(fourth, &busy),
        );
        // Not while others may be at work.
        if !self.host.is_faulty() && self.host.kind != Kind::Stalls && random.chance(1, 6) {
            self.check().await;
        }
    }

    /// A volume and a clone of it, if there are any.
    fn pick_pair(&self, random: &mut Random) -> Option<[String; 2]> {
        let model = self.host.model.borrow();
        let is_there = |name: &String| model.volumes.get(name).is_some_and(|known| !known.read_only);
        let pairs = self.pairs.borrow();
        let pairs: Vec<_> = pairs.iter().filter(|pair| pair.iter().all(is_there)).collect();
        let wanted = self.host.kind == Kind::Clones || random.chance(2, 3);
        (!pairs.is_empty() && wanted).then(|| (*random.pick(&pairs)).clone())
    }

    /// What a volume and its clone have in common is changed in one and then in the other, within one transaction.
    async fn part(&self, pair: Option<[String; 2]>, random: &mut Random) {
        let Some(pair) = pair else { return };
        let clients = pair.map(|name| self.client(&name));
        let size = clients.iter().map(Client::size).min().expect("two");
        let changes = if self.host.kind == Kind::Clones { 30 } else { 8 };
        for _ in 0..random.between(1, changes) {
            let offset = random.below(size / (4 * KIB)) * 4 * KIB;
            let extent = Extent::new(offset, (random.between(1, 5) * 4 * KIB).min(size - offset));
            let first = random.index(2);
            let changed = match random.below(4) {
                0 => clients[first].zero(extent, ZeroOptions::default()).await,
                1 => clients[first].discard(extent).await,
                _ => clients[first].write(extent, Durability::Volatile).await,
            };
            self.tolerate(Some(changed));
            self.tolerate(Some(clients[1 - first].write(extent, Durability::Volatile).await));
        }
    }

    async fn exercise_one(&self, name: Option<&String>, random: &mut Random) {
        if let Some(name) = name {
            self.exercise(self.client(name), random).await;
        }
    }

    /// A full pool and a read-only volume are no reason to stop.
    fn tolerate(&self, result: Option<Result<(), IoError>>) {
        match result {
            None | Some(Ok(()) | Err(IoError::ReadOnly)) => {}
            Some(Err(IoError::NoSpace)) => count_if(!self.full.replace(true), &self.host.counts.full),
            Some(Err(IoError::Gone)) if self.has_shrunk.get() => {}
            Some(Err(IoError::Medium | IoError::HostFull | IoError::Corrupt | IoError::Gone))
                if self.host.is_faulty() => {}
            Some(Err(error)) => panic!("no faults: {error}"),
        }
    }

    /// Whether `outcome` is an error that may come; then what was done stays in doubt until the next boot.
    fn is_fault<T>(&self, outcome: &Result<T, PoolError>) -> bool {
        let fault = self.host.is_faulty()
            && matches!(
                outcome,
                Err(PoolError::Io(_) | PoolError::NoSpace | PoolError::Corrupt(_) | PoolError::Format(_))
            );
        self.ended.set(self.ended.get() || fault);
        fault
    }

    /// Random requests, several at a time.
    async fn exercise(&self, client: Client, random: &mut Random) {
        if self.host.kind == Kind::Wide && random.chance(1, 2) {
            return self.scatter(client, random).await;
        }
        let mix = Mix {
            depth: usize::try_from(random.between(1, 7)).expect("small"),
            length_max: *random.pick(&[4 * KIB, 16 * KIB, 100 * KIB]),
            zeros: random.below(3),
            discards: random.below(3),
            ..Mix::default()
        };
        let mut under_way = FuturesUnordered::new();
        for _ in 0..random.between(1, 20) {
            let mut choices = random.fork();
            let client = client.clone();
            under_way.push(async move { client.step(&mix, &mut choices).await });
            if under_way.len() == mix.depth {
                self.tolerate(under_way.next().await);
            }
        }
        while let Some(result) = under_way.next().await {
            self.tolerate(Some(result));
        }
    }

    /// Many small changes all over the volume, so that its map has many entries and a commit has many to log.
    async fn scatter(&self, client: Client, random: &mut Random) {
        let mix = Mix {
            reads: 1,
            writes: 30,
            durable_writes: 0,
            zeros: random.below(3),
            discards: random.below(3),
            flushes: 0,
            length_max: *random.pick(&[KIB, 4 * KIB, 8 * KIB]),
            depth: *random.pick(&[12, 150, 400]),
            overlaps: 5,
        };
        let mut under_way = FuturesUnordered::new();
        for _ in 0..random.between(60, 400) {
            let mut choices = random.fork();
            let client = client.clone();
            under_way.push(async move { client.step(&mix, &mut choices).await });
            if under_way.len() == mix.depth {
                self.tolerate(under_way.next().await);
            }
        }
        while let Some(result) = under_way.next().await {
            self.tolerate(Some(result));
        }
        if random.chance(2, 3) {
            self.tolerate(Some(client.flush().await));
        }
    }

    /// Makes a volume, writes here and there, and makes clones of it.
    pub(crate) async fn clone_one(&self, random: &mut Random) {
        self.create(random).await;
        for name in self.names() {
            self.exercise(self.client(&name), random).await;
        }
        for _ in 0..random.between(1, 3) {
            self.snapshot(random).await;
        }
    }

    /// Makes the pool nearly full: there is a volume or two, and they are written as far as there is space.
    pub(crate) async fn overfill(&self, random: &mut Random) {
        while self.names().len() < 2 && !self.ended.get() {
            self.create(random).await;
        }
        for name in self.names() {
            let (client, extent) = (self.client(&name), self.volume(&name).shape().extent());
            for (_, piece) in extent.pieces(16 * KIB) {
                if self.pool.percent() > random.between(85, 100) {
                    return;
                }
                self.tolerate(Some(client.write(piece, Durability::Volatile).await));
            }
        }
    }

    /// Writes until the pool is full, then sees that what must go on goes on.
    pub(crate) async fn fill(&self, random: &mut Random) {
        self.full.set(false);
        for name in self.names() {
            let client = self.client(&name);
            let extent = self.volume(&name).shape().extent();
            for (_, piece) in extent.pieces(32 * KIB) {
                self.tolerate(Some(client.write(piece, Durability::Volatile).await));
                if self.full.get() {
                    break;
                }
            }
        }
        if !self.full.get() {
            return;
        }
        for name in self.names() {
            let client = self.client(&name);
            client.flush().await.expect("a flush works in a full pool");
            let size = self.volume(&name).shape().size;
            let at = random.below(size / (4 * KIB)) * 4 * KIB;
            self.tolerate(Some(client.discard(Extent::new(at, 4 * KIB)).await));
        }
        self.remove(random.pick::<String>(&self.names())).await;
        while self.pool.remove_some(3).await.expect("removals go on in a full pool").volumes > 0 {}
    }
}
