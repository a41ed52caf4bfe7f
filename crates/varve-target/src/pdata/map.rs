//! The asynchronous side of the map: reads the blocks that attempts ask for, writes those that commits consist of.

use super::options::MapOptions;
use super::pages::{Frozen, Needed, Pages, Stop};
use super::space::Space;
use futures_util::{StreamExt, stream};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use varve_block::{Arena, Buffer, Device, Durability, Extent, IoError, LockMode, RangeGuard, RangeLock};
use varve_format::pdata::node::Node;
use varve_format::pdata::space_page::{Place, SpacePage};
use varve_format::pdata::{Block, BlockError, PDATA_BLOCK};

/// Most nodes of a write-back.
pub const WRITE_BACK_MAX: usize = 256;

/// How fast blocks are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// A request waits for it.
    Prompt,
    /// No request does, and those that come meanwhile shall hardly be delayed.
    Gentle,
}

impl Pace {
    /// Longest single write, in blocks.
    fn blocks(self) -> usize {
        match self {
            Pace::Prompt => 32,
            Pace::Gentle => 8,
        }
    }

    /// Most nodes of a write-back. A commit waits for one under way, so a write-back that no request waits for is short.
    fn nodes(self) -> usize {
        match self {
            Pace::Prompt => WRITE_BACK_MAX,
            Pace::Gentle => 16,
        }
    }

    /// Writes that are on their way at once; each is made up only when its turn comes, so that others get theirs.
    fn writes(self) -> usize {
        match self {
            Pace::Prompt => 8,
            Pace::Gentle => 1,
        }
    }
}

/// Why a map could not be read or changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// The device failed.
    Io(IoError),
    /// There is no free block left.
    Full,
    /// A block of the map is damaged.
    Damaged {
        /// Which one.
        block: Block,
        /// What is wrong with it.
        error: BlockError,
    },
}

impl From<IoError> for MapError {
    /// Only the space map says [`MapError::Full`].
    fn from(error: IoError) -> Self {
        MapError::Io(of_device(error))
    }
}

/// An error of a device, for callers that tell a full store from a failing one: only what is missing in the store's own books is
/// [`IoError::NoSpace`].
pub(crate) fn of_device(error: IoError) -> IoError {
    if error == IoError::NoSpace { IoError::HostFull } else { error }
}

/// The maps of one store, all in one space.
pub struct Map {
    pages: RefCell<Pages>,
    device: RefCell<Device>,
    arena: Arena,
    /// Held while a node is read, on its number (PDATA7).
    node_turns: RangeLock,
    /// Held while a page is read, on the number of its group (PDATA7).
    page_turns: RangeLock,
    /// Whether nodes are being written (PDATA6).
    writes_nodes: Cell<bool>,
}

/// A transaction that ended and is being written.
#[must_use = "a frozen transaction is written and then committed"]
pub struct Commit {
    frozen: Frozen,
}

impl Commit {
    /// The transaction that it ends.
    pub fn generation(&self) -> u64 {
        self.frozen.generation
    }
    /// Free blocks once it is committed; goes into the superblock.
    pub fn free_blocks(&self) -> u64 {
        self.frozen.free
    }
    /// The first block behind the store, as the space map knows it.
    pub fn end_block(&self) -> Block {
        self.frozen.end
    }
    /// Nodes of all maps; goes into the superblock.
    pub fn nodes(&self) -> u64 {
        self.frozen.node_count
    }
    /// Where the pages of the space map lie once it is committed; goes into the superblock.
    pub fn places(&self) -> &[Place] {
        &self.frozen.places
    }
}

impl Map {
    /// The maps on `device`. Reads nothing yet.
    pub fn open(device: Device, arena: Arena, options: &MapOptions) -> Self {
        let places = options.places.clone();
        let (base, end) = (options.base_block, options.end_block);
        let space = Space::new(options.store, base, end, options.free_blocks, places);
        Self {
            pages: RefCell::new(Pages::new(options, space)),
            device: RefCell::new(device),
            arena,
            node_turns: RangeLock::new(),
            page_turns: RangeLock::new(),
            writes_nodes: Cell::new(false),
        }
    }

    /// What can be asked and changed without waiting.
    pub fn pages(&self) -> std::cell::RefMut<'_, Pages> {
        self.pages.borrow_mut()
    }

    /// Carries out `attempt`, reading what it asks for until it ends.
    pub async fn run<T>(
        &self,
        mut attempt: impl FnMut(&mut Pages) -> Result<T, Stop>,
    ) -> Result<T, MapError> {
        let mut pins = Vec::new();
        let mut _in_use = None;
        let mut turn: Option<(Needed, RangeGuard)> = None;
        loop {
            let evictions = self.pages.borrow().evictions();
            let result = attempt(&mut self.pages.borrow_mut());
            assert_eq!(self.pages.borrow().evictions(), evictions, "NODECACHE3: an attempt evicts no node");
            match result {
                Ok(value) => return Ok(value),
                Err(Stop::Full) => return Err(MapError::Full),
                Err(Stop::Damaged(block, error)) => return Err(damaged(block, error)),
                Err(Stop::Missing(Needed::Node(address))) if !self.pages.borrow().is_inside(address) => {
                    let why = "it lies where no block of a map can lie";
                    return Err(damaged(address, BlockError::Invalid(why)));
                }
                Err(Stop::Missing(needed)) => {
                    // What was read for this attempt stays until it ends, or a small cache would never let it end.
                    pins.push(Pin::new(self, needed));
                    // PDATA5: the block that is read now is not used for something else meanwhile.
                    _in_use = Some(self.pages.borrow().in_use());
                    // No task waits for a turn while it has another.
                    let mine = turn.take().filter(|(known, _)| *known == needed);
                    match self.turn(needed, mine).await {
                        (guard, true) => turn = Some((needed, guard)),
                        (_guard, false) => self.load(needed).await?,
                    }
                }
            }
        }
    }

    /// PDATA7: the turn to read `needed`, unless it is `mine` already; and whether it had to be waited for. Then the
    /// attempt is made again first: another task may have read it, or it is not wanted any more.
    async fn turn(&self, needed: Needed, mine: Option<(Needed, RangeGuard)>) -> (RangeGuard, bool) {
        let (turns, number) = match needed {
            Needed::Node(address) => (&self.node_turns, address.number()),
            Needed::Page(group) => (&self.page_turns, group),
        };
        let own = Extent::new(number, 1);
        match mine.map(|(_, guard)| guard).or_else(|| turns.try_lock(own, LockMode::Exclusive)) {
            Some(guard) => (guard, false),
            None => (turns.lock(own, LockMode::Exclusive).await, true),
        }
    }

    /// Reads `needed`. The caller has the turn.
    async fn load(&self, needed: Needed) -> Result<(), MapError> {
        match needed {
            Needed::Node(address) => {
                let block = self.read(address).await?;
                let node = Node::decode(&block, address).map_err(|error| damaged(address, error))?;
                let mut pages = self.pages.borrow_mut();
                if let Some(objection) = pages.objection(&node) {
                    return Err(damaged(address, BlockError::Invalid(objection)));
                }
                pages.admit_node(node);
            }
            Needed::Page(group) => {
                let found = self.load_page(group).await?;
                let mut pages = self.pages.borrow_mut();
                assert!(!pages.is_loaded(needed), "PDATA7");
                pages.admit_page(group, found);
            }
        }
        Ok(())
    }

    /// The page of a group that belongs to the last commit.
    async fn load_page(&self, group: u64) -> Result<Option<SpacePage>, MapError> {
        let (address, frozen, store) = {
            let pages = self.pages.borrow();
            (pages.page_address(group), pages.last_frozen(), pages.store())
        };
        let Some(address) = address else { return Ok(None) };
        let block = self.read(address).await?;
        let page = SpacePage::decode(&block, address).map_err(|error| damaged(address, error))?;
        if page.store != store || page.group != group || page.generation > frozen {
            return Err(damaged(address, BlockError::Invalid("a page of another store, group or time")));
        }
        Ok(Some(page))
    }

    async fn read(&self, address: Block) -> Result<Buffer, MapError> {
        if !self.pages.borrow().is_inside(address) {
            return Err(damaged(address, BlockError::Invalid("it lies behind the end of the store")));
        }
        let device = self.device.borrow().clone();
        Ok(device.read(address.offset(), self.arena.take(PDATA_BLOCK)).await?)
    }

    /// Ends the transaction under way. `prepare`, an attempt, makes the last changes and says what the superblock
    /// must know of that very instant.
    pub async fn freeze<T>(
        &self,
        mut prepare: impl FnMut(&mut Pages) -> Result<T, Stop>,
    ) -> Result<(Commit, T), MapError> {
        let frozen = self.freeze_when(|pages| prepare(pages).map(Some)).await?;
        Ok(frozen.expect("it was to be frozen whatever came"))
    }

    /// As [`Map::freeze`], if `prepare` says at that very instant that everything is as it should be.
    pub async fn freeze_when<T>(
        &self,
        mut prepare: impl FnMut(&mut Pages) -> Result<Option<T>, Stop>,
    ) -> Result<Option<(Commit, T)>, MapError> {
        self.run(|pages| {
            if let Some(needed) = pages.missing_for_commit() {
                return Err(Stop::Missing(needed));
            }
            if let Some(block) = pages.contradiction() {
                let why = "SPACE1: it was freed, and is not in use or was freed before";
                return Err(Stop::Damaged(block, BlockError::Invalid(why)));
            }
            Ok(prepare(pages)?.map(|prepared| (Commit { frozen: pages.freeze() }, prepared)))
        })
        .await
    }

    /// Writes everything that a commit consists of, except the superblock. Nothing is durable before a flush.
    pub async fn write(&self, commit: &Commit) -> Result<(), MapError> {
        self.write_nodes(&commit.frozen.nodes, Pace::Prompt).await?;
        let images = commit.frozen.images.iter().map(async |image| {
            let mut block = self.arena.take(PDATA_BLOCK);
            image.page.encode(&mut block, image.address);
            self.write_blocks(image.address, block).await
        });
        in_turn(images, Pace::Prompt.writes()).await
    }

    /// The superblock that names the commit's roots is durable.
    pub fn committed(&self, commit: Commit) {
        self.pages.borrow_mut().committed();
        drop(commit);
    }

    /// Writes some dirty nodes where they will stay, so that the cache may evict them before the commit. Goes on where
    /// it ended the last time.
    pub async fn write_back(&self, pace: Pace) -> Result<(), MapError> {
        let dirty = self.pages.borrow_mut().dirty_in_turn(pace.nodes());
        self.write_nodes(&dirty, pace).await
    }

    async fn write_nodes(&self, nodes: &[Rc<Node>], pace: Pace) -> Result<(), MapError> {
        let runs = nodes.chunk_by(|one, two| one.address + 1 == two.address);
        let runs = runs.flat_map(|run| run.chunks(pace.blocks())).map(|run| self.write_run(run));
        assert!(!self.writes_nodes.replace(true), "PDATA6: nodes are written by one at a time");
        let outcome = in_turn(runs, pace.writes()).await;
        self.writes_nodes.set(false);
        outcome
    }

    /// Writes nodes that lie one behind the other.
    async fn write_run(&self, run: &[Rc<Node>]) -> Result<(), MapError> {
        assert!(
            run.windows(2).all(|pair| pair[0].address + 1 == pair[1].address),
            "PDATA6: one write, one run"
        );
        let mut buffer = self.arena.take(run.len() * PDATA_BLOCK);
        for (block, node) in buffer.chunks_exact_mut(PDATA_BLOCK).zip(run) {
            node.encode(block);
        }
        self.write_blocks(run[0].address, buffer).await?;
        let mut pages = self.pages.borrow_mut();
        run.iter().for_each(|node| pages.written(node));
        pages.shrink();
        Ok(())
    }

    async fn write_blocks(&self, address: Block, buffer: Buffer) -> Result<(), MapError> {
        assert!(!buffer.is_empty() && buffer.len().is_multiple_of(PDATA_BLOCK), "nodes and pages are blocks");
        let device = self.device.borrow().clone();
        device.write(address.offset(), buffer.freeze(), Durability::Volatile).await?;
        Ok(())
    }

    /// The store ends before `end_block` now, on `device`.
    pub fn grow(&self, device: Device, end_block: Block) {
        assert!(device.shape().size >= end_block.offset());
        self.device.replace(device);
        self.pages.borrow_mut().grow(end_block);
    }

    /// So many free blocks are for nodes alone from now on.
    pub fn set_floor(&self, floor_blocks: u64) {
        self.pages.borrow_mut().set_floor(floor_blocks);
    }
}

/// Carries out `writes`, so many at once, all of them to their end: what is still on its way may not be written again,
/// nor its place used for something else. The first error.
async fn in_turn(
    writes: impl Iterator<Item = impl Future<Output = Result<(), MapError>>>,
    at_once: usize,
) -> Result<(), MapError> {
    let mut writes = stream::iter(writes).buffer_unordered(at_once);
    let mut outcome = Ok(());
    while let Some(written) = writes.next().await {
        outcome = outcome.and(written);
    }
    outcome
}

fn damaged(block: Block, error: BlockError) -> MapError {
    MapError::Damaged { block, error }
}

/// Keeps a node or page in memory while an attempt that asked for it goes on.
struct Pin<'a> {
    map: &'a Map,
    needed: Needed,
}

impl<'a> Pin<'a> {
    fn new(map: &'a Map, needed: Needed) -> Self {
        map.pages.borrow_mut().pin(needed);
        Self { map, needed }
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.map.pages.borrow_mut().unpin(self.needed);
    }
}
