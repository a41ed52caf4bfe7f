//! Stores with damaged nodes and log records: what can be read is saved, what cannot is named, and nothing is made up.

use std::collections::BTreeMap;
use std::io::Write;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_block::{Device, Durability, Extent, KIB, MIB};
use varve_format::store::{BlockKind, Entry, EntryBlock};
use varve_sim::{CrashKind, Random, SimDisk, World, run_seeds, test_name};
use varve_target::snapshot::{
    FormatOptions, NewSnapshot, Progress, Salvage, SnapshotStore, StoreError, StoreOptions, Uuid, dump_store,
    restore_store, salvage_store,
};

const PART: u64 = 4 * KIB;
const PARTS: usize = 1024;
const STORE_SIZE: u64 = 8 * MIB;

/// A volume with snapshots, and what each part of them holds.
struct Host {
    world: Rc<World>,
    origin: SimDisk,
    disk: SimDisk,
    options: StoreOptions,
    now: Vec<u8>,
    snapshots: BTreeMap<String, (u64, Vec<u8>)>,
}

impl Host {
    fn new(seed: u64) -> Host {
        let world = Rc::new(World::new(seed));
        let log_records = world.random().between(2, 60);
        Host {
            world,
            origin: SimDisk::new(PARTS as u64 * PART),
            disk: SimDisk::new(STORE_SIZE),
            options: StoreOptions { log_records, ..StoreOptions::default() },
            now: vec![0; PARTS],
            snapshots: BTreeMap::new(),
        }
    }

    async fn open(&self, disk: &SimDisk) -> Result<Rc<SnapshotStore>, StoreError> {
        let (origin, store) = (self.origin.device(&self.world), disk.device(&self.world));
        SnapshotStore::open(origin, store, self.world.arena(), self.world.clock(), self.options).await
    }

    async fn fill(&self, device: &Device, part: usize, count: usize, byte: u8) {
        let data = self.world.arena().copy(&vec![byte; count * PART as usize]);
        device.write(part as u64 * PART, data, Durability::Volatile).await.expect("there is space");
    }

    async fn bytes(&self, device: &Device) -> Vec<u8> {
        let content = device.read(0, self.world.arena().take(PARTS * PART as usize)).await.expect("readable");
        content.chunks(PART as usize).map(|part| part[0]).collect()
    }

    /// Changes of the volume and of its snapshots, which come and go.
    async fn live(&mut self, random: &mut Random) {
        let device = self.disk.device(&self.world);
        let chunk_size = *random.pick(&[PART, 4 * PART]);
        let format = FormatOptions { chunk_size, ..FormatOptions::new(Uuid::from_u128(9)) };
        SnapshotStore::format(&device, &self.world.arena(), format).await.expect("large enough");
        let store = self.open(&self.disk).await.expect("just formatted");
        let front = store.origin();
        for step in 0..random.between(300, 900) {
            if step % 150 == 0 {
                let name = format!("s{step}");
                let new = NewSnapshot { name: name.clone(), read_only: false, held: false };
                let id = store.create(&new).await.expect("there is space");
                self.snapshots.insert(name, (id, self.now.clone()));
            }
            let byte = u8::try_from(random.between(1, 250)).expect("small");
            let (part, count) = (random.index(PARTS - 4), random.between(1, 4) as usize);
            if random.chance(1, 5) {
                let names: Vec<String> = self.snapshots.keys().cloned().collect();
                let (id, content) = self.snapshots.get_mut(random.pick(&names)).expect("listed");
                content[part..part + count].fill(byte);
                let view = store.snapshot(*id).expect("there");
                self.fill(&view, part, count, byte).await;
                if random.chance(1, 4) {
                    view.flush().await.expect("no faults");
                }
            } else {
                self.now[part..part + count].fill(byte);
                self.fill(&front, part, count, byte).await;
            }
            if random.chance(1, 200) && self.snapshots.len() > 2 {
                let name = self.snapshots.keys().nth(1).expect("there are more").clone();
                let (id, _) = self.snapshots.remove(&name).expect("listed");
                match random.chance(1, 2) {
                    true => store.remove(id).await.expect("not held"),
                    false => store.begin_removal(id).await.expect("not held"),
                }
            }
        }
        let (id, _) = self.snapshots.values().next().expect("there is one");
        store.snapshot(*id).expect("there").flush().await.expect("no faults");
        front.flush().await.expect("no faults");
    }

    /// The same in the same world, on disks that it shares with nobody.
    fn copy(&self) -> Host {
        let copy = |disk: &SimDisk, size| {
            let copy = SimDisk::new(size);
            copy.poke(0, &disk.peek(Extent::new(0, size)));
            copy
        };
        Host {
            world: Rc::clone(&self.world),
            origin: copy(&self.origin, PARTS as u64 * PART),
            disk: copy(&self.disk, STORE_SIZE),
            options: self.options,
            now: self.now.clone(),
            snapshots: self.snapshots.clone(),
        }
    }

    /// The blocks of the store that hold something of a kind.
    fn blocks(&self, is_one: impl Fn(&[u8], u64) -> bool) -> Vec<u64> {
        let all = self.disk.peek(Extent::new(0, STORE_SIZE));
        let blocks = (0..).step_by(4096).zip(all.chunks(4096));
        blocks.filter(|(at, block)| is_one(block, *at)).map(|(at, _)| at).collect()
    }

    /// The records of the log that belong to the newest checkpoint of which there are any.
    fn newest_records(&self) -> Vec<EntryBlock> {
        let all = self.disk.peek(Extent::new(0, STORE_SIZE));
        let blocks = (0..).step_by(4096).zip(all.chunks(4096));
        let records = blocks.filter_map(|(at, block)| EntryBlock::decode(block, BlockKind::Log, at).ok());
        let mut records: Vec<EntryBlock> = records.collect();
        let newest = records.iter().map(|record| record.generation).max();
        records.retain(|record| Some(record.generation) == newest);
        records
    }

    /// The block of the newest record of the log with such an entry.
    fn record_of(&self, is_one: impl Fn(&Entry) -> bool) -> u64 {
        let such = self.newest_records().into_iter().filter(|record| record.entries.iter().any(&is_one));
        such.max_by_key(|record| record.sequence).expect("there is one").address
    }

    /// An empty store, its log never ended by a checkpoint.
    async fn begin(&mut self) -> Rc<SnapshotStore> {
        self.options.log_records = 1 << 20;
        let format = FormatOptions { chunk_size: PART, ..FormatOptions::new(Uuid::from_u128(9)) };
        let device = self.disk.device(&self.world);
        SnapshotStore::format(&device, &self.world.arena(), format).await.expect("large enough");
        self.open(&self.disk).await.expect("just formatted")
    }

    async fn create(&mut self, store: &Rc<SnapshotStore>, name: &str) -> u64 {
        let new = NewSnapshot { name: name.into(), read_only: false, held: false };
        let id = store.create(&new).await.expect("there is space");
        self.snapshots.insert(name.into(), (id, self.now.clone()));
        id
    }

    async fn salvage(&self) -> Result<Salvage, StoreError> {
        salvage_store(&self.disk.device(&self.world), &self.world.arena()).await
    }

    /// A copy of the store whose metadata is what could be saved.
    async fn restore(&self, salvage: &Salvage) -> SimDisk {
        let copy = SimDisk::new(STORE_SIZE);
        copy.poke(0, &self.disk.peek(Extent::new(0, STORE_SIZE)));
        let restored = restore_store(&copy.device(&self.world), &self.world.arena(), &salvage.text).await;
        restored.unwrap_or_else(|error| panic!("{error}: {}", salvage.text));
        copy
    }

    /// Asserts that every part reads as it should or is named, and counts those that are.
    async fn compare(&self, store: &Rc<SnapshotStore>, salvage: &Salvage) -> u64 {
        let mut named = 0;
        for (part, byte) in self.bytes(&store.origin()).await.into_iter().enumerate() {
            let extent = Extent::new(part as u64 * PART, PART);
            let is_lost = salvage.lost_of_volume.iter().any(|lost| lost.contains(extent));
            assert_eq!(byte, if is_lost { 0 } else { self.now[part] }, "SALVAGE5: the volume, part {part}");
            named += u64::from(is_lost);
        }
        for (name, (id, expected)) in &self.snapshots {
            let Ok(view) = store.snapshot(*id) else {
                assert!(salvage.lost_records > 0, "{name} is gone");
                continue;
            };
            let lost: Vec<Extent> = salvage
                .lost
                .iter()
                .filter(|(whose, _)| whose == name)
                .flat_map(|(_, lost)| lost.clone())
                .collect();
            let found = self.bytes(&view).await;
            for part in 0..PARTS {
                let extent = Extent::new(part as u64 * PART, PART);
                if lost.iter().any(|lost| lost.contains(extent)) {
                    assert_eq!(found[part], 0, "SALVAGE1: {name}, part {part}");
                    named += 1;
                } else if found[part] != expected[part] {
                    assert!(salvage.doubtful.contains(name), "SALVAGE1: {name}, part {part}: {salvage:?}");
                }
            }
        }
        named
    }
}

fn is_node(block: &[u8], _: u64) -> bool {
    block.starts_with(b"VNOD")
}

fn is_record(block: &[u8], at: u64) -> bool {
    EntryBlock::decode(block, BlockKind::Log, at).is_ok()
}

#[test]
fn what_a_sound_store_says_is_salvaged_as_a_whole() {
    let mut host = Host::new(1);
    let world = Rc::clone(&host.world);
    world.run(async {
        let mut random = host.world.random();
        host.live(&mut random).await;
        let device = host.disk.device(&host.world);
        let salvage = salvage_store(&device, &host.world.arena()).await.expect("sound");
        assert_eq!((salvage.lost.len(), salvage.lost_records, salvage.doubtful.len()), (0, 0, 0));
        let copy = host.restore(&salvage).await;
        let text = async |disk: &SimDisk| {
            let text = dump_store(&disk.device(&host.world), &host.world.arena()).await.expect("sound");
            text.split_once(" next ").expect("a head").1.to_owned()
        };
        assert_eq!(text(&copy).await, text(&host.disk).await, "the same in other places");
    });
}

#[test]
fn damaged_nodes_and_records_cost_what_they_held_and_what_that_is_is_said() {
    static LOST: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
    let name = "damaged_nodes_and_records_cost_what_they_held_and_what_that_is_is_said";
    run_seeds(
        test_name!("damaged_nodes_and_records_cost_what_they_held_and_what_that_is_is_said"),
        60,
        |seed| {
            let mut host = Host::new(seed);
            let world = Rc::clone(&host.world);
            let mut random = world.random();
            world.run(host.live(&mut random));
            world.crash(CrashKind::Process);
            let nodes = host.blocks(is_node);
            for _ in 0..random.between(1, 5) {
                host.disk.poke(*random.pick(&nodes), &[0x55; 512]);
            }
            // Not the last one: that cannot be told from one that a crash has torn.
            let mut records = host.newest_records();
            let last = records.iter().map(|record| record.sequence).max();
            records.retain(|record| Some(record.sequence) < last);
            if random.chance(1, 3) && !records.is_empty() {
                host.disk.poke(random.pick(&records).address + 512, &[0x55; 512]);
            }
            world.run(async {
                let device = host.disk.device(&host.world);
                let salvage = salvage_store(&device, &host.world.arena()).await.expect("the table is sound");
                let copy = host.restore(&salvage).await;
                let store = host.open(&copy).await.expect("restored");
                let named = host.compare(&store, &salvage).await;
                store.verify().await.expect("readable");
                let counts = [1, u64::from(named > 0), u64::from(salvage.lost_records > 0), named];
                for (sum, count) in LOST.iter().zip(counts) {
                    sum.fetch_add(count, Ordering::Relaxed);
                }
            });
        },
    );
    let [seeds, nodes, records, parts] = [0, 1, 2, 3].map(|index: usize| LOST[index].load(Ordering::Relaxed));
    let _ = writeln!(
        std::io::stderr(),
        "sim: {name}: {nodes} stores lost nodes and {parts} parts with them, {records} lost records of the log"
    );
    assert!(seeds < 60 || (nodes > 0 && records > 0), "of {seeds} stores some lost nodes, and some records");
}

#[test]
fn a_log_that_goes_on_behind_a_damaged_record_is_not_taken_for_its_end() {
    let mut host = Host::new(3);
    host.options.log_records = 1 << 20;
    let world = Rc::clone(&host.world);
    let mut random = world.random();
    world.run(host.live(&mut random));
    world.crash(CrashKind::Process);
    let records = host.blocks(is_record);
    host.disk.poke(records[records.len() / 2] + 512, &[0x55; 512]);
    world.run(async {
        let opened = host.open(&host.disk).await;
        assert!(matches!(opened.err(), Some(StoreError::Corrupt(_))), "STOREOPEN2");
        let device = host.disk.device(&host.world);
        let salvage = salvage_store(&device, &host.world.arena()).await.expect("the table is sound");
        assert_eq!(salvage.lost_records, 1, "those behind it are found");
        assert!(!salvage.doubtful.is_empty());
        let copy = host.restore(&salvage).await;
        let store = host.open(&copy).await.expect("restored");
        host.compare(&store, &salvage).await;
    });
}

#[test]
fn nothing_is_saved_of_a_store_that_lost_records_about_a_rollback() {
    for case in 0..4 {
        let is_lost = |entry: &Entry| match entry {
            Entry::Restored { extent, .. } => case < 2 && extent.offset == 10 * PART,
            Entry::RollbackBegun { .. } => case == 2,
            _ => false,
        };
        let mut host = Host::new(1);
        let world = Rc::clone(&host.world);
        world.run(async {
            let mut store = host.begin().await;
            host.now[..64].fill(1);
            host.fill(&store.origin(), 0, 64, 1).await;
            let id = host.create(&store, "old").await;
            host.fill(&store.origin(), 0, 64, 2).await;
            store.begin_rollback(id).await.expect("it is there");
            if case == 0 {
                store = host.open(&host.disk).await.expect("sound"); // The table tells of the rollback.
            }
            for part in [10, 20, 30] {
                host.now[part] = 3;
                host.fill(&store.origin(), part, 1, 3).await;
            }
        });
        world.crash(CrashKind::Process);
        if case < 3 {
            host.disk.poke(host.record_of(is_lost) + 512, &[0x55; 512]);
        }
        world.run(async {
            let salvage = match (host.salvage().await, case) {
                (Ok(salvage), 3) => salvage,
                (salvage, _) => {
                    return assert!(matches!(salvage, Err(StoreError::Corrupt(_))), "SALVAGE4: {salvage:?}");
                }
            };
            let store = host.open(&host.restore(&salvage).await).await.expect("restored");
            store.finish_rollback(&Progress::default()).await.expect("no faults");
            host.compare(&store, &salvage).await;
        });
    }
}

#[test]
fn a_snapshot_whose_creation_is_lost_goes_and_the_others_are_saved() {
    let mut host = Host::new(1);
    let world = Rc::clone(&host.world);
    world.run(async {
        let store = host.begin().await;
        host.create(&store, "one").await;
        host.now[..8].fill(1);
        host.fill(&store.origin(), 0, 8, 1).await;
        let two = host.create(&store, "two").await;
        let view = store.snapshot(two).expect("there");
        host.fill(&view, 40, 4, 9).await;
        view.flush().await.expect("no faults");
        host.now[4..12].fill(2);
        host.fill(&store.origin(), 4, 8, 2).await;
    });
    world.crash(CrashKind::Process);
    let created = host.record_of(|entry| matches!(entry, Entry::Created(two) if two.name == "two"));
    host.disk.poke(created + 512, &[0x55; 512]);
    world.run(async {
        let salvage = host.salvage().await.expect("the table is sound");
        assert_eq!((salvage.lost_records, &salvage.doubtful[..]), (1, &["one".to_owned()][..]));
        let store = host.open(&host.restore(&salvage).await).await.expect("restored");
        assert_eq!(store.list().len(), 1);
        host.compare(&store, &salvage).await;
        let one = store.snapshot(host.snapshots["one"].0).expect("there");
        assert!(
            host.bytes(&one).await.iter().all(|byte| *byte == 0),
            "what was preserved for either is there"
        );
    });
}

#[test]
fn a_record_that_cannot_be_read_is_lost_also_at_the_end_of_the_log() {
    let mut host = Host::new(1);
    let world = Rc::clone(&host.world);
    world.run(async {
        let store = host.begin().await;
        host.create(&store, "one").await;
        for part in [3, 9] {
            host.now[part] = 1;
            host.fill(&store.origin(), part, 1, 1).await;
        }
    });
    world.crash(CrashKind::Process);
    host.disk.make_unreadable(Extent::new(host.record_of(|_| true), PART));
    world.run(async {
        let salvage = host.salvage().await.expect("the table is sound");
        assert_eq!((salvage.lost_records, &salvage.doubtful[..]), (1, &["one".to_owned()][..]));
        let store = host.open(&host.restore(&salvage).await).await.expect("restored");
        host.compare(&store, &salvage).await;
        let one = store.snapshot(host.snapshots["one"].0).expect("there");
        let read = host.bytes(&one).await;
        assert_eq!((read[3], read[9]), (0, 1), "what the last record had preserved is lost");
    });
}

#[test]
fn of_a_map_that_holds_nothing_nothing_is_lost() {
    let mut host = Host::new(1);
    let world = Rc::clone(&host.world);
    world.run(async {
        let store = host.begin().await;
        host.create(&store, "idle").await;
        // The table tells of it.
        drop(host.open(&host.disk).await.expect("sound"));
        let salvage = host.salvage().await.expect("sound");
        assert_eq!((salvage.lost.len(), salvage.lost_records, salvage.doubtful.len()), (0, 0, 0));
    });
}

#[test]
fn of_a_damaged_node_only_what_may_lie_in_it_is_lost() {
    let mut host = Host::new(1);
    let world = Rc::clone(&host.world);
    world.run(async {
        let store = host.begin().await;
        let id = host.create(&store, "every-other").await;
        let view = store.snapshot(id).expect("there");
        for part in (0..PARTS).step_by(2) {
            host.fill(&view, part, 1, 7).await;
        }
        view.flush().await.expect("no faults");
    });
    world.crash(CrashKind::Process);
    // Its checkpoint writes the maps.
    world.run(async { drop(host.open(&host.disk).await.expect("sound")) });
    let mut damaging = 0;
    for node in host.blocks(is_node) {
        let copy = SimDisk::new(STORE_SIZE);
        copy.poke(0, &host.disk.peek(Extent::new(0, STORE_SIZE)));
        copy.poke(node, &[0x55; 512]);
        let salvage =
            world.run(salvage_store(&copy.device(&world), &world.arena())).expect("the table is sound");
        let lost: Vec<Extent> = salvage.lost.iter().flat_map(|(_, lost)| lost.clone()).collect();
        damaging += u64::from(!lost.is_empty());
        // The part before the first one of a node was never written.
        assert!(lost.iter().all(|lost| lost.offset % (2 * PART) == 0), "SALVAGE2: node at {node}: {lost:?}");
    }
    assert!(damaging > 3, "{damaging} nodes");
}

/// A volume that is being rolled back: the front is restored, some parts behind it have changed since.
async fn rolling(host: &mut Host) {
    let store = host.begin().await;
    host.now.fill(1);
    host.fill(&store.origin(), 0, PARTS, 1).await;
    let old = host.create(&store, "old").await;
    for part in (0..PARTS).step_by(2) {
        host.fill(&store.origin(), part, 1, 2).await;
    }
    let view = store.snapshot(old).expect("there");
    for part in (1..PARTS).step_by(8) {
        host.fill(&view, part, 1, 9).await;
        host.snapshots.get_mut("old").expect("there").1[part] = 9;
    }
    view.flush().await.expect("no faults");
    store.begin_rollback(old).await.expect("it is there");
    host.now = host.snapshots["old"].1.clone();
    let since = host.create(&store, "since").await;
    for part in [200, 800] {
        host.fill(&store.snapshot(since).expect("there"), part, 2, 5).await;
        host.snapshots.get_mut("since").expect("there").1[part..part + 2].fill(5);
    }
    store.snapshot(since).expect("there").flush().await.expect("no faults");
    while store.rollback_status().expect("under way").done < RESTORED as u64 * PART {
        assert!(store.continue_rollback(16 * PART).await.expect("no faults"), "there is more");
    }
    for part in CHANGED {
        host.now[part] = 3;
        host.fill(&store.origin(), part, 1, 3).await;
    }
    store.origin().flush().await.expect("no faults");
}

const RESTORED: usize = 96;
const CHANGED: [usize; 4] = [400, 401, 700, 900];

#[test]
fn what_a_rollback_takes_from_what_is_lost_the_volume_loses_too() {
    let mut host = Host::new(1);
    let world = Rc::clone(&host.world);
    world.run(rolling(&mut host));
    world.crash(CrashKind::Process);
    // Its checkpoint writes the maps, and the table tells of the rollback.
    world.run(async { drop(host.open(&host.disk).await.expect("sound")) });
    let has = |lost: &[Extent], part: usize| lost.iter().any(|lost| lost.offset / PART == part as u64);
    let restored = Extent::new(0, RESTORED as u64 * PART);
    let (mut concerned, mut spared) = (0, 0);
    for node in host.blocks(is_node) {
        let host = host.copy();
        host.disk.poke(node, &[0x55; 512]);
        world.run(async {
            let salvage = host.salvage().await.expect("no record is lost");
            let of = |name: &str| -> Vec<Extent> {
                let of = salvage.lost.iter().filter(|(whose, _)| whose == name);
                of.flat_map(|(_, lost)| lost.clone()).collect()
            };
            let is_restored = |lost: &Extent| lost.overlaps(restored);
            assert!(!salvage.lost_of_volume.iter().any(is_restored), "SALVAGE5: {salvage:?}");
            assert!(!CHANGED.iter().any(|part| has(&salvage.lost_of_volume, *part)), "SALVAGE5: {salvage:?}");
            concerned += u64::from(!salvage.lost_of_volume.is_empty());
            spared += u64::from(of("old").iter().any(is_restored));
            let store = host.open(&host.restore(&salvage).await).await.expect("restored");
            let named = host.compare(&store, &salvage).await;
            store.finish_rollback(&Progress::default()).await.expect("no faults");
            assert_eq!(host.compare(&store, &salvage).await, named, "SALVAGE5: when all of it is restored");
            store.verify().await.expect("readable");
        });
    }
    assert!(
        concerned > 3 && spared > 0,
        "{concerned} nodes concern the volume, {spared} what it has already"
    );
}

#[test]
fn what_a_rollback_has_dropped_is_not_lost_with_the_map_that_held_it() {
    let mut host = Host::new(1);
    let world = Rc::clone(&host.world);
    world.run(async {
        let store = host.begin().await;
        host.now[..128].fill(1);
        host.fill(&store.origin(), 0, 128, 1).await;
        let old = host.create(&store, "old").await;
        host.fill(&store.origin(), 0, 64, 2).await;
        // The checkpoint that writes the map.
        drop(store);
        let store = host.open(&host.disk).await.expect("sound");
        store.begin_rollback(old).await.expect("it is there");
        assert!(store.continue_rollback(32 * PART).await.expect("no faults"), "there is more");
        host.now[8] = 3;
        host.fill(&store.origin(), 8, 1, 3).await;
    });
    world.crash(CrashKind::Process);
    host.blocks(is_node).into_iter().for_each(|node| host.disk.poke(node, &[0x55; 512]));
    world.run(async {
        let salvage = host.salvage().await.expect("no record is lost");
        let pending = vec![Extent::between(32 * PART, PARTS as u64 * PART)];
        assert_eq!(salvage.lost, [("old".to_owned(), pending.clone())], "SALVAGE1: the device holds it");
        assert_eq!(salvage.lost_of_volume, pending, "SALVAGE5");
        let store = host.open(&host.restore(&salvage).await).await.expect("restored");
        host.compare(&store, &salvage).await;
        store.finish_rollback(&Progress::default()).await.expect("no faults");
        host.compare(&store, &salvage).await;
    });
}
