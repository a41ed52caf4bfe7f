//! A host with an origin, its snapshots and their store on two simulated disks, and the model of what each may hold.

mod verbs;

use super::stalls::{Held, Stalls, WrittenNames};
use crate::by_map::{Moves, by_map};
use crate::faults::{loses_nodes, random_faults};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_block::{
    Device, Durability, Extent, IoError, KIB, Shown, Switch, ZeroOptions, accept_unaligned,
    accept_unaligned_shown,
};
use varve_sim::{
    Client, CrashKind, DiskOptions, FaultBudget, FaultPlan, Mix, Oracle, Random, RollbackToken, SharedOracle,
    SimDisk, World,
};
use varve_target::Linear;
use varve_target::pdata::CachePolicy;
use varve_target::snapshot::{
    FormatOptions, Frozen, FullPolicy, InjectedBug, MetadataOrder, NewSnapshot, SnapshotStore, StoreError,
    StoreOptions, Uuid, check_store,
};

/// What a history is about.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A bit of everything.
    Plain,
    /// Disks that fail now and then.
    Faulty,
    /// Many removals, so that much is handed to older snapshots and space is used again.
    Removals,
    /// Many rollbacks.
    Rollbacks(&'static Rollbacks),
    /// Requests that hang in a disk across checkpoints.
    Stalls(&'static Stalls),
    /// Writes of nodes of the maps that are lost, or go over other nodes.
    LostNodes,
    /// More snapshots than the store has room for.
    Overfull(&'static Refusals),
}

/// How many snapshots were refused for want of room, over all histories.
pub(crate) struct Refusals(AtomicU64);

impl Refusals {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

const ORIGIN_SIZE_MAX: u64 = 320 * KIB;
const STORE_SIZE_MAX: u64 = 2048 * KIB;
/// More than the nodes that one record of the log may change.
const NODES_MAX: u64 = 256 * KIB;

/// A snapshot as the model knows it.
pub(crate) struct Known {
    pub(crate) id: u64,
    pub(crate) oracle: SharedOracle,
    pub(crate) held: bool,
    pub(crate) read_only: bool,
}

/// What was under way when the crash came.
enum Doubt {
    Create(String, SharedOracle, NewSnapshot),
    Remove(String),
    /// A rollback was beginning.
    Rollback(RollbackToken),
    /// It was when the crash came: the origin as it is if it has begun, and if not.
    RolledBack {
        done: Box<Oracle>,
        undone: Box<Oracle>,
    },
    Flags(String),
    /// From one name to another.
    Rename(String, String),
}

/// What is known across crashes.
struct Model {
    origin: SharedOracle,
    snapshots: BTreeMap<String, Known>,
    doubts: Vec<Doubt>,
    volumes: u16,
    store_size: u64,
}

impl Model {
    fn rename(&mut self, from: &str, to: &str) {
        let known = self.snapshots.remove(from).expect("a known snapshot is renamed");
        assert!(self.snapshots.insert(to.to_owned(), known).is_none(), "no other one has its name");
    }
}

/// What happened in rollbacks, over all histories.
pub(crate) struct Rollbacks {
    begun: AtomicU64,
    batches: AtomicU64,
    ended: AtomicU64,
    /// Boots that found one under way.
    resumed: AtomicU64,
}

impl Rollbacks {
    pub(crate) const fn new() -> Self {
        Self {
            begun: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            resumed: AtomicU64::new(0),
        }
    }

    /// How many were begun, batches, how many ended, boots that found one under way.
    pub(crate) fn now(&self) -> [u64; 4] {
        [&self.begun, &self.batches, &self.ended, &self.resumed].map(|number| number.load(Ordering::Relaxed))
    }
}

fn faults_of(kind: Kind, faulty: bool, random: &mut Random) -> Option<FaultPlan> {
    match kind {
        Kind::LostNodes => Some(loses_nodes(250_000)),
        _ => faulty.then(|| random_faults(2000, random)),
    }
}

fn count(number: &AtomicU64) {
    number.fetch_add(1, Ordering::Relaxed);
}

pub(crate) struct Host {
    pub(crate) world: World,
    pub(crate) origin_disk: SimDisk,
    pub(crate) store_disk: SimDisk,
    options: StoreOptions,
    /// What goes wrong with the disks now and then, while clients are at work.
    faults: Option<FaultPlan>,
    /// Whether it goes wrong while the store is opened, too.
    fails_at_boot: bool,
    /// Whether rollbacks are to be frequent; then they are counted here.
    rollbacks: Option<&'static Rollbacks>,
    /// Whether requests hang; then they are counted here.
    pub(crate) stalls: Option<&'static Stalls>,
    pub(crate) held: RefCell<Option<Held>>,
    /// Whether snapshots are to come and go.
    removals: bool,
    /// Whether there are to be too many snapshots; then those that are refused are counted here.
    refusals: Option<&'static Refusals>,
    model: RefCell<Model>,
    /// How clients move bytes by themselves; every other one does.
    pub(crate) moves: Moves,
    clients: Cell<u64>,
}

impl Host {
    /// A host whose sizes and settings follow from `seed`.
    pub(crate) fn new(seed: u64, kind: Kind, injected_bug: Option<InjectedBug>) -> Host {
        let world = World::new(seed);
        let mut random = world.random();
        let (origin_sizes, store_sizes): (&[u64], &[u64]) = match kind {
            Kind::Overfull(_) => (&[64 * KIB], &[160 * KIB, 192 * KIB]),
            Kind::Stalls(_) | Kind::LostNodes => (&[64 * KIB, 128 * KIB], &[160 * KIB, 192 * KIB, 384 * KIB]),
            _ => (&[64 * KIB, 128 * KIB, 256 * KIB], &[160 * KIB, 384 * KIB, 768 * KIB, 1536 * KIB]),
        };
        let (origin_size, store_size) = (*random.pick(origin_sizes), *random.pick(store_sizes));
        let options = StoreOptions {
            log_records: random
                .between(1, if matches!(kind, Kind::Stalls(_) | Kind::LostNodes) { 4 } else { 30 }),
            metadata: *random.pick(&[
                MetadataOrder::Logged,
                MetadataOrder::Logged,
                MetadataOrder::Logged,
                MetadataOrder::WriteThrough,
            ]),
            // Half of the histories have a cache that holds next to nothing: nodes are loaded and evicted all the time.
            cache_bytes: *random.pick(if matches!(kind, Kind::LostNodes) { &[0, 0] } else { &[0, 64 << 20] }),
            policy: *random.pick(&CachePolicy::ALL),
            restored_ranges: *random.pick(&[2, 1 << 14]),
            low_space_percent: 60,
            full: *random.pick(&[
                FullPolicy::Error,
                FullPolicy::Pause { timeout: std::time::Duration::from_millis(2) },
            ]),
            injected_bug,
            ..StoreOptions::default()
        };
        let model = Model {
            origin: Rc::new(RefCell::new(Oracle::new(1, origin_size))),
            snapshots: BTreeMap::new(),
            doubts: Vec::new(),
            volumes: 1,
            store_size,
        };
        // Most disks have blocks that are larger than those of the clients.
        let block_size = if random.chance(3, 4) { 4096 } else { 512 };
        let disk = |size| SimDisk::with(DiskOptions { block_size, ..DiskOptions::sized(size) });
        let faulty = match kind {
            Kind::Faulty | Kind::LostNodes => true,
            Kind::Stalls(_) => random.chance(1, 3),
            _ => false,
        };
        let host = Host {
            origin_disk: disk(ORIGIN_SIZE_MAX),
            store_disk: disk(STORE_SIZE_MAX),
            options,
            faults: faults_of(kind, faulty, &mut random),
            fails_at_boot: random.chance(1, 3),
            rollbacks: if let Kind::Rollbacks(counts) = kind { Some(counts) } else { None },
            stalls: if let Kind::Stalls(counts) = kind { Some(counts) } else { None },
            held: RefCell::default(),
            removals: matches!(kind, Kind::Removals),
            refusals: if let Kind::Overfull(counts) = kind { Some(counts) } else { None },
            model: RefCell::new(model),
            moves: Moves::Guarded,
            clients: Cell::new(0),
            world,
        };
        let chunk_size = *random.pick(&[4 * KIB, 16 * KIB, 64 * KIB]);
        let format =
            FormatOptions { chunk_size, ..FormatOptions::new(Uuid::from_u128(u128::from(seed) + 1)) };
        let (store, arena) = (host.store_device(), host.world.arena());
        host.world.run(async { SnapshotStore::format(&store, &arena, format).await }).expect("no faults");
        host
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// `device` for one client.
    fn for_client(&self, device: Device) -> Device {
        let number = self.clients.replace(self.clients.get() + 1);
        let by_itself = number % 2 == 1 || self.moves == Moves::Unguarded;
        if by_itself { by_map(device, &self.world, self.moves) } else { device }
    }

    fn store_device(&self) -> Device {
        let size = self.model.borrow().store_size;
        let held = self.held.borrow().as_ref().map(|held| held.store.1.clone());
        let disk = held.unwrap_or_else(|| self.store_disk.device(&self.world));
        Device::new(Linear::new(vec![(size, disk, 0)]))
    }

    fn origin_device(&self) -> Device {
        self.origin_of(self.model.borrow().origin.borrow().size())
    }

    fn origin_of(&self, size: u64) -> Device {
        let held = self.held.borrow().as_ref().map(|held| held.origin.1.clone());
        let disk = held.unwrap_or_else(|| self.origin_disk.device(&self.world));
        Device::new(Linear::new(vec![(size, disk, 0)]))
    }

    /// Repairs the disks, and lets them fail from now on, or not.
    pub(crate) fn let_fail(&self, enabled: bool) {
        let plan = self.faults.filter(|_| enabled).unwrap_or_default();
        for disk in [&self.origin_disk, &self.store_disk] {
            disk.repair();
            disk.reappear();
            disk.set_faults(plan, FaultBudget::unlimited());
        }
    }

    pub(crate) fn is_faulty(&self) -> bool {
        self.faults.is_some()
    }

    /// The crash has come: what was not durable may be gone.
    pub(crate) fn crashed(&self, kind: CrashKind) {
        self.branch_rollbacks();
        let model = self.model.borrow();
        let doubtful = model.doubts.iter().filter_map(|doubt| match doubt {
            Doubt::Create(_, oracle, _) => Some(oracle),
            _ => None,
        });
        // What was written to a snapshot and not flushed is lost with the process too: it is not in the map yet.
        let known = model.snapshots.values().map(|known| &known.oracle);
        known.chain(doubtful).for_each(|oracle| oracle.borrow_mut().crashed());
        let has_lost = self.origin_disk.take_lost_flush();
        if has_lost {
            model.origin.borrow_mut().flush_failed();
        }
        match kind {
            CrashKind::Power => model.origin.borrow_mut().crashed(),
            CrashKind::Process => model.origin.borrow_mut().killed(),
        }
        drop(model);
        for doubt in &mut self.model.borrow_mut().doubts {
            let Doubt::RolledBack { done, undone } = doubt else { continue };
            if has_lost {
                [&mut *done, &mut *undone].into_iter().for_each(|past| past.flush_failed());
            }
            match kind {
                CrashKind::Power => [done, undone].into_iter().for_each(|past| past.crashed()),
                CrashKind::Process => [done, undone].into_iter().for_each(|past| past.killed()),
            }
        }
    }

    /// A rollback that was beginning has begun or has not; only the next boot can tell.
    fn branch_rollbacks(&self) {
        let mut model = self.model.borrow_mut();
        let origin = Rc::clone(&model.origin);
        for doubt in &mut model.doubts {
            if let Doubt::Rollback(token) = doubt {
                let (mut done, mut undone) = (origin.borrow().fork(), origin.borrow().fork());
                done.rollback_finished(*token);
                undone.rollback_undone(*token);
                *doubt = Doubt::RolledBack { done: Box::new(done), undone: Box::new(undone) };
            }
        }
    }

    /// Reads what a crash left on a disk that has lost nodes, before that is repaired: all of it is right, or an error; and
    /// where a check says that nothing is wrong there is none.
    pub(crate) async fn read_with_nodes_lost(&self) {
        for disk in [&self.origin_disk, &self.store_disk] {
            disk.set_faults(FaultPlan::default(), FaultBudget::unlimited());
        }
        let (arena, clock) = (self.world.arena(), self.world.clock());
        let is_sound = check_store(&self.store_device(), &arena).await.is_ok();
        let (origin, store) = (self.origin_device(), self.store_device());
        let opened = SnapshotStore::open(origin, store, arena.clone(), clock, self.options).await;
        assert!(opened.is_ok() || !is_sound, "what is sound can be opened: {:?}", opened.err());
        let Ok(store) = opened else { return count(&REFUSED) };
        let clients: Vec<Client> = {
            let model = self.model.borrow();
            let in_doubt = |name: &String| {
                model.doubts.iter().any(|doubt| matches!(doubt, Doubt::Remove(doubtful) if doubtful == name))
            };
            let known = model.snapshots.iter().filter(|(name, _)| !in_doubt(name));
            let client = |(_, known): (&String, &Known)| {
                let device = store.snapshot(known.id).expect("known snapshots exist");
                Client::new(accept_unaligned(device, arena.clone()), arena.clone(), Rc::clone(&known.oracle))
            };
            known.map(client).collect()
        };
        for client in clients {
            for (_, piece) in Extent::new(0, client.size()).pieces(16 * KIB) {
                let read = client.read(piece).await;
                let expected = read.is_ok() || !is_sound && read == Err(IoError::Corrupt);
                assert!(expected, "it is right or damaged: {read:?}");
                read.is_err().then(|| count(&REFUSED));
            }
        }
    }

    /// Opens the store and resolves what the last crash left in doubt. Nothing if a disk has failed meanwhile, which it
    /// may if so wished.
    pub(crate) async fn boot(&self, may_fail: bool) -> Option<Boot<'_>> {
        let may_fail = may_fail && self.fails_at_boot && self.is_faulty();
        self.let_fail(may_fail);
        self.attach_holders();
        let (origin, store) = (self.origin_device(), self.store_device());
        let opened =
            SnapshotStore::open(origin, store, self.world.arena(), self.world.clock(), self.options).await;
        if may_fail && opened.is_err() {
            count(&BOOTS_FAILED);
            return None;
        }
        let store = opened.expect("a store can always be opened");
        let shown = Shown::default();
        let boot = Boot {
            host: self,
            top: Switch::new(accept_unaligned_shown(store.origin(), self.world.arena(), shown.clone())),
            shown,
            views: RefCell::default(),
            store,
            ended: Cell::new(false),
            has_shrunk: Cell::new(false),
            written: WrittenNames::default(),
            rolled_back: Cell::new(None),
            has_been_full: Cell::new(false),
        };
        if let Some(rollbacks) = self.rollbacks.filter(|_| boot.store.rollback_status().is_some()) {
            count(&rollbacks.resumed);
        }
        boot.resolve_doubts().await;
        Some(boot)
    }
}

/// Over all histories: boots that ended because a disk failed meanwhile; how often the origin was shrunk, and grew.
pub(crate) static BOOTS_FAILED: AtomicU64 = AtomicU64::new(0);
pub(crate) static SHRUNK: AtomicU64 = AtomicU64::new(0);
pub(crate) static GROWN: AtomicU64 = AtomicU64::new(0);
/// Reads, and attempts to open a store, that met a node that was not written, over all histories.
pub(crate) static REFUSED: AtomicU64 = AtomicU64::new(0);
/// Parts that a rollback had brought back and no comparison may name, over all histories.
pub(crate) static UNCHANGED: AtomicU64 = AtomicU64::new(0);

/// The host, running.
pub(crate) struct Boot<'a> {
    pub(crate) host: &'a Host,
    /// What doors lead to, as in the daemon: a switch, below it blocks of any size, below them the origin of the store.
    pub(crate) top: Switch,
    /// Held by what makes the origin show something else.
    shown: Shown,
    /// The devices of snapshots in use, so that ragged edges of one exclude each other.
    views: RefCell<BTreeMap<u64, Device>>,
    pub(crate) store: Rc<SnapshotStore>,
    /// Something failed half way: what is true now only the next boot can tell.
    pub(crate) ended: Cell<bool>,
    /// Whether requests may find that what they are for is gone.
    has_shrunk: Cell<bool>,
    /// The snapshots that are written to beside the rounds.
    pub(crate) written: WrittenNames,
    /// The newest snapshot, never written to, to which the origin is being rolled back since this boot; and whether that is
    /// over.
    rolled_back: Cell<Option<(u64, bool)>>,
    /// Whether anything found no space.
    has_been_full: Cell<bool>,
}

impl Boot<'_> {
    async fn resolve_doubts(&self) {
        let listed: BTreeMap<String, u64> =
            self.store.list().into_iter().map(|descriptor| (descriptor.name, descriptor.id)).collect();
        let doubts = std::mem::take(&mut self.host.model.borrow_mut().doubts);
        for doubt in doubts {
            match doubt {
                Doubt::Create(name, oracle, new) => {
                    if let Some(id) = listed.get(&name) {
                        let known = Known { id: *id, oracle, held: new.held, read_only: new.read_only };
                        self.host.model.borrow_mut().snapshots.insert(name, known);
                    }
                }
                Doubt::Remove(name) => {
                    if !listed.contains_key(&name) {
                        self.host.model.borrow_mut().snapshots.remove(&name);
                    }
                }
                Doubt::Flags(name) => {
                    let Some(id) = listed.get(&name) else { continue };
                    let descriptor = self.store.descriptor(*id).expect("listed");
                    let mut model = self.host.model.borrow_mut();
                    let known = model.snapshots.get_mut(&name).expect("known");
                    (known.held, known.read_only) = (descriptor.held, descriptor.read_only);
                }
                Doubt::Rename(from, to) if listed.contains_key(&to) => {
                    self.host.model.borrow_mut().rename(&from, &to);
                }
                Doubt::Rename(..) => {}
                Doubt::Rollback(_) => unreachable!("every boot begins behind a crash"),
                Doubt::RolledBack { done, undone } => {
                    let begun = self.store.rollback_status().is_some();
                    let model = self.host.model.borrow();
                    model.origin.replace(if begun { *done } else { *undone });
                }
            }
        }
        let model = self.host.model.borrow();
        let known: BTreeMap<String, u64> =
            model.snapshots.iter().map(|(name, known)| (name.clone(), known.id)).collect();
        assert_eq!(listed, known, "every acknowledged snapshot exists, and no other");
    }

    async fn content(&self, device: &Device) -> Vec<u8> {
        let length = usize::try_from(device.shape().size).expect("small");
        device.read(0, self.host.world.arena().take(length)).await.expect("no faults").to_vec()
    }

    pub(crate) fn origin_client(&self) -> Client {
        let oracle = Rc::clone(&self.host.model.borrow().origin);
        Client::new(self.host.for_client(self.top.device()), self.host.world.arena(), oracle)
    }

    pub(crate) fn client(&self, name: &str) -> Client {
        let model = self.host.model.borrow();
        let known = &model.snapshots[name];
        let arena = self.host.world.arena();
        let view =
            || accept_unaligned(self.store.snapshot(known.id).expect("known snapshots exist"), arena.clone());
        let device = self.views.borrow_mut().entry(known.id).or_insert_with(view).clone();
        Client::new(self.host.for_client(device), arena, Rc::clone(&known.oracle))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.host.model.borrow().snapshots.keys().cloned().collect()
    }

    /// Reads and checks everything.
    pub(crate) async fn verify(&self) {
        self.origin_client().verify().await.expect("no faults");
        for name in self.names() {
            self.client(&name).verify().await.expect("no faults");
        }
        self.verify_diffs().await;
    }

    /// Reads the origin, the oldest snapshot and the newest, and asserts that nothing in which two of them differ is
    /// missing from what a comparison of metadata says (STOREDIFF1).
    async fn verify_diffs(&self) {
        let listed = self.store.list();
        let (Some(oldest), Some(newest)) = (listed.first(), listed.last()) else { return };
        let mut read = Vec::new();
        for id in [Some(oldest.id), Some(newest.id), None] {
            let device = match id {
                Some(id) => self.store.snapshot(id).expect("listed"),
                None => self.store.origin(),
            };
            read.push((id, self.content(&device).await));
        }
        for (from, to) in [(0, 2), (0, 1), (1, 2), (1, 0)] {
            let (one, two) = (&read[from], &read[to]);
            let differing = self.store.diff(one.0.expect("a snapshot"), two.0).await.expect("listed");
            assert!(differing.windows(2).all(|pair| pair[0].end() < pair[1].offset), "in order and joined");
            let whole = Extent::new(0, one.1.len().max(two.1.len()) as u64);
            for (_, part) in whole.pieces(4 * KIB) {
                let range =
                    usize::try_from(part.offset).expect("small")..usize::try_from(part.end()).expect("small");
                let same = one.1.get(range.clone()) == two.1.get(range);
                let named = differing.iter().any(|extent| extent.contains(part));
                assert!(same || named, "STOREDIFF1: {part:?} differs between {:?} and {:?}", one.0, two.0);
            }
        }
    }

    /// Asserts that after a rollback a comparison names no part that holds in the origin what it holds in `target` (ROLLBACK8 of
    /// `rollback.rs`). What was written since has another content; only zeros are like others.
    async fn verify_rolled_back(&self, target: u64) {
        // Requests that hang have preserved what they have not changed yet.
        let is_quiet = !self.host.is_faulty() && self.host.stalls.is_none();
        // Without room for all nodes that dropping them might change the copies stay; in a small store a quarter is too little.
        let usage = self.store.usage();
        let is_roomy = !self.has_been_full.get() && usage.free > (usage.size / 4).max(NODES_MAX);
        let is_exact = is_quiet && is_roomy && !self.has_shrunk.get();
        let Some(view) = self.store.snapshot(target).ok().filter(|_| is_exact) else { return };
        let (origin, shown) = (self.content(&self.store.origin()).await, self.content(&view).await);
        let differing = self.store.diff(target, None).await.expect("no faults");
        for (index, (one, two)) in origin.chunks(4096).zip(shown.chunks(4096)).enumerate() {
            let part = Extent::new(index as u64 * 4 * KIB, 4 * KIB);
            let has_zeros = one.chunks(512).any(|sector| sector.iter().all(|byte| *byte == 0));
            if one == two && !has_zeros {
                let named = differing.iter().any(|extent| extent.intersect(part).is_some());
                assert!(!named, "ROLLBACK8: {part:?} is what it is in snapshot {target}, and is named");
                count(&UNCHANGED);
            }
        }
    }

    /// Asserts that the store's books balance and that a walk finds what is in memory.
    pub(crate) async fn check(&self) {
        self.store.verify().await.expect("no faults");
        let report = check_store(&self.host.store_device(), &self.host.world.arena()).await;
        let report = report.expect("a store that is in use is sound");
        assert_eq!(report.snapshots, self.store.list());
        assert_eq!(report.rollback, self.store.rollback_status().map(|status| status.snapshot));
    }

    /// One round: clients of the origin and of some snapshots, beside something that happens to the snapshots.
    pub(crate) async fn round(&self, random: &mut Random) {
        if random.chance(1, 2) {
            self.begin_long_requests(random);
        }
        let names = self.names();
        let count = if names.is_empty() { 0 } else { random.below(3) };
        let pool: Vec<String> = (0..count).map(|_| random.pick(&names).clone()).collect();
        let mut choices = [random.fork(), random.fork(), random.fork(), random.fork(), random.fork()];
        let [first, second, third, fourth, fifth] = &mut choices;
        let origin = self.exercise(self.origin_client(), first);
        let one = self.exercise_one(pool.first(), second);
        let two = self.exercise_one(pool.get(1), third);
        let other = self.manage(fourth, &pool);
        let restoring = self.restore_some(fifth);
        futures_util::join!(origin, one, two, other, restoring);
        if let Some((target, true)) = self.rolled_back.get() {
            self.rolled_back.set(None);
            self.verify_rolled_back(target).await;
        }
        if random.chance(2, 3) {
            while self.reclaim(random.between(1, 40)).await {}
        }
    }

    /// A batch of what removals have left to do; whether there is more.
    async fn reclaim(&self, entries: u64) -> bool {
        match self.store.reclaim(usize::try_from(entries).expect("small")).await {
            Ok(more) => more,
            Err(StoreError::NoSpace) => false,
            Err(error) => {
                assert!(self.host.is_faulty(), "no faults: {error}");
                false
            }
        }
    }

    async fn exercise_one(&self, name: Option<&String>, random: &mut Random) {
        if let Some(name) = name {
            self.exercise(self.client(name), random).await;
        }
    }

    /// A full store and a read-only snapshot are no reason to stop; nor is a disk that fails, if it may.
    fn tolerate(&self, result: Option<Result<(), IoError>>) {
        self.has_been_full.set(self.has_been_full.get() || result == Some(Err(IoError::NoSpace)));
        match result {
            None | Some(Ok(()) | Err(IoError::NoSpace | IoError::ReadOnly)) => {}
            Some(Err(IoError::Gone)) if self.has_shrunk.get() => {}
            Some(Err(IoError::Medium | IoError::HostFull | IoError::Corrupt | IoError::Gone))
                if self.host.is_faulty() => {}
            Some(Err(error)) => panic!("no faults: {error}"),
        }
    }

    /// Whether `outcome` is an error that may come; then what was done stays in doubt until the next boot.
    fn is_fault<T>(&self, outcome: &Result<T, StoreError>) -> bool {
        let fault = self.host.is_faulty()
            && matches!(
                outcome,
                Err(StoreError::Io(_)
                    | StoreError::Busy
                    | StoreError::HalfRolledBack
                    | StoreError::Corrupt(_)
                    | StoreError::Format(_))
            );
        self.ended.set(self.ended.get() || fault);
        fault
    }

    /// Random requests, several at a time.
    async fn exercise(&self, client: Client, random: &mut Random) {
        let mix = Mix {
            depth: usize::try_from(random.between(1, 7)).expect("small"),
            length_max: *random.pick(&[4 * KIB, 16 * KIB, 100 * KIB]),
            zeros: random.below(2),
            discards: random.below(2),
            ..Mix::default()
        };
        let mut under_way = FuturesUnordered::new();
        for _ in 0..random.between(1, 14) {
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

    fn resolve(&self, resolves: impl Fn(&Doubt) -> bool) {
        self.host.model.borrow_mut().doubts.retain(|doubt| !resolves(doubt));
    }

    /// Fills the store, and takes more snapshots than it has room for, several at a time, beside a client.
    pub(crate) async fn overfill(&self, random: &mut Random) {
        if self.host.refusals.is_none() {
            return;
        }
        self.create(random).await;
        self.fill(random).await;
        for _ in 0..random.between(1, 40) {
            let mut choices = [random.fork(), random.fork(), random.fork()];
            let [first, second, third] = &mut choices;
            let origin = self.exercise(self.origin_client(), first);
            if self.names().len() > 90 {
                return origin.await;
            }
            futures_util::join!(origin, self.create(second), self.create(third));
        }
    }

    /// Writes something everywhere, to see how the store fares.
    pub(crate) async fn fill(&self, random: &mut Random) {
        let client = self.origin_client();
        let extent = self.top.device().shape().extent();
        for (_, piece) in extent.pieces(16 * KIB) {
            self.tolerate(Some(client.write(piece, Durability::Volatile).await));
            if random.chance(1, 4) {
                let first = Extent::new(piece.offset, 4 * KIB);
                self.tolerate(Some(client.read(first).await));
            }
        }
    }
}
