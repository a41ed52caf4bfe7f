//! Offline pools: checked, written as text and restored from it, repaired; and what each of these notices.

use crate::common::newest_superblock;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use varve_block::{Device, Durability, Extent, IoError, KIB, MIB, ZeroOptions};
use varve_format::pdata::Block;
use varve_format::pdata::node::{Entries, Node};
use varve_format::thin::{Change, PART_SIZE, PoolFormatError, Record, Superblock};
use varve_sim::{SimDisk, World, for_each_crash_point};
use varve_target::thin::{
    NewVolume, Pool, PoolError, PoolFormat, PoolOptions, PoolReport, Restored, Uuid, check_pool, dump_pool,
    repair_pool, restore_pool,
};

const SIZE: u64 = 16 * MIB;
const SLOTS: Extent = Extent::new(0, 2 * PART_SIZE);
const BLOCK: usize = PART_SIZE as usize;

struct Bed {
    world: World,
    disk: SimDisk,
}

impl Bed {
    fn new(seed: u64) -> Bed {
        Bed::with_blocks(seed, 64 * KIB)
    }

    fn with_blocks(seed: u64, block_size: u64) -> Bed {
        let bed = Bed { world: World::new(seed), disk: SimDisk::new(SIZE) };
        let (device, arena) = (bed.device(), bed.world.arena());
        let format = PoolFormat { block_size, ..PoolFormat::new(Uuid::from_u128(7 << 64)) };
        bed.world.run(Pool::format(&device, &arena, format)).expect("large enough");
        bed
    }

    fn device(&self) -> Device {
        self.disk.device(&self.world)
    }

    async fn open(&self) -> Rc<Pool> {
        let (arena, clock) = (self.world.arena(), self.world.clock());
        Pool::open(self.device(), arena, clock, PoolOptions::default()).await.expect("sound")
    }

    fn check(&self) -> PoolReport {
        let (device, arena, clock) = (self.device(), self.world.arena(), self.world.clock());
        self.world.run(check_pool(&device, &arena, &clock)).expect("a pool")
    }

    fn dump(&self) -> String {
        let (device, arena, clock) = (self.device(), self.world.arena(), self.world.clock());
        self.world.run(dump_pool(&device, &arena, &clock)).expect("sound")
    }

    fn restore(&self, text: &str) -> Result<u64, PoolError> {
        let (device, arena, clock) = (self.device(), self.world.arena(), self.world.clock());
        let restored = self.world.run(restore_pool(&device, &arena, &clock, text, false));
        restored.map(|restored| restored.volumes)
    }

    /// What every volume and snapshot holds, by its name.
    fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        self.world.run(async {
            let pool = self.open().await;
            let mut contents = BTreeMap::new();
            for info in pool.list().iter().filter(|info| !info.name.is_empty()) {
                let device = pool.volume(info.id).expect("listed");
                let length = usize::try_from(info.bytes).expect("small");
                let content = device.read(0, self.world.arena().take(length)).await.expect("no faults");
                contents.insert(info.name.clone(), content.to_vec());
            }
            contents
        })
    }

    async fn fill(&self, device: &Device, extent: Extent, byte: u8) {
        let data = self.world.arena().copy(&vec![byte; usize::try_from(extent.length).expect("small")]);
        device.write(extent.offset, data, Durability::Volatile).await.expect("there is space");
    }

    /// A volume written here and there, snapshots of it and of them, each written too, one of them removed half.
    async fn populate(&self) {
        let pool = self.open().await;
        let mut random = self.world.random();
        let new = |name: &str| NewVolume { name: name.into(), bytes: 4 * MIB, origin: None };
        let mut volumes = vec![pool.create(&new("one")).await.expect("space")];
        volumes.push(pool.create(&new("two")).await.expect("space"));
        let mut writable = volumes.clone();
        for round in 0..12_u8 {
            let id = *random.pick(&writable);
            let device = pool.volume(id).expect("it is there");
            for _ in 0..30 {
                let part = random.below(1000);
                let count = random.between(1, 12);
                self.fill(&device, Extent::new(part * PART_SIZE, count * PART_SIZE), round + 1).await;
            }
            device.discard(Extent::new(random.below(60) * 64 * KIB, 64 * KIB)).await.expect("space");
            if round % 2 == 0 {
                let name = format!("s{round}");
                volumes.push(pool.snapshot(id, &name, round % 4 == 0).await.expect("space"));
                if round % 4 != 0 {
                    writable.push(volumes[volumes.len() - 1]);
                }
            }
            if round == 7 {
                pool.checkpoint().await.expect("no faults");
            }
        }
        pool.roll_back(volumes[1], volumes[3]).await.expect("space");
        pool.set_flags(volumes[4], false, true).await.expect("it is there");
        pool.remove(volumes[2]).await.expect("it is there");
        pool.remove_some(2).await.expect("no faults");
        pool.resize(volumes[1], 3 * MIB).await.expect("space");
        pool.commit().await.expect("no faults");
    }

    /// All nodes that lie on the disk and are whole, by block.
    fn nodes(&self) -> BTreeMap<Block, Node> {
        let whole = |block: Block| Some((block, Node::decode(&self.disk.peek(block.extent()), block).ok()?));
        (0..SIZE / PART_SIZE).map(Block::new).filter_map(whole).collect()
    }

    /// The superblock that counts.
    fn superblock(&self) -> Superblock {
        newest_superblock(&self.disk)
    }

    /// Everything quiescent: nothing in the log, nothing on its way.
    fn quiesce(&self) {
        self.world.run(async {
            let pool = self.open().await;
            while pool.remove_some(100).await.expect("no faults").volumes > 0 {}
            pool.checkpoint().await.expect("no faults");
            pool.checkpoint().await.expect("no faults");
        });
    }

    fn damage(&self, block: Block) {
        let mut sector = self.disk.peek(Extent::new(block.offset(), 512));
        sector[100..106].copy_from_slice(b"damage");
        self.disk.poke(block.offset(), &sector);
    }

    /// The leaves that the volume with this root leads to, with the first part of each.
    fn leaves(&self, root: Block) -> Vec<(Block, u64)> {
        let nodes = self.nodes();
        let mut leaves = Vec::new();
        let mut ahead = vec![root];
        while let Some(block) = ahead.pop() {
            match &nodes[&block].entries {
                Entries::Branch(children) => ahead.extend(children.iter().rev().map(|child| child.1.block())),
                Entries::Leaf(rows) => leaves.push((block, u64::try_from(rows[0].0).expect("a part"))),
            }
        }
        leaves
    }
}

#[test]
fn a_pool_is_checked_with_its_log_and_nothing_is_written() {
    for seed in 0..8 {
        let bed = Bed::new(seed);
        bed.world.run(bed.populate());
        let before = bed.disk.peek(Extent::new(0, SIZE));
        let report = bed.check();
        assert!(report.is_sound(), "{report:#?}");
        assert!(report.records > 0 && report.volumes > 6 && report.runs > 100, "{report:?}");
        assert!(before == bed.disk.peek(Extent::new(0, SIZE)), "a check writes nothing");
    }
}

#[test]
fn a_text_restored_says_the_same_and_so_does_the_data() {
    for seed in 0..12 {
        let bed = Bed::new(seed);
        bed.world.run(bed.populate());
        let (text, contents) = (bed.dump(), bed.contents());
        assert!(text.contains(" like ") && text.contains(" read-only") && text.contains(" held"), "{text}");
        let volumes = bed.restore(&text).expect("it fits");
        assert_eq!(volumes, contents.len() as u64);
        let report = bed.check();
        assert!(report.is_sound(), "seed {seed}: {report:#?}");
        assert!(bed.dump() == text, "POOLTEXT1: seed {seed}");
        assert!(bed.contents() == contents, "data stays where it is: seed {seed}");
        // It is a pool like any other: written, cloned, emptied.
        bed.world.run(async {
            let pool = bed.open().await;
            let device = pool.volume(1).expect("the first one");
            bed.fill(&device, Extent::new(0, MIB), 77).await;
            device.flush().await.expect("no faults");
        });
        let after = bed.contents();
        let others = |contents: &BTreeMap<String, Vec<u8>>| {
            contents.iter().filter(|one| one.0 != "one").map(|one| one.1.clone()).collect::<Vec<_>>()
        };
        assert!(others(&after) == others(&contents), "RESTORE3: seed {seed}");
        assert!(after["one"][..MIB as usize].iter().all(|byte| *byte == 77));
        assert!(bed.check().is_sound());
    }
}

#[test]
fn a_text_is_restored_where_both_superblocks_are_lost() {
    let bed = Bed::new(3);
    bed.world.run(bed.populate());
    let (text, contents) = (bed.dump(), bed.contents());
    for slot in [0, 1] {
        bed.damage(Block::new(slot));
    }
    let (device, arena, clock) = (bed.device(), bed.world.arena(), bed.world.clock());
    assert!(bed.world.run(check_pool(&device, &arena, &clock)).is_err(), "there is no pool to be seen");
    bed.restore(&text).expect("it fits");
    assert!(bed.check().is_sound());
    assert!(bed.contents() == contents && bed.dump() == text);
}

#[test]
fn a_text_that_contradicts_itself_is_refused_and_nothing_is_changed() {
    let bed = Bed::new(4);
    bed.world.run(bed.populate());
    bed.quiesce();
    let (text, contents) = (bed.dump(), bed.contents());
    let line =
        |start: &str| text.lines().find(|line| line.starts_with(start)).expect("there is one").to_owned();
    let map = line("map");
    for (wrong, why) in [
        (text.replacen("varve-thin-pool 2", "varve-thin-pool 1", 1), "a text of an older version"),
        (text.replacen("pool 0000", "pool 1000", 1), "another pool"),
        (text.replacen(&map, &format!("{map}\n{map}"), 1), "the same parts twice"),
        (text.replacen(&map, "map 0 4096 0", 1), "data in a superblock"),
        (text.replacen(&map, "map 0 4096 4096", 1), "data in the other superblock"),
        (text.replacen(&map, "map 0 4096 17592186040320", 1), "data behind the pool"),
        (text.replacen(&map, "map 8388608 4096 4194304", 1), "parts behind the volume's end"),
        (text.replacen(" like ", " like 99", 1), "like a volume that there is not"),
        (text.replacen("volume 1 ", "volume 999 ", 1), "an id that none has had"),
        (text.replacen("map ", "mop ", 1), "a word that nobody knows"),
    ] {
        assert!(bed.restore(&wrong).is_err(), "{why}");
        assert!(bed.dump() == text, "nothing was changed: {why}");
    }
    assert!(bed.contents() == contents && bed.check().is_sound());
}

#[test]
fn a_damaged_leaf_is_told_as_bytes_of_those_who_lead_to_it_and_repaired_without_them() {
    for seed in 0..6 {
        let bed = Bed::new(seed);
        bed.world.run(bed.populate());
        bed.quiesce();
        let contents = bed.contents();
        let roots: Vec<(String, Block)> = bed.roots();
        let (victim, root) = roots[usize::try_from(seed).expect("small") % roots.len()].clone();
        let leaves = bed.leaves(root);
        let (leaf, _) = leaves[leaves.len() / 2];
        let concerned: Vec<String> = roots
            .iter()
            .filter(|(_, root)| bed.leaves(*root).iter().any(|found| found.0 == leaf))
            .map(|(name, _)| name.clone())
            .collect();
        bed.damage(leaf);
        let report = bed.check();
        let told: Vec<String> = report.damage.iter().map(|damage| damage.name.clone()).collect();
        assert_eq!(told, concerned, "all of them and nobody else: {report:#?}");
        assert!(concerned.contains(&victim) && report.errors.len() == 1, "{report:#?}");
        let (device, arena, clock) = (bed.device(), bed.world.arena(), bed.world.clock());
        bed.world.run(repair_pool(&device, &arena, &clock, true)).expect("a dry run");
        assert!(!bed.check().is_sound(), "a dry run mends nothing");
        bed.world.run(repair_pool(&device, &arena, &clock, false)).expect("it can be mended");
        bed.holds_all_but_what_was_told(&contents, &report);
    }
}

impl Bed {
    /// After a repair: what a check had reported is zeros, and everything else is as it was.
    fn holds_all_but_what_was_told(&self, contents: &BTreeMap<String, Vec<u8>>, report: &PoolReport) {
        assert!(self.check().is_sound(), "{:#?}", self.check());
        for (name, content) in &self.contents() {
            let told: Vec<Extent> = report
                .damage
                .iter()
                .filter(|damage| damage.name == *name)
                .flat_map(|damage| damage.extents.clone())
                .collect();
            for at in (0..content.len()).step_by(BLOCK) {
                let is_lost = told.iter().any(|extent| extent.contains(Extent::new(at as u64, 1)));
                let expected = if is_lost { 0 } else { contents[name][at] };
                assert_eq!(content[at], expected, "{name} at {at}");
            }
        }
    }

    /// Two volumes with leaves enough: every third part of them is written, with 1s and with 2s. What they hold, and
    /// their roots.
    fn pair(&self) -> (BTreeMap<String, Vec<u8>>, [Block; 2]) {
        self.world.run(async {
            let pool = self.open().await;
            for (name, byte) in [("one", 1), ("two", 2)] {
                let new = NewVolume { name: name.into(), bytes: 4 * MIB, origin: None };
                let id = pool.create(&new).await.expect("space");
                let device = pool.volume(id).expect("just created");
                for part in (0..4 * MIB / PART_SIZE).step_by(3) {
                    self.fill(&device, Extent::new(part * PART_SIZE, PART_SIZE), byte).await;
                }
            }
            pool.commit().await.expect("no faults");
        });
        self.quiesce();
        let roots = self.roots();
        assert!(roots.iter().all(|(_, root)| self.leaves(*root).len() >= 3), "{roots:?}");
        (self.contents(), [roots[0].1, roots[1].1])
    }

    fn repair(&self) -> Result<Restored, PoolError> {
        let (device, arena, clock) = (self.device(), self.world.arena(), self.world.clock());
        self.world.run(repair_pool(&device, &arena, &clock, false))
    }
}

/// A write of a leaf was lost, and the disk returns what the block had held before: sound nodes, but others.
#[test]
fn what_is_no_node_of_a_volume_is_not_taken_for_one() {
    let leaf_of_two = |bed: &Bed, two: Block| bed.nodes()[&bed.leaves(two)[2].0].clone();
    let branch_of_two = |bed: &Bed, two: Block| bed.nodes()[&two].clone();
    for is_leaf in [true, false] {
        let bed = Bed::new(20);
        let (contents, [one, two]) = bed.pair();
        let (leaf, _) = bed.leaves(one)[0];
        let stale = if is_leaf { leaf_of_two(&bed, two) } else { branch_of_two(&bed, two) };
        bed.forge(bed.nodes()[&leaf].clone(), |node| {
            (node.level, node.entries) = (stale.level, stale.entries);
        });
        let report = bed.check();
        assert_eq!(report.damage.len(), 1, "{report:#?}");
        assert_eq!(report.damage[0].name, "one");
        bed.world.run(async {
            let (pool, corrupt) = (bed.open().await, PoolError::Io(IoError::Corrupt));
            assert_eq!(pool.diff(1, 2).await, Err(corrupt), "POOLDIFF1: nothing can be said");
            assert_eq!(pool.exclusive(1).await, Err(corrupt), "POOLDIFF1");
        });
        bed.repair().expect("it can be mended");
        bed.holds_all_but_what_was_told(&contents, &report);
    }
}

/// An entry of a leaf.
type Row = (u128, [u8; 16]);

#[test]
fn a_run_that_lies_where_it_cannot_is_no_end_of_a_repair() {
    let bed = Bed::new(22);
    let (contents, [one, _]) = bed.pair();
    let (leaf, base) = (bed.leaves(one)[0].0, bed.superblock().base_block());
    let change = |block: Block, change: &dyn Fn(&mut Vec<Row>)| {
        bed.forge(bed.nodes()[&block].clone(), |node| {
            let Entries::Leaf(rows) = &mut node.entries else { panic!("a leaf") };
            change(rows);
        });
    };
    // Where a page of the space map is.
    change(leaf, &|rows| rows[0].1[..6].copy_from_slice(&base.number().to_le_bytes()[..6]));
    let report = bed.check();
    assert!(says(&report, "POOLCHECK3") && report.damage.len() == 1, "{report:#?}");
    bed.repair().expect("it can be mended");
    bed.holds_all_but_what_was_told(&contents, &report);
    // Zeros that go on beyond the end of the volume.
    let leaves = bed.leaves(bed.roots()[0].1);
    let last = leaves.last().expect("there are some").0;
    change(last, &|rows| {
        let row = rows.last_mut().expect("there are some");
        row.1[..6].fill(0);
        row.1[6..10].copy_from_slice(&5_u32.to_le_bytes());
    });
    assert!(says(&bed.check(), "or beyond its end"));
    bed.repair().expect("it can be mended");
    assert!(bed.check().is_sound(), "{:#?}", bed.check());
}

impl Bed {
    /// Names and roots of all volumes of a quiescent pool, as its map of volumes says.
    fn roots(&self) -> Vec<(String, Block)> {
        let (mut ahead, mut rows) = (vec![self.superblock().volumes.block()], Vec::new());
        while let Some(block) = ahead.pop() {
            match &self.nodes()[&block].entries {
                Entries::Branch(children) => ahead.extend(children.iter().rev().map(|child| child.1.block())),
                Entries::Leaf(leaf) => rows.extend(leaf.iter().copied()),
            }
        }
        let volumes = rows.chunk_by(|one, two| one.0 >> 64 == two.0 >> 64);
        let volumes = volumes.map(|rows| {
            let id = u64::try_from(rows[0].0 >> 64).expect("half of a key");
            varve_format::thin::VolumeRows::decode(id, rows).expect("sound")
        });
        volumes.filter(|one| !one.root.is_none()).map(|one| (one.name, one.root.block())).collect()
    }

    /// Writes a node back after a change, as if it had always been so.
    fn forge(&self, mut node: Node, change: impl FnOnce(&mut Node)) {
        change(&mut node);
        let mut bytes = vec![0; BLOCK];
        node.encode(&mut bytes);
        self.disk.poke(node.address.offset(), &bytes);
    }
}

/// What a check says of a pool that was changed in some way.
fn forged(change: impl FnOnce(&Bed)) -> PoolReport {
    let bed = Bed::new(2);
    bed.world.run(bed.populate());
    bed.quiesce();
    assert!(bed.check().is_sound(), "{:#?}", bed.check());
    change(&bed);
    let report = bed.check();
    assert!(!report.is_sound(), "it is noticed");
    report
}

fn says(report: &PoolReport, what: &str) -> bool {
    report.errors.iter().any(|error| error.contains(what))
}

#[test]
fn every_lie_of_sound_blocks_is_noticed() {
    let leaf_of = |bed: &Bed, number: usize| {
        let (_, root) = bed.roots()[number].clone();
        bed.nodes()[&bed.leaves(root)[0].0].clone()
    };
    // Two volumes hold a block and no count says so: both are named.
    let report = forged(|bed| {
        let place_of = |leaf: &Node| match &leaf.entries {
            Entries::Leaf(rows) => rows[0].1[..6].to_vec(),
            Entries::Branch(_) => panic!("a leaf"),
        };
        let place = place_of(&leaf_of(bed, 0));
        let mut others = (1..bed.roots().len()).map(|number| leaf_of(bed, number));
        let two = others.find(|leaf| place_of(leaf) != place).expect("not all hold the same");
        bed.forge(two, |node| {
            let Entries::Leaf(rows) = &mut node.entries else { panic!("a leaf") };
            rows[0].1[..6].copy_from_slice(&place);
        });
    });
    assert!(says(&report, "THIN9") && report.damage.len() >= 2, "{report:#?}");
    // A count that is too high, and one that is missing.
    let shares = |bed: &Bed, change: fn(&mut Vec<(u128, [u8; 16])>)| {
        let nodes = bed.nodes();
        let mut block = bed.superblock().shares.block();
        while let Entries::Branch(children) = &nodes[&block].entries {
            block = children[0].1.block();
        }
        bed.forge(nodes[&block].clone(), |node| {
            let Entries::Leaf(rows) = &mut node.entries else { panic!("a leaf") };
            change(rows);
        });
    };
    let report = forged(|bed| shares(bed, |rows| rows[0].1[8] += 1));
    assert!(says(&report, "THIN9") && report.damage.is_empty(), "nobody loses by it: {report:#?}");
    let report = forged(|bed| shares(bed, |rows| rows.truncate(rows.len() - 1)));
    assert!(says(&report, "THIN9"), "{report:#?}");
    // A volume that maps more than it says, or beyond its end.
    let report = forged(|bed| {
        let leaf = leaf_of(bed, 0);
        bed.forge(leaf, |node| {
            let Entries::Leaf(rows) = &mut node.entries else { panic!("a leaf") };
            rows.truncate(rows.len() - 1);
        });
    });
    assert!(says(&report, "parts are mapped"), "{report:#?}");
    // A node that is younger than what leads to it.
    let report = forged(|bed| {
        let (_, root) = bed.roots()[0].clone();
        let leaf = bed.nodes()[&bed.leaves(root)[0].0].clone();
        bed.forge(leaf, |node| node.generation += 1 << 20);
    });
    assert!(says(&report, "DESCENT2") && !report.damage.is_empty(), "{report:#?}");
}

#[test]
fn the_space_map_and_its_sum_are_compared_with_the_walk() {
    let page_of = |bed: &Bed| {
        let superblock = bed.superblock();
        let second = superblock.places[0] == varve_format::pdata::space_page::Place::Second;
        superblock.base_block() + u64::from(second)
    };
    let report = forged(|bed| {
        let block = page_of(bed);
        bed.damage(block);
    });
    assert!(report.errors.iter().any(|error| error.contains("space map")), "{report:#?}");
    let mark = |bed: &Bed, used: bool| {
        let address = page_of(bed);
        let bytes = bed.disk.peek(address.extent());
        let mut page = varve_format::pdata::space_page::SpacePage::decode(&bytes, address).expect("sound");
        let end = Block::at(SIZE) - bed.superblock().base_block();
        let block = (2..end).rev().find(|block| page.is_used(*block) != used).expect("there is one");
        page.set(block, used);
        let mut bytes = vec![0; BLOCK];
        page.encode(&mut bytes, address);
        bed.disk.poke(address.offset(), &bytes);
    };
    let report = forged(|bed| mark(bed, true));
    assert!(says(&report, "held by nobody") && says(&report, "blocks are free, not"), "{report:#?}");
    let report = forged(|bed| mark(bed, false));
    assert!(says(&report, "marked as free"), "{report:#?}");
}

#[test]
fn a_record_that_is_damaged_with_others_behind_it_is_no_end_of_the_log() {
    let bed = Bed::new(6);
    bed.world.run(bed.populate());
    bed.quiesce();
    let superblock = bed.superblock();
    bed.world.run(async {
        let pool = bed.open().await;
        let device = pool.volume(1).expect("the first one");
        for number in 0..4 {
            bed.fill(&device, Extent::new(number * MIB, 64 * KIB), 9).await;
            device.flush().await.expect("no faults");
        }
    });
    let torn = |number: u64| superblock.ring() + superblock.head + number;
    let last = bed.disk.peek(torn(3).extent());
    bed.damage(torn(3));
    assert!(bed.check().is_sound(), "the last record may be torn: nobody was told of it");
    bed.disk.poke(torn(3).offset(), &last);
    assert!(bed.check().is_sound());
    bed.damage(torn(1));
    let report = bed.check();
    assert!(says(&report, "the log: record"), "{report:#?}");
    let damage = &report.damage[..];
    assert_eq!(damage.len(), 1, "{report:#?}");
    let ranges = [2, 3].map(|number| Extent::new(number * MIB, 64 * KIB));
    let inside = |range: &Extent| damage[0].extents.iter().filter(|extent| range.contains(**extent)).count();
    assert!(ranges.iter().all(|range| inside(range) > 0), "what was mapped anew: {report:#?}");
    assert_eq!(ranges.iter().map(inside).sum::<usize>(), damage[0].extents.len(), "and nothing else");
}

#[test]
fn repair_goes_on_with_the_log_where_it_can() {
    let bed = Bed::new(5);
    bed.world.run(bed.populate());
    bed.quiesce();
    let (victim, root) = bed.roots()[0].clone();
    let leaves = bed.leaves(root);
    let leaf = leaves[leaves.len() - 1].0;
    bed.world.run(async {
        let pool = bed.open().await;
        let new = NewVolume { name: "late".into(), bytes: MIB, origin: None };
        let late = pool.create(&new).await.expect("space");
        let device = pool.volume(late).expect("just created");
        bed.fill(&device, Extent::new(0, 256 * KIB), 5).await;
        device.zero(Extent::new(0, PART_SIZE), ZeroOptions::default()).await.expect("space");
        pool.snapshot(late, "s", false).await.expect("space");
        // Something in the damaged leaf changes, so that the log cannot be replayed.
        let device = pool.volume(pool.named(&victim).expect("it is there").id).expect("it is there");
        let last = device.shape().size - 64 * KIB;
        bed.fill(&device, Extent::new(last, 64 * KIB), 6).await;
        device.flush().await.expect("no faults");
    });
    bed.damage(leaf);
    let report = bed.check();
    assert!(!report.is_sound() && !report.damage.is_empty(), "{report:#?}");
    let (device, arena, clock) = (bed.device(), bed.world.arena(), bed.world.clock());
    let restored = bed.world.run(repair_pool(&device, &arena, &clock, false)).expect("it can be mended");
    assert_eq!(restored.changes_lost, 0);
    assert!(bed.check().is_sound(), "{:#?}", bed.check());
    let contents = bed.contents();
    let late = &contents["late"];
    assert!(
        late[..BLOCK].iter().all(|byte| *byte == 0) && late[BLOCK..256 * 1024].iter().all(|byte| *byte == 5)
    );
    assert_eq!(contents.keys().filter(|name| *name == "s").count(), 1);
    let content = &contents[&victim];
    assert!(
        content[content.len() - 64 * 1024..].iter().all(|byte| *byte == 6),
        "written since, and not lost"
    );
}

#[test]
fn the_old_metadata_is_there_until_the_pool_is_written() {
    let bed = Bed::new(7);
    bed.world.run(bed.populate());
    bed.quiesce();
    let (text, contents, old, slots) = (bed.dump(), bed.contents(), bed.superblock(), bed.disk.peek(SLOTS));
    let mapped = text.lines().filter(|line| !line.starts_with("zero")).count();
    assert!(mapped > 10);
    bed.restore(&text).expect("it fits");
    assert_eq!(bed.superblock().number, old.number + 1);
    // As if the new superblock had never been written.
    bed.disk.poke(0, &slots);
    assert_eq!(bed.superblock(), old);
    assert!(bed.check().is_sound(), "RESTORE2: {:#?}", bed.check());
    assert!(bed.contents() == contents && bed.dump() == text);
}

/// What is written after a checkpoint and flushed is known to the log alone.
#[test]
fn what_only_the_old_log_leads_to_is_there_until_the_pool_is_written() {
    let bed = Bed::with_blocks(30, PART_SIZE); // what is free is taken without a gap
    bed.pair();
    let (text, old) = (bed.dump(), bed.superblock());
    bed.world.run(async {
        let pool = bed.open().await;
        let new = NewVolume { name: "late".into(), bytes: 8 * MIB, origin: None };
        let device = pool.volume(pool.create(&new).await.expect("space")).expect("just created");
        for (_, piece) in Extent::new(0, 8 * MIB).pieces(64 * KIB) {
            bed.fill(&device, piece, 9).await;
        }
        device.flush().await.expect("no faults");
    });
    let (later, contents, slots) = (bed.dump(), bed.contents(), bed.disk.peek(SLOTS));
    assert!(bed.superblock() == old && later != text, "it is in no checkpoint");
    bed.restore(&text).expect("it fits");
    // As if the new superblock had never been written.
    bed.disk.poke(0, &slots);
    assert_eq!(bed.superblock(), old);
    assert!(bed.check().is_sound(), "RESTORE2: {:#?}", bed.check());
    assert!(bed.dump() == later && bed.contents() == contents, "RESTORE2");
}

#[test]
fn a_crash_during_a_restore_leaves_the_old_or_the_new() {
    let (olds, news) = (Cell::new(0), Cell::new(0));
    for_each_crash_point(11, |world| {
        let (disk, texts) = (SimDisk::new(4 * MIB), RefCell::new(None));
        let (arena, clock) = (world.arena(), world.clock());
        let _crashed = world.run_until_crash(async {
            let device = disk.device(world);
            let format = PoolFormat { block_size: PART_SIZE, ..PoolFormat::new(Uuid::from_u128(7 << 64)) };
            Pool::format(&device, &arena, format).await.expect("large enough");
            let opened =
                Pool::open(device.clone(), arena.clone(), clock.clone(), PoolOptions::default()).await;
            let pool = opened.expect("just formatted");
            let new = NewVolume { name: "one".into(), bytes: MIB, origin: None };
            let id = pool.create(&new).await.expect("space");
            let volume = pool.volume(id).expect("just created");
            for part in [0, 3, 9] {
                let data = arena.copy(&[1; BLOCK]);
                volume.write(part * PART_SIZE, data, Durability::Volatile).await.expect("space");
                pool.snapshot(id, &format!("s{part}"), false).await.expect("space");
            }
            pool.checkpoint().await.expect("no faults");
            let text = dump_pool(&device, &arena, &clock).await.expect("sound");
            // What comes now is in the log alone, and not in the text.
            let late = NewVolume { name: "late".into(), bytes: 4 * MIB, origin: None };
            let late = pool.volume(pool.create(&late).await.expect("space")).expect("just created");
            for number in 0..10 {
                let data = arena.copy(&[9; 256 << 10]);
                late.write(number * 256 * KIB, data, Durability::Volatile).await.expect("space");
            }
            late.flush().await.expect("no faults");
            drop((volume, late, pool));
            let later = dump_pool(&device, &arena, &clock).await.expect("sound");
            *texts.borrow_mut() = Some((text.clone(), later));
            restore_pool(&device, &arena, &clock, &text, false).await.expect("it fits");
        });
        let Some((text, later)) = texts.take() else { return };
        world.run(async {
            let device = disk.device(world);
            let found = dump_pool(&device, &arena, &clock).await.expect("sound");
            let report = check_pool(&device, &arena, &clock).await.expect("a pool");
            assert!(report.is_sound(), "{report:#?}");
            if found == text {
                return news.set(news.get() + 1);
            }
            assert!(found == later, "it is the old one or the new one: {found}");
            olds.set(olds.get() + 1);
            let pool = Pool::open(device, arena.clone(), clock, PoolOptions::default()).await.expect("sound");
            let late = pool.volume(pool.named("late").expect("it is there").id).expect("listed");
            let content = late.read(0, arena.take(10 * (256 << 10))).await.expect("no faults");
            assert!(content.iter().all(|byte| *byte == 9), "RESTORE2: no node lies there");
        });
    });
    assert!(olds.get() > 3 && news.get() > 0, "{olds:?} {news:?}");
}

/// A bed with some records behind the checkpoint, each of a write; and the block of the first of them.
fn with_records(seed: u64, count: u64) -> (Bed, Block) {
    let bed = Bed::new(seed);
    bed.pair();
    let superblock = bed.superblock();
    assert!(superblock.head > 0 && superblock.head + count + 4 < superblock.log_blocks, "{superblock:?}");
    bed.world.run(async {
        let pool = bed.open().await;
        let device = pool.volume(1).expect("the first one");
        for number in 0..count {
            bed.fill(&device, Extent::new(number * MIB, 64 * KIB), 9).await;
            device.flush().await.expect("no faults");
        }
    });
    (bed, superblock.ring() + superblock.head)
}

#[test]
fn a_block_of_the_log_that_cannot_be_read_is_no_end_of_a_check_or_a_repair() {
    let unreadable = |bed: &Bed, block: Block| bed.disk.make_unreadable(block.extent());
    // Where the next record would be, in both of its places.
    for is_first in [true, false] {
        let (bed, first) = with_records(31, 3);
        let (superblock, contents, text) = (bed.superblock(), bed.contents(), bed.dump());
        // No next record can be there.
        unreadable(&bed, superblock.ring() + superblock.log_blocks - 1);
        assert!(bed.check().is_sound() && bed.contents() == contents);
        let block = if is_first { superblock.ring() } else { first + 3 };
        unreadable(&bed, block);
        let report = bed.check();
        assert!(says(&report, "the log: ") && report.damage.is_empty(), "{report:#?}");
        assert_eq!(bed.repair().expect("it can be mended").changes_lost, 0);
        assert!(bed.check().is_sound(), "{:#?}", bed.check());
        assert!(bed.contents() == contents, "nothing is lost");
        unreadable(&bed, superblock.ring());
        assert!(!bed.check().is_sound());
        bed.restore(&text).expect("it fits");
        assert!(bed.check().is_sound() && bed.contents() == contents && bed.dump() == text);
    }
    // A record with unknown content.
    let (bed, first) = with_records(32, 3);
    unreadable(&bed, first + 1);
    let report = bed.check();
    assert!(says(&report, "and 1 behind it") && report.damage.len() == 1, "{report:#?}");
    bed.repair().expect("it can be mended");
    assert!(bed.check().is_sound(), "{:#?}", bed.check());
    let one = &bed.contents()["one"];
    assert!(one[0] == 9 && one[1 << 20] != 9, "what was said before is there");
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
    };
    !bytes.iter().fold(!0, step)
}

#[test]
fn a_pool_that_was_repaired_can_be_opened_whatever_lies_in_its_ring() {
    let (bed, first) = with_records(33, 1);
    // A record of a kind that only a later version knows, with another missing before it.
    let changes = vec![Change::Remove { volume: 1 }];
    let pool = Uuid::from_u128(7 << 64).as_u64_pair().0;
    let mut bytes = vec![0; BLOCK];
    Record { sequence: bed.superblock().sequence + 2, pool, epoch: Default::default(), changes }
        .encode(&mut bytes);
    bytes[64] = 99;
    bytes[4..8].fill(0);
    let checksum = crc32c(&bytes);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    assert!(matches!(Record::decode(&bytes), Err(PoolFormatError::Invalid(_))));
    bed.disk.poke((first + 2).offset(), &bytes);
    assert!(!bed.check().is_sound(), "REPLAY1");
    bed.repair().expect("it can be mended");
    assert!(bed.check().is_sound(), "{:#?}", bed.check());
    assert_eq!(bed.contents()["one"][0], 9);
}

/// The copy from which a rollback into another size is made is being removed all the while: a repair leaves it out, and
/// cannot make the rollback again.
#[test]
fn a_volume_of_which_a_whole_change_is_lost_stays_what_it_was() {
    let bed = Bed::new(34);
    bed.world.run(async {
        let pool = bed.open().await;
        let new = NewVolume { name: "one".into(), bytes: MIB, origin: None };
        let id = pool.create(&new).await.expect("space");
        let device = pool.volume(id).expect("just created");
        bed.fill(&device, Extent::new(0, MIB), 1).await;
        let snapshot = pool.snapshot(id, "s", true).await.expect("space");
        bed.fill(&device, Extent::new(0, MIB), 2).await;
        let held_back = pool.claim(id).await.expect("it is there");
        let rolled_back = pool.roll_back_in_size(id, snapshot, 512 * KIB);
        let others = async {
            bed.world.clock().sleep(std::time::Duration::from_secs(9)).await;
            assert_eq!(pool.list().len(), 3, "there is a copy");
            pool.checkpoint().await.expect("no faults");
            drop(held_back);
        };
        let (done, ()) = futures_util::join!(rolled_back, others);
        done.expect("space");
        let device = pool.volume(id).expect("it is there");
        bed.fill(&device, Extent::new(256 * KIB, 64 * KIB), 3).await;
        pool.snapshot(id, "t", false).await.expect("space");
    });
    assert_eq!(bed.contents()["one"][..PART_SIZE as usize], [1; BLOCK]);
    let restored = bed.repair().expect("it can be mended");
    assert_eq!(restored.behind, ["one"], "RESTORE4: {restored:?}");
    assert!(
        restored.changes_lost >= 3,
        "the rollback, a write, and a snapshot that would be another: {restored:?}"
    );
    assert!(bed.check().is_sound(), "{:#?}", bed.check());
    let contents = bed.contents();
    assert!(contents["one"].len() == 1 << 20 && contents["one"].iter().all(|byte| *byte == 2), "RESTORE4");
    assert!(contents["s"].iter().all(|byte| *byte == 1) && !contents.contains_key("t"));
}
