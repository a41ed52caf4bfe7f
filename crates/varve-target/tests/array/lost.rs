//! Arrays of ddraid that lose a data member with the power: what is read of dirty regions, what is written there, and what stays of it.
//!
//! Every fragment holds one of two bytes, so that different versions of a block have fragments in common: only then can old
//! checksums fit what was overwritten (`docs/decisions/0150-pages-with-every-flush.md`).

use super::rig;
use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use varve_block::{Device, Durability, IoError, KIB, MIB, is_zero};
use varve_sim::{CrashAt, CrashKind, Random, SimDisk, World, caught_share, run_seeds, test_name};
use varve_target::array::{
    Array, ArrayLayout, ArrayOptions, ArraySpec, InjectedBug, Member, MemberState, Rates, ReadPolicy,
};

const SIZE: u64 = 2 * MIB;
const METADATA: u64 = 2 * MIB;
const BLOCK: u64 = 4 * KIB;
/// Blocks that are written, in two regions.
const BLOCKS: [u64; 4] = [0, 7, 255, 256];

/// The byte of each fragment.
type Content = Vec<u8>;

/// What a block may hold: the newest last.
#[derive(Default, Clone)]
struct Versions {
    all: Vec<Content>,
    /// How many came before the first of them.
    before: usize,
    /// How many were acknowledged, with those before.
    acknowledged: usize,
    /// The block is torn: each of its sectors may hold any of them.
    is_torn: bool,
    /// It was read or written since a data member was lost: it is refused no more.
    is_known: bool,
    /// Its loss was accepted, and it was not written since: it may hold anything.
    is_anything: bool,
}

impl Versions {
    fn only(content: Content) -> Self {
        Self { all: vec![content], before: 0, acknowledged: 1, ..Self::default() }
    }

    /// Another one is about to be written. Returns how many there were, with it.
    fn push(&mut self, content: Content) -> usize {
        self.all.push(content);
        self.before + self.all.len()
    }

    /// So many are durable: only the last of them, and those behind it, may still be there.
    fn flushed(&mut self, count: usize) {
        let gone = count.saturating_sub(self.before + 1);
        self.all.drain(..gone);
        self.before += gone;
        self.is_torn &= gone == 0;
    }
}

#[derive(Default)]
struct Counts {
    read: AtomicU64,
    refused: AtomicU64,
    narrowed: AtomicU64,
    /// Blocks of lost regions that were written, and boots that ended while they were.
    written: AtomicU64,
    crashed: AtomicU64,
}

struct Host {
    world: World,
    spec: ArraySpec,
    disks: Vec<SimDisk>,
    bug: Option<InjectedBug>,
    blocks: RefCell<Vec<Versions>>,
}

impl Host {
    fn new(seed: u64, bug: Option<InjectedBug>, checksums: bool) -> Self {
        let world = World::new(seed);
        let mut random = world.random();
        let (order, is_written) = (random.between(1, 3) as u32, random.chance(1, 2) || bug.is_some());
        let layout = ArrayLayout::Ddraid { order, block_size: BLOCK };
        let spec = ArraySpec { checksums, ..rig::spec(layout, SIZE, METADATA) };
        let disks = (0..layout.members()).map(|_| SimDisk::new(METADATA + SIZE)).collect();
        let host = Self { world, spec, disks, bug, blocks: RefCell::default() };
        host.world.run(async {
            Array::create(&spec, &host.members(None), &host.world.arena()).await.expect("made");
            let array = host.open(None).await;
            if is_written {
                let zeros = host.world.arena().take_zeroed(SIZE as usize).freeze();
                array.device().write(0, zeros, Durability::Durable).await.expect("no faults");
            }
            array.close().await.expect("no faults");
        });
        host.blocks.replace(vec![Versions::only(vec![0; host.fragments()]); BLOCKS.len()]);
        host
    }

    fn fragments(&self) -> usize {
        self.disks.len() - 1
    }

    fn members(&self, lost: Option<usize>) -> Vec<Member> {
        let device = |place: usize| (lost != Some(place)).then(|| self.disks[place].device(&self.world));
        (0..self.disks.len()).map(|place| rig::member(place, device(place))).collect()
    }

    async fn open(&self, lost: Option<usize>) -> Rc<Array> {
        self.open_at(lost, Rates { floor: u64::MAX, ..Rates::default() }).await
    }

    /// An array that makes members equal so fast.
    async fn open_at(&self, lost: Option<usize>, rates: Rates) -> Rc<Array> {
        let options = ArrayOptions {
            read_policy: ReadPolicy::Data,
            rates,
            release_delay: Duration::from_millis(20),
            injected_bug: self.bug,
            ..ArrayOptions::new(self.world.arena(), self.world.clock())
        };
        rig::open(&self.world, self.spec, self.members(lost), options).await.expect("enough are there")
    }

    fn content(&self, random: &mut Random) -> Content {
        (0..self.fragments()).map(|_| random.below(2) as u8).collect()
    }

    async fn write(&self, device: &Device, index: usize, random: &mut Random) -> Result<(), IoError> {
        let content = self.content(random);
        let durability = if random.chance(1, 6) { Durability::Durable } else { Durability::Volatile };
        let count = self.blocks.borrow_mut()[index].push(content.clone());
        let size = BLOCK as usize / content.len();
        let bytes: Vec<u8> = content.iter().flat_map(|byte| vec![*byte; size]).collect();
        let data = self.world.arena().copy(&bytes);
        let written = device.write(BLOCKS[index] * BLOCK, data, durability).await;
        let mut blocks = self.blocks.borrow_mut();
        if written.is_err() {
            blocks[index].all.pop(); // It was refused before anything was written.
            return written.map(drop);
        }
        (blocks[index].acknowledged, blocks[index].is_known) = (count, true);
        if durability == Durability::Durable {
            blocks[index].flushed(count);
        }
        Ok(())
    }

    async fn flush(&self, device: &Device) {
        let counts: Vec<usize> = self.blocks.borrow().iter().map(|block| block.acknowledged).collect();
        device.flush().await.expect("no faults");
        for (block, count) in self.blocks.borrow_mut().iter_mut().zip(counts) {
            block.flushed(count);
        }
    }

    /// A client of each block, and one that flushes, until the power fails.
    async fn work(&self, array: &Rc<Array>, random: &mut Random) {
        let (device, clock) = (array.device(), self.world.clock());
        let mut pauses = random.fork();
        let writers = (0..BLOCKS.len()).map(|index| {
            let (mut choices, device, clock) = (random.fork(), device.clone(), clock.clone());
            async move {
                loop {
                    self.write(&device, index, &mut choices).await.expect("no faults");
                    if choices.chance(1, 12) {
                        clock.sleep(Duration::from_millis(choices.below(100))).await;
                    }
                }
            }
        });
        let flushes = async {
            loop {
                clock.sleep(Duration::from_micros(pauses.below(600))).await;
                self.flush(&device).await;
            }
        };
        futures_util::join!(futures_util::future::join_all(writers), flushes);
    }

    /// Reads all blocks: what is returned is a version, or sectors of several if all members are there. It is the only one from
    /// now on.
    async fn look(&self, array: &Rc<Array>, is_whole: bool, counts: &Counts) {
        for (index, block) in BLOCKS.iter().enumerate() {
            let buffer = self.world.arena().take(BLOCK as usize);
            match array.device().read(block * BLOCK, buffer).await {
                Ok(found) => {
                    counts.read.fetch_add(1, Ordering::Relaxed);
                    self.check(index, &found, is_whole);
                }
                Err(error) => {
                    assert!(error == IoError::Corrupt && !is_whole, "{error}: block {block}");
                    let is_known = self.blocks.borrow()[index].is_known;
                    assert!(
                        !is_known,
                        "ARRAYLOST3, ARRAYLOST4: block {block} was read or written, and is refused"
                    );
                    counts.refused.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Some blocks are written anew, of lost regions, too; some of them are flushed.
    async fn overwrite(&self, array: &Rc<Array>, random: &mut Random, counts: &Counts) {
        let device = array.device();
        for index in (0..BLOCKS.len()).filter(|_| random.chance(1, 3)).collect::<Vec<_>>() {
            let is_lost = array.lost_regions().contains(&(BLOCKS[index] * BLOCK / MIB));
            assert_eq!(self.write(&device, index, random).await, Ok(()), "block {}", BLOCKS[index]);
            counts.written.fetch_add(u64::from(is_lost), Ordering::Relaxed);
        }
        if random.chance(2, 3) {
            self.flush(&device).await;
        }
    }

    /// What clients do while member `lost` is missing.
    async fn boot_without(&self, lost: usize, random: &mut Random, counts: &Counts) -> Rc<Array> {
        let array = self.open(Some(lost)).await;
        let before = array.status().unsynced;
        self.look(&array, false, counts).await;
        for _ in 0..random.between(1, 3) {
            if random.chance(1, 3) {
                self.world.clock().sleep(Duration::from_secs(5)).await;
            }
            self.overwrite(&array, random, counts).await;
            if random.chance(1, 4) {
                // A superblock begins the log anew.
                array.await_ejections().await.expect("no faults");
                array.accept_loss(|_| false).await.expect("no faults");
            }
            self.look(&array, false, counts).await;
        }
        let narrowed = before.saturating_sub(array.status().unsynced);
        counts.narrowed.fetch_add(narrowed, Ordering::Relaxed);
        array
    }

    /// Member `lost` returns while clients write, until all is whole.
    async fn take_back(&self, array: &Rc<Array>, lost: usize, random: &mut Random, counts: &Counts) {
        if array.status().members[lost].state == MemberState::Away {
            array.attach(lost, self.members(None).swap_remove(lost)).await.expect("it returns");
        }
        let mut writes = random.below(6);
        while !array.status().is_whole() {
            let changes = array.changes();
            self.accept_waiting(array, lost, random).await;
            if writes > 0 && random.chance(1, 2) {
                writes -= 1;
                self.overwrite(array, random, counts).await;
            }
            if changes == array.changes() && !array.status().is_whole() {
                array.changed(changes).await;
            }
        }
    }

    /// The power may have failed when member `lost` was about to be back in sync, so that it is filled anew: it brings nothing back. What
    /// is lost then is accepted, and written anew.
    async fn accept_waiting(&self, array: &Rc<Array>, lost: usize, random: &mut Random) {
        let waiting = array.lost_regions();
        if array.status().members[lost].state != MemberState::CatchingUp || waiting.is_empty() {
            return;
        }
        let is_waiting = |index: &usize| waiting.contains(&(BLOCKS[*index] * BLOCK / MIB));
        let is_unknown = |index: &usize| is_waiting(index) && !self.blocks.borrow()[*index].is_known;
        let unknown: Vec<usize> = (0..BLOCKS.len()).filter(is_unknown).collect();
        unknown.iter().for_each(|index| self.blocks.borrow_mut()[*index].is_anything = true);
        array.accept_loss(|region| waiting.contains(&region)).await.expect("no faults");
        for index in unknown {
            self.write(&array.device(), index, random).await.expect("no faults");
            self.flush(&array.device()).await;
            let mut blocks = self.blocks.borrow_mut();
            let written = blocks[index].all.pop().expect("it was just written");
            blocks[index] = Versions { is_known: true, ..Versions::only(written) };
        }
    }

    fn check(&self, index: usize, found: &[u8], is_whole: bool) {
        let mut blocks = self.blocks.borrow_mut();
        let (versions, fragments) = (&mut blocks[index], self.fragments());
        if versions.is_anything {
            return;
        }
        let size = BLOCK as usize / fragments;
        let held: Content = (0..fragments).map(|fragment| found[fragment * size]).collect();
        let is_even = found.chunks(size).all(|run| run.iter().all(|byte| *byte == run[0]));
        let is_version = is_even && versions.all.contains(&held);
        if is_whole || versions.is_torn {
            let is_some = |(at, byte): (usize, &u8)| versions.all.iter().any(|all| all[at / size] == *byte);
            assert!(
                found.iter().enumerate().all(is_some),
                "block {index} holds what was never written there"
            );
        } else {
            assert!(
                is_version,
                "ARRAYLOST1, ARRAYLOST2, ARRAYLOST3: block {index} is {held:?}, and not one of {:?}",
                versions.all
            );
        }
        if is_even {
            *versions = Versions { is_known: true, ..Versions::only(held) };
        } else {
            versions.is_torn = true;
        }
    }

    /// The power has failed while a data member was missing: what was under way is whole, or was not written.
    fn crashed_again(&self) {
        self.blocks.borrow_mut().iter_mut().for_each(|block| (block.before, block.acknowledged) = (0, 1));
    }

    /// The power has failed. If all members return, what was under way is made of what each of them has.
    fn crashed(&self, all_return: bool) {
        let mut blocks = self.blocks.borrow_mut();
        for block in blocks.iter_mut() {
            (block.before, block.acknowledged) = (0, 1);
            block.is_known = false;
            block.is_torn |= all_return && block.all.len() > 1;
        }
    }
}

fn history(seed: u64, bug: Option<InjectedBug>, counts: &Counts) {
    let checksums = !seed.is_multiple_of(4) || bug.is_some_and(InjectedBug::is_of_checksums);
    let host = Host::new(seed, bug, checksums);
    let mut random = host.world.random();
    let lost = random.below(host.fragments() as u64) as usize;
    // Where a second crash comes soon, what the first one left dirty is refused, and a bug shows nowhere.
    let crashes = if bug.is_some() { 1 } else { random.between(1, 3) };
    for crash in 1..=crashes {
        host.world.schedule(CrashAt::Event(random.between(100, 700)), CrashKind::Power);
        let mut choices = random.fork();
        let ran = host.world.run_until_crash(async {
            let array = host.open(None).await;
            if crash > 1 && choices.chance(1, 2) {
                host.look(&array, true, counts).await;
                host.flush(&array.device()).await;
            }
            host.work(&array, &mut choices).await;
        });
        assert!(ran.crashed(), "clients never end");
        host.crashed(crash < crashes);
    }
    for _ in 0..random.between(1, 3) {
        let mut choices = random.fork();
        if random.chance(1, 2) {
            host.world.schedule(CrashAt::Event(random.between(20, 400)), CrashKind::Power);
        }
        let is_returning = random.chance(1, 3);
        let ran = host.world.run_until_crash(async {
            let array = host.boot_without(lost, &mut choices, counts).await;
            match is_returning {
                true => host.take_back(&array, lost, &mut choices, counts).await,
                false if choices.chance(1, 2) => array.close().await.expect("no faults"),
                false => {}
            }
        });
        counts.crashed.fetch_add(u64::from(ran.crashed()), Ordering::Relaxed);
        if !ran.crashed() {
            host.world.crash(CrashKind::Power);
        }
        match is_returning {
            true => host.crashed(true), // It may have been back in sync.
            false => host.crashed_again(),
        }
    }
    host.world.run(async {
        let array = host.open(random.chance(1, 2).then_some(lost)).await;
        host.take_back(&array, lost, &mut random, counts).await;
        host.look(&array, true, counts).await;
        host.look(&array, true, counts).await;
    });
}

#[test]
fn what_was_flushed_is_read_although_a_data_member_is_lost_with_the_power() {
    static COUNTS: LazyLock<Counts> = LazyLock::new(Counts::default);
    let name = test_name!("what_was_flushed_is_read_although_a_data_member_is_lost_with_the_power");
    run_seeds(name, 1500, |seed| history(seed, None, &COUNTS));
    let Counts { read, refused, narrowed, written, crashed } = &*COUNTS;
    let all = [read, refused, narrowed, written, crashed].map(|count| count.load(Ordering::Relaxed));
    let [read, refused, narrowed, written, crashed] = all;
    let _ = writeln!(
        std::io::stderr(),
        "sim: lost regions: {read} blocks read, {refused} refused, {written} written, {narrowed} regions lost no more, {crashed} crashes"
    );
}

#[test]
fn a_lost_block_that_is_believed_without_reason_is_noticed() {
    for bug in [InjectedBug::FlushBeforePages, InjectedBug::ForgetReadBlocks, InjectedBug::ForgetKnown] {
        caught_share(&format!("{bug:?}"), 2000, 1, |seed| history(seed, Some(bug), &Counts::default()));
    }
}

/// After a crash without the parity nobody knows what pages say of the regions that were dirty; when it has returned all is known again.
#[test]
fn what_was_flushed_is_read_after_a_crash_without_the_parity_and_one_that_loses_a_data_member() {
    for seed in 1..=12 {
        let host = Host::new(seed, None, true);
        let (parity, fragments, mut random) = (host.fragments(), host.fragments(), host.world.random());
        let mut content: Content = (1..=fragments as u8).collect();
        random.shuffle(&mut content);
        let bytes: Vec<u8> =
            content.iter().flat_map(|byte| vec![*byte; BLOCK as usize / fragments]).collect();
        let write = async |array: &Rc<Array>, block: u64| {
            let (device, data) = (array.device(), host.world.arena().copy(&bytes));
            device.write(block * BLOCK, data, Durability::Volatile).await.expect("no faults");
            device.flush().await.expect("no faults");
        };
        host.world.run(async { write(&host.open(Some(parity)).await, 7).await });
        host.world.crash(CrashKind::Power);
        host.world.run(async {
            let array = host.open(None).await;
            while !array.status().is_whole() {
                array.changed(array.changes()).await;
            }
            write(&array, 255).await;
        });
        host.world.crash(CrashKind::Power);
        host.world.run(async {
            let lost = random.below(fragments as u64) as usize;
            let array = host.open(Some(lost)).await;
            for block in [0, 7, 255] {
                let found = array.device().read(block * BLOCK, host.world.arena().take(BLOCK as usize)).await;
                let is_right = |found: &[u8]| if block == 0 { is_zero(found) } else { found == bytes };
                assert!(found.is_ok_and(|found| is_right(&found)), "PAGES2: block {block}, seed {seed}");
            }
        });
    }
}

/// The power fails when of a write only the first data member has it; what is read then, and flushed, is not what pages say. It fails
/// again before that region was made equal, and that member is lost.
#[test]
fn a_region_that_was_dirty_before_is_refused() {
    let host = Host::new(1, Some(InjectedBug::ForgetReadBlocks), true); // It begins written, and no member returns.
    host.world
        .run(async {
            let array = host.open(None).await;
            array.device().write(0, host.world.arena().copy(&[1; BLOCK as usize]), Durability::Volatile).await
        })
        .expect("no faults");
    host.world.crash(CrashKind::Process);
    let size = BLOCK as usize / host.fragments();
    host.disks[1..].iter().for_each(|disk| disk.poke(METADATA, &vec![0; size]));
    let read =
        async |array: &Rc<Array>| array.device().read(0, host.world.arena().take(BLOCK as usize)).await;
    host.world.run(async {
        let array = host.open_at(None, Rates { floor: 1, ceiling: 1 }).await;
        let found = read(&array).await.expect("all members are there");
        assert!(found[..size].iter().all(|byte| *byte == 1) && found[size..].iter().all(|byte| *byte == 0));
        array.device().flush().await.expect("no faults");
        assert_eq!(array.status().unsynced, 1, "it is not equal yet");
    });
    host.world.crash(CrashKind::Power);
    host.world.run(async {
        let array = host.open(Some(0)).await;
        assert_eq!(read(&array).await.err(), Some(IoError::Corrupt), "ARRAYLOST1: zeros fit old pages");
    });
}
