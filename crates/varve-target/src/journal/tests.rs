//! The journal under crashes, with a small engine on it: numbers that only rise, by key.
//!
//! Each client has keys of its own and raises them one after the other. After a crash a number is at least the last one
//! that was acknowledged, and at most the last one that was asked for.

use super::*;
use futures_util::future::join_all;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use varve_block::{Arena, Buffer, Bytes, Device, Durability, Extent, IoError};
use varve_format::epoch::Epoch;
use varve_format::store::data_checksum;
use varve_sim::{CrashAt, CrashKind, SimDisk, World, caught, run_seeds, test_name};

const BLOCK: usize = 4096;
const CLIENTS: usize = 3;
const KEYS: usize = 4;
/// Two slots, two places for a checkpoint's numbers, then the ring.
const NUMBERS: u64 = 2;
const RING: u64 = 4;
const RING_BLOCKS: u64 = 9;
const RECORD_BLOCKS_MAX: u64 = 2;
const OWNER: u64 = 77;

fn term(revision: u64) -> Epoch {
    Epoch { generation: 0, revision }
}

type Numbers = [u64; CLIENTS * KEYS];

/// How the engine breaks its word, for negative controls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// Records are acknowledged from the disk's cache.
    VolatileRecords,
    /// The superblock is written without a flush of what it leads to (PAIR1).
    NoFlush,
    /// Both superblocks go to one slot (PAIR1).
    OneSlot,
    /// A superblock is written to one slot alone (PAIR4).
    OneCopy,
    /// Records are released without a superblock (LOGRING1).
    RecordOverLive,
    /// Records carry no checksum, and torn ones are believed (REPLAY1).
    NoChecksum,
    /// A request joins the commit that is under way (LEADER2).
    CommitUnderWay,
}

/// Fields of 8 bytes and a checksum of all bytes but its own.
fn encode(bytes: &mut [u8], fields: &[u64]) {
    bytes.fill(0);
    for (place, field) in bytes[8..].chunks_exact_mut(8).zip(fields) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    // The first field stands at the very end, too: what is torn lacks it.
    let end = bytes.len() - 8;
    bytes[end..].copy_from_slice(&fields[0].to_le_bytes());
    let checksum = u64::from(data_checksum(&bytes[8..]));
    bytes[..8].copy_from_slice(&checksum.to_le_bytes());
}

fn field(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[8 * at + 8..8 * at + 16].try_into().expect("8 bytes"))
}

fn is_sound(bytes: &[u8]) -> bool {
    bytes[..8] == u64::from(data_checksum(&bytes[8..])).to_le_bytes()
}

/// A key has a number now.
type Change = (u64, u64);

struct Record {
    epoch: Epoch,
    changes: Vec<Change>,
}

impl RingRecord for Record {
    type Error = IoError;

    fn claims(block: &[u8], owner: u64) -> Option<(u64, u64)> {
        let blocks = field(block, 2);
        let is_one = field(block, 0) == owner && (1..=RECORD_BLOCKS_MAX).contains(&blocks);
        is_one.then(|| (field(block, 1), blocks))
    }

    const LATER_EPOCH: IoError = IoError::Fenced;

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn decode(bytes: &[u8]) -> Result<Option<Self>, IoError> {
        let has_checksum = bytes[..8] != [0; 8];
        if has_checksum && !is_sound(bytes) {
            return Ok(None);
        }
        let change = |at: u64| {
            let end = bytes.len() - 16 * (at as usize + 1);
            let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
            (number(end), number(end + 8))
        };
        let epoch = term(field(bytes, 4));
        Ok(Some(Record { epoch, changes: (0..field(bytes, 3)).rev().map(change).collect() }))
    }
}

#[derive(Clone, Copy)]
struct Root {
    number: u64,
    begin: LogStart,
}

impl Superblock for Root {
    type Error = ();
    const ABSENT: () = ();

    fn number(&self) -> u64 {
        self.number
    }

    fn is_other_version(_: ()) -> bool {
        false
    }
}

struct Engine {
    device: Device,
    arena: Arena,
    fault: Fault,
    group: GroupCommit,
    latch: Latch,
    ring: Ring,
    number: Cell<u64>,
    numbers: RefCell<Numbers>,
    pending: RefCell<Vec<Change>>,
    /// Whether records of the log were applied.
    applies: bool,
}

impl Engine {
    async fn read(device: &Device, arena: &Arena, block: u64) -> Buffer {
        device.read(block * BLOCK as u64, arena.take(BLOCK)).await.expect("no faults")
    }

    async fn format(device: &Device, arena: &Arena) {
        let root = Root { number: 1, begin: LogStart { head: 0, sequence: 1, epoch: Epoch::default() } };
        let numbers = [0; CLIENTS * KEYS];
        Engine::write_checkpoint(device, arena, root, &numbers, Fault::None).await.expect("no faults");
    }

    async fn write_checkpoint(
        device: &Device,
        arena: &Arena,
        root: Root,
        numbers: &Numbers,
        fault: Fault,
    ) -> Result<(), IoError> {
        let mut content = arena.take(BLOCK);
        encode(&mut content, numbers);
        let place = (NUMBERS + root.number % 2) * BLOCK as u64;
        device.write(place, content.freeze(), Durability::Volatile).await?;
        let address = if fault == Fault::OneSlot { 0 } else { root.number % 2 * BLOCK as u64 };
        let slot = Engine::slot(arena, root);
        match fault {
            Fault::NoFlush => device.write(address, slot, Durability::Durable).await.map(drop),
            Fault::OneSlot | Fault::OneCopy => {
                publish(device, (address, slot.clone()), (address, slot)).await
            }
            _ => publish(device, (address, slot.clone()), (BLOCK as u64 - address, slot)).await,
        }
    }

    fn slot(arena: &Arena, root: Root) -> Bytes {
        let mut slot = arena.take(BLOCK);
        let LogStart { head, sequence, epoch } = root.begin;
        encode(&mut slot, &[root.number, head, sequence, epoch.revision]);
        slot.freeze()
    }

    async fn open(device: Device, arena: Arena, fault: Fault) -> Result<Engine, IoError> {
        device.flush().await?;
        let mut newest = Newest::<Root>::new();
        for slot in 0..2 {
            let bytes = Engine::read(&device, &arena, slot).await;
            let epoch = term(field(&bytes, 3));
            let begin = LogStart { head: field(&bytes, 1), sequence: field(&bytes, 2), epoch };
            let root = Root { number: field(&bytes, 0), begin };
            newest.look_at(
                slot * BLOCK as u64,
                if is_sound(&bytes) && root.number > 0 { Ok(root) } else { Err(()) },
            );
        }
        let (root, held) = newest.found().map_err(|()| IoError::Corrupt)?;
        if !matches!(fault, Fault::OneSlot | Fault::OneCopy) {
            complete_pair(&device, [0, 1].map(|at| (at * BLOCK as u64, Engine::slot(&arena, root))), &held)
                .await;
            device.flush().await?;
        }
        let content = Engine::read(&device, &arena, NUMBERS + root.number % 2).await;
        let mut numbers = [0; CLIENTS * KEYS];
        numbers.iter_mut().enumerate().for_each(|(at, number)| *number = field(&content, at));
        let ring = Ring::new(RING, RING_BLOCKS, root.begin, RECORD_BLOCKS_MAX);
        let mut engine = Engine {
            device,
            arena,
            fault,
            group: GroupCommit::default(),
            latch: Latch::default(),
            ring,
            number: Cell::new(root.number),
            numbers: RefCell::new(numbers),
            pending: RefCell::default(),
            applies: false,
        };
        replay(&mut engine).await?;
        Ok(engine)
    }

    async fn set(&self, key: usize, number: u64) -> Result<(), IoError> {
        let own = self.group.next();
        self.numbers.borrow_mut()[key] = number;
        self.pending.borrow_mut().push((key as u64, number));
        let joins = self.fault == Fault::CommitUnderWay && self.group.is_under_way();
        let needed = if joins { own - 1 } else { own };
        loop {
            self.latch.check()?;
            let Turn::Lead(_lead) = self.group.turn(needed).await else { return self.latch.check() };
            self.lead().await.map_err(|error| self.latch.shut(error))?;
        }
    }

    async fn lead(&self) -> Result<(), IoError> {
        if self.ring.is_tight(1) {
            self.checkpoint().await?;
        }
        self.group.begin();
        let changes = self.pending.take();
        let outcome = self.append(&changes).await;
        self.group.end();
        outcome
    }

    async fn append(&self, changes: &[Change]) -> Result<(), IoError> {
        let sequence = self.ring.sequence();
        // Some records are longer than they need to be, so that they can be torn between two blocks.
        let blocks = sequence % RECORD_BLOCKS_MAX + 1;
        let mut bytes = self.arena.take(BLOCK * blocks as usize);
        bytes.fill(0);
        let head = [OWNER, sequence, blocks, changes.len() as u64, self.ring.epoch().revision];
        bytes[8..48].copy_from_slice(head.map(u64::to_le_bytes).as_flattened());
        // The changes stand at the end, so that a torn record may lack them.
        let mut end = bytes.len();
        for (key, number) in changes.iter().rev() {
            bytes[end - 16..end - 8].copy_from_slice(&key.to_le_bytes());
            bytes[end - 8..end].copy_from_slice(&number.to_le_bytes());
            end -= 16;
        }
        if self.fault != Fault::NoChecksum {
            let checksum = u64::from(data_checksum(&bytes[8..]));
            bytes[..8].copy_from_slice(&checksum.to_le_bytes());
        }
        let is_volatile = self.fault == Fault::VolatileRecords;
        let durability = if is_volatile { Durability::Volatile } else { Durability::Durable };
        self.ring.append(&self.device, sequence, bytes, durability).await
    }

    /// All numbers as they are at this instant, those that wait for a commit too.
    async fn checkpoint(&self) -> Result<(), IoError> {
        let root = self.root(self.ring.epoch());
        if self.fault != Fault::RecordOverLive {
            let numbers = *self.numbers.borrow();
            Engine::write_checkpoint(&self.device, &self.arena, root, &numbers, self.fault).await?;
            self.number.set(root.number);
        }
        self.ring.release();
        Ok(())
    }

    /// The next superblock, of a host with this epoch.
    fn root(&self, epoch: Epoch) -> Root {
        let begin = LogStart { head: self.ring.head(), sequence: self.ring.sequence(), epoch };
        Root { number: self.number.get() + 1, begin }
    }

    fn reader(&self) -> RingReader<'_> {
        RingReader { ring: &self.ring, device: self.device.clone(), arena: &self.arena, owner: OWNER }
    }
}

impl Log for Engine {
    type Record = Placed<Record>;
    type Error = IoError;

    async fn next(&self, before: &[Self::Record]) -> Result<Next<Self::Record>, IoError> {
        Ok(self.reader().next(before.last()).await?.map_or(Next::Damaged, Next::Record))
    }

    async fn goes_on(&self, before: &[Self::Record]) -> Result<bool, IoError> {
        let missing = before.last().map_or(self.ring.sequence(), |last| last.sequence + 1);
        Ok(self.reader().later::<Record>(missing).await.is_some())
    }

    fn damaged(&self) -> IoError {
        IoError::Corrupt
    }

    async fn claim(&self, _: &Self::Record) -> Result<(), IoError> {
        assert!(!self.applies, "REPLAY2: all is claimed before anything is applied");
        Ok(())
    }

    async fn apply(&mut self, placed: Self::Record) -> Result<(), IoError> {
        self.applies = true;
        for (key, number) in placed.record.changes {
            let key = usize::try_from(key).expect("small");
            *self.numbers.get_mut().get_mut(key).ok_or(IoError::Corrupt)? = number;
        }
        self.ring.accept(placed.start, placed.blocks, placed.sequence);
        Ok(())
    }
}

/// What clients know: the last number of each key that was acknowledged, and the last that was asked for.
#[derive(Default)]
struct Model {
    acknowledged: RefCell<Numbers>,
    asked: RefCell<Numbers>,
}

impl Model {
    fn verify(&self, found: &Numbers) {
        let (acknowledged, asked) = (self.acknowledged.borrow(), self.asked.borrow());
        for (key, number) in found.iter().enumerate() {
            let may_be = acknowledged[key]..=asked[key];
            assert!(may_be.contains(number), "key {key}: {number} is not in {may_be:?}");
        }
    }
}

fn history(seed: u64, fault: Fault) {
    let world = World::new(seed);
    let disk = SimDisk::new((RING + RING_BLOCKS) * BLOCK as u64);
    let (model, mut random) = (Rc::new(Model::default()), world.random());
    world.run(Engine::format(&disk.device(&world), &world.arena()));
    for _boot in 0..5 {
        let open = || {
            let opened = world.run(Engine::open(disk.device(&world), world.arena(), fault));
            let engine = opened.expect("a crash leaves a sound log");
            let found = *engine.numbers.borrow();
            model.verify(&found);
            *model.acknowledged.borrow_mut() = found;
            *model.asked.borrow_mut() = found;
            engine
        };
        let mut engine = open();
        if random.below(2) == 0 {
            // PAIR4: one slot rots.
            let slot = Extent::new(random.below(2) * BLOCK as u64, BLOCK as u64);
            let mut bytes = disk.peek(slot);
            bytes[100] ^= 1;
            disk.poke(slot.offset, &bytes);
            engine = open();
        }
        let kind = if random.below(3) == 0 { CrashKind::Process } else { CrashKind::Power };
        world.schedule(CrashAt::Event(random.between(1, 90)), kind);
        let (engine, model, random) = (&engine, &model, &RefCell::new(&mut random));
        let client = async |client: usize| {
            for _ in 0..30 {
                let key = client * KEYS + random.borrow_mut().below(KEYS as u64) as usize;
                let number = model.asked.borrow()[key] + 1;
                model.asked.borrow_mut()[key] = number;
                engine.set(key, number).await.expect("no faults");
                model.acknowledged.borrow_mut()[key] = number;
            }
        };
        if !world.run_until_crash(join_all((0..CLIENTS).map(client))).crashed() {
            world.disarm();
        }
    }
}

#[test]
fn what_was_acknowledged_survives_every_crash() {
    run_seeds(test_name!("what_was_acknowledged_survives_every_crash"), 1500, |seed| {
        history(seed, Fault::None);
    });
}

#[test]
fn negative_controls_are_caught() {
    for fault in [
        Fault::VolatileRecords,
        Fault::NoFlush,
        Fault::OneSlot,
        Fault::OneCopy,
        Fault::RecordOverLive,
        Fault::NoChecksum,
        Fault::CommitUnderWay,
    ] {
        let count = caught(100, |seed| history(seed, fault));
        println!("{fault:?}: caught with {count} of 100 seeds");
        assert!(count > 5, "{fault:?}: only {count} of 100");
    }
}

/// A log of `records` records, and where each is.
async fn written(device: &Device, arena: &Arena, records: u64) -> Vec<(u64, u64)> {
    Engine::format(device, arena).await;
    let engine = Engine::open(device.clone(), arena.clone(), Fault::None).await.expect("a new one");
    for number in 1..=records {
        engine.set(0, number).await.expect("no faults");
    }
    engine.reader().claims_from::<Record>(0).await
}

#[test]
fn a_damaged_record_with_another_behind_it_was_not_torn() {
    let (world, disk) = (World::new(1), SimDisk::new((RING + RING_BLOCKS) * BLOCK as u64));
    let (device, arena) = (disk.device(&world), world.arena());
    world.run(async {
        let records = written(&device, &arena, 3).await;
        let open = async || Engine::open(device.clone(), arena.clone(), Fault::None).await;
        let last = open().await.expect("sound").numbers.borrow()[0];
        assert_eq!((records.len(), last), (3, 3), "REPLAY3");
        let spoil = async |at: usize| {
            let block = (RING + records[at].0) * BLOCK as u64;
            let mut bytes = device.read(block, arena.take(BLOCK)).await.expect("no faults");
            bytes[100] ^= 1;
            device.write(block, bytes.freeze(), Durability::Durable).await.expect("no faults");
        };
        spoil(2).await;
        assert_eq!(open().await.expect("a torn end").numbers.borrow()[0], 2, "REPLAY1");
        spoil(2).await;
        spoil(1).await;
        assert_eq!(open().await.err(), Some(IoError::Corrupt), "REPLAY1");
    });
}

#[test]
fn a_ring_without_room_refuses_a_record() {
    let ring = Ring::new(0, 8, LogStart { head: 0, sequence: 1, epoch: Epoch::default() }, RECORD_BLOCKS_MAX);
    assert!(!ring.is_tight(1));
    for (sequence, start) in (1..).zip([0, 2, 4]) {
        ring.accept(start, 2, sequence);
    }
    assert!(ring.is_tight(1) && ring.is_long(), "LOGRING3");
    let (world, disk) = (World::new(1), SimDisk::new(1 << 20));
    let (device, arena) = (disk.device(&world), world.arena());
    let append = async |sequence| {
        ring.append(&device, sequence, arena.take_zeroed(2 * BLOCK), Durability::Durable).await
    };
    world.run(async {
        assert_eq!(append(4).await, Ok(()), "LOGRING3: one more than is needed fits");
        assert_eq!(append(5).await, Err(IoError::Corrupt), "LOGRING1");
        ring.release();
        assert_eq!((append(5).await, ring.head()), (Ok(()), 2), "LOGRING2: at the ring's start again");
    });
}

#[test]
fn records_of_a_host_that_lost_its_term_are_none_and_those_of_a_later_term_refuse_the_log() {
    let (world, disk) = (World::new(1), SimDisk::new((RING + RING_BLOCKS) * BLOCK as u64));
    let (device, arena) = (disk.device(&world), world.arena());
    world.run(async {
        let open = async || Engine::open(device.clone(), arena.clone(), Fault::None).await;
        Engine::format(&device, &arena).await;
        let old = open().await.expect("a new one");
        old.set(0, 1).await.expect("no faults");
        let older = disk.peek(Extent::new(old.number.get() % 2 * BLOCK as u64, BLOCK as u64));
        // Another host takes over with a higher epoch; the old one, which does not know, goes on for a while.
        let numbers = *old.numbers.borrow();
        let taken = Engine::write_checkpoint(&device, &arena, old.root(term(1)), &numbers, Fault::None).await;
        taken.expect("no faults");
        for number in 2..4 {
            old.set(0, number).await.expect("no faults");
        }
        let new = open().await.expect("SCAN2: the log of the new host is empty");
        assert_eq!((new.numbers.borrow()[0], new.ring.epoch()), (1, term(1)), "SCAN2");
        new.set(1, 7).await.expect("no faults");
        let again = open().await.expect("SCAN2: stale records behind the end are none");
        assert_eq!(again.numbers.borrow()[..2], [1, 7], "SCAN2");
        // The superblock of the new host is lost: what the old one's leads to is not served.
        disk.poke(old.root(term(1)).number % 2 * BLOCK as u64, &[0; BLOCK]);
        disk.poke(old.number.get() % 2 * BLOCK as u64, &older);
        assert_eq!(open().await.err(), Some(IoError::Fenced), "SCAN2");
    });
}
