//! How many hold a block, where it is more than one: nodes of the maps and data alike.
//!
//! Counts lie in a map of runs of blocks. A change of them is a difference in memory first, added to what the map says,
//! and goes into the map, a leaf at a time, before a checkpoint. So counting never needs a block that is not in
//! memory; only the question whether a block has a single holder does.
//!
//! Invariants:
//! - REFCOUNT1. What the map and the difference say together is never below zero.
//! - REFCOUNT2. No run of the map reaches into the next leaf.
//! - REFCOUNT3. At a checkpoint there is no difference.
//! - REFCOUNT4. A block that a volume has released is shared until a commit is durable that began after that, and until
//!   every request has ended that began before that commit: after a crash before it the volume holds the block still, and
//!   one of its reads may be on its way to it. So does what a node leads to that a volume has released: when a copy takes
//!   its place, that is noted for each of its children.

use super::super::InjectedBug;
use crate::pdata::{AllocClass, Alone, Pages, Span, Stop, Tree};
use crate::reader_epochs::ReaderEpochs;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use varve_format::pdata::node::{Key, Value};
use varve_format::pdata::{Block, BlockError, BlockRun};
use varve_format::thin::Share;

/// Runs of blocks and a number for each: first, length, number.
type Numbers = BTreeMap<Block, (u64, i64)>;

/// What is there is never shared.
const SUPERBLOCK: Block = Block::new(0);
/// The most differences that go into the map at once.
const FOLD_MAX: usize = 256;
/// With more batches than these, the oldest two become one.
const BATCHES_MAX: usize = 8;

/// What was released between the beginnings of two commits (REFCOUNT4).
struct Batch {
    runs: Numbers,
    /// Requests that began before may still read them.
    mark: u64,
    /// Whether the commit has ended.
    durable: bool,
}

/// What was released, and may still be held or read (REFCOUNT4).
#[derive(Default)]
struct Lately {
    /// Since the last commit began.
    now: Numbers,
    /// Before it, the oldest first.
    before: VecDeque<Batch>,
}

pub(in crate::thin) struct RefCounts {
    root: Cell<Tree>,
    /// Shared with read views, which go on to see it as it was.
    difference: RefCell<Rc<Numbers>>,
    lately: RefCell<Lately>,
    readers: ReaderEpochs,
    /// A fault for tests that prove that this is noticed.
    injected_bug: Option<InjectedBug>,
}

impl RefCounts {
    pub(in crate::thin) fn open(
        root: Tree,
        readers: ReaderEpochs,
        injected_bug: Option<InjectedBug>,
    ) -> Self {
        let root = Cell::new(root);
        Self { root, difference: RefCell::default(), lately: RefCell::default(), readers, injected_bug }
    }

    /// The counts of this instant, for a read view: it alone keeps their map readable.
    pub(in crate::thin) fn as_they_are(&self) -> RefCounts {
        let difference = RefCell::new(Rc::clone(&self.difference.borrow()));
        Self { difference, ..Self::open(self.root(), ReaderEpochs::default(), None) }
    }

    pub(in crate::thin) fn root(&self) -> Tree {
        self.root.get()
    }

    /// Number of runs of which the map does not know yet.
    pub(in crate::thin) fn differences(&self) -> usize {
        self.difference.borrow().len()
    }

    pub(in crate::thin) fn increment(&self, run: BlockRun) {
        assert!(run.first > SUPERBLOCK, "a superblock is never shared");
        add(Rc::make_mut(&mut self.difference.borrow_mut()), run, 1);
    }

    pub(in crate::thin) fn decrement(&self, run: BlockRun) {
        assert!(run.first > SUPERBLOCK, "a superblock is never shared");
        add(Rc::make_mut(&mut self.difference.borrow_mut()), run, -1);
        self.note_decrement(run);
    }

    /// A volume has released what leads to the blocks (REFCOUNT4).
    pub(in crate::thin) fn note_decrement(&self, run: BlockRun) {
        add(&mut self.lately.borrow_mut().now, run, 1);
    }

    /// Whether a volume released one of the blocks, and may hold it again after a crash or read it now (REFCOUNT4).
    pub(in crate::thin) fn were_shared_lately(&self, run: BlockRun) -> bool {
        assert!(run.count > 0, "some block is asked about");
        self.retire();
        let reaches = |numbers: &Numbers| {
            let last = numbers.range(..run.end()).next_back();
            last.is_some_and(|(start, (length, _))| *start + *length > run.first)
        };
        let lately = self.lately.borrow();
        let reached = reaches(&lately.now) || lately.before.iter().any(|batch| reaches(&batch.runs));
        reached && self.injected_bug != Some(InjectedBug::OverwriteSharedLately)
    }

    /// A commit begins.
    pub(in crate::thin) fn commit_begins(&self) {
        let lately = &mut *self.lately.borrow_mut();
        assert!(lately.before.iter().all(|batch| batch.durable), "POOLCOMMIT1: one commit at a time");
        if !lately.now.is_empty() {
            let runs = std::mem::take(&mut lately.now);
            lately.before.push_back(Batch { runs, mark: self.readers.mark(), durable: false });
        }
    }

    /// The commit that had begun is durable.
    pub(in crate::thin) fn commit_ended(&self) {
        self.lately.borrow_mut().before.iter_mut().for_each(|batch| batch.durable = true);
        self.retire();
        let lately = &mut *self.lately.borrow_mut();
        if lately.before.len() > BATCHES_MAX
            && let Some(oldest) = lately.before.pop_front()
            && let Some(next) = lately.before.front_mut()
        {
            for (first, (blocks, number)) in oldest.runs {
                add(&mut next.runs, BlockRun::new(first, blocks), number);
            }
        }
    }

    /// Forgets what former holders can no longer hold or read.
    fn retire(&self) {
        let before = &mut self.lately.borrow_mut().before;
        assert!(before.len() <= BATCHES_MAX + 1, "old ones become one");
        let forgets = self.injected_bug == Some(InjectedBug::ForgetReaders);
        while before
            .front()
            .is_some_and(|batch| batch.durable && (forgets || self.readers.have_ended(batch.mark)))
        {
            before.pop_front();
        }
    }

    /// Batches are few and their marks rise; where debug assertions are compiled in, differences are runs that say something.
    pub(in crate::thin) fn assert_consistent(&self) {
        let before = &self.lately.borrow().before;
        assert!(before.len() <= BATCHES_MAX + 1, "REFCOUNT4: old ones become one");
        assert!(before.iter().is_sorted_by_key(|batch| batch.mark), "REFCOUNT4: readers end in their order");
        if cfg!(debug_assertions) {
            let difference = self.difference.borrow();
            let mut at = SUPERBLOCK;
            for (first, (blocks, number)) in difference.iter().take(FOLD_MAX) {
                assert!(*first >= at && *blocks > 0 && *number != 0, "REFCOUNT1: a run at {first}");
                at = *first + *blocks;
            }
        }
    }

    /// How many others hold `block`.
    pub(in crate::thin) fn others(&self, pages: &mut Pages, block: Block) -> Result<u64, Stop> {
        let span = self.root.get().span(pages, Share::key_of(block))?;
        let count = span.entries().partition_point(|entry| entry.0 <= Share::key_of(block));
        let share = count.checked_sub(1).map(|index| noted_at(&span, index)).transpose()?;
        let noted = share.filter(|share| share.run.end() > block).map_or(0, |share| signed(share.others));
        let difference = self.difference.borrow();
        let last = difference.range(..=block).next_back();
        let change =
            last.filter(|(first, (blocks, _))| **first + *blocks > block).map_or(0, |(_, run)| run.1);
        unsigned(noted + change, block)
    }

    /// How many others hold each of these blocks, in runs.
    pub(in crate::thin) fn pieces(&self, pages: &mut Pages, run: BlockRun) -> Result<Vec<Share>, Stop> {
        assert!(run.count > 0, "some block is asked about");
        if run.count == 1 {
            // The usual case of small writes, without any table.
            return Ok(vec![Share { run, others: self.others(pages, run.first)? }]);
        }
        let end = run.end();
        let mut numbers = Numbers::new();
        let (mut at, tree) = (run.first, self.root.get());
        loop {
            let span = tree.span(pages, Share::key_of(at))?;
            let from = span.entries().partition_point(|entry| entry.0 <= Share::key_of(at)).saturating_sub(1);
            let last = span.entries().partition_point(|entry| entry.0 < Share::key_of(end)).max(from);
            for index in from..last {
                let share = noted_at(&span, index)?;
                if let Some(piece) = share.run.intersect(run) {
                    numbers.insert(piece.first, (piece.count, signed(share.others)));
                }
            }
            match span.end.and_then(Share::block_of).filter(|next| *next < end) {
                Some(next) => at = next,
                None => break,
            }
        }
        let difference = self.difference.borrow();
        let before = difference.range(..run.first).next_back().into_iter();
        for (start, (length, number)) in before.chain(difference.range(run.first..end)) {
            if let Some(piece) = BlockRun::new(*start, *length).intersect(run) {
                add(&mut numbers, piece, *number);
            }
        }
        fill(&numbers, run)
    }

    /// Puts the differences of one leaf into the map; `false` if there is none left.
    pub(in crate::thin) fn try_fold(&self, pages: &mut Pages) -> Result<bool, Stop> {
        let mut difference = self.difference.borrow_mut();
        let difference = Rc::make_mut(&mut difference);
        let Some(first) = difference.keys().next().copied() else { return Ok(false) };
        let mut tree = self.root.get();
        let span = tree.span(pages, Share::key_of(first))?;
        let end = span.end.and_then(Share::block_of).unwrap_or(Block::new(u64::MAX));
        let noted = (0..span.entries().len()).map(|index| noted_at(&span, index));
        let mut numbers = noted
            .map(|share| share.map(|share| (share.run.first, (share.run.count, signed(share.others)))))
            .collect::<Result<Numbers, Stop>>()?;
        cut(difference, end); // REFCOUNT2
        let folded: Vec<_> =
            difference.range(..end).take(FOLD_MAX).map(|(first, run)| (*first, *run)).collect();
        for (first, (length, number)) in &folded {
            add(&mut numbers, BlockRun::new(*first, *length), *number);
        }
        drop(span);
        tree.edit(pages, &Alone, Share::key_of(first), entries(&numbers)?, AllocClass::Reserve)?;
        self.root.set(tree);
        for (first, _) in &folded {
            difference.remove(first);
        }
        Ok(true)
    }
}

/// What entry `index` of a leaf counts, if it can be: it ends before the next begins (REFCOUNT2).
fn noted_at(span: &Span, index: usize) -> Result<Share, Stop> {
    let (key, value) = &span.entries()[index];
    let next = span.entries().get(index + 1).map(|next| next.0).or(span.end);
    let can_be = |share: &Share| {
        let is_apart = next.is_none_or(|next| Share::key_of(share.run.end()) <= next);
        share.run.first > SUPERBLOCK && is_apart
    };
    let share = Share::decode(*key, value).ok().filter(can_be);
    share.ok_or(Stop::Damaged(span.leaf().0, BlockError::Invalid("REFCOUNT2: a count that cannot be")))
}

fn signed(others: u64) -> i64 {
    i64::try_from(others).expect("MAPPING3: a count of holders has six bytes")
}

/// REFCOUNT1: what is counted of `block`; less than nothing says that a map leads to it of which the counts know nothing.
fn unsigned(number: i64, block: Block) -> Result<u64, Stop> {
    let why = "REFCOUNT1: fewer are counted than hold it";
    u64::try_from(number).map_err(|_| Stop::Damaged(block, BlockError::Invalid(why)))
}

/// Makes a run begin at `at` if one reaches over it.
fn cut(numbers: &mut Numbers, at: Block) {
    let Some((first, (length, number))) = numbers.range(..at).next_back().map(|(first, run)| (*first, *run))
    else {
        return;
    };
    if first + length > at {
        numbers.insert(first, (at - first, number));
        numbers.insert(at, (first + length - at, number));
    }
}

/// Adds `number` to that of each of the blocks.
fn add(numbers: &mut Numbers, run: BlockRun, number: i64) {
    assert!(run.count > 0 && number != 0, "something changes");
    let last = numbers.range_mut(..run.end()).next_back();
    let Some((first, noted)) = last.filter(|(first, noted)| **first + noted.0 > run.first) else {
        numbers.insert(run.first, (run.count, number));
        return;
    };
    let (there, old) = (BlockRun::new(*first, noted.0), noted.1);
    if there.first > run.first || there.end() < run.end() {
        return add_across(numbers, run, number);
    }
    // The usual case of small writes: one run holds all of them.
    match (run.first - there.first, old + number) {
        (0, 0) => drop(numbers.remove(&there.first)),
        (0, sum) => *noted = (run.count, sum),
        (before, sum) => {
            noted.0 = before;
            if sum != 0 {
                numbers.insert(run.first, (run.count, sum));
            }
        }
    }
    if run.end() < there.end() {
        numbers.insert(run.end(), (there.end() - run.end(), old));
    }
}

/// As [`add`], whatever runs the blocks lie in.
fn add_across(numbers: &mut Numbers, run: BlockRun, number: i64) {
    let (first, end) = (run.first, run.end());
    cut(numbers, first);
    cut(numbers, end);
    let there: Vec<_> = numbers.range(first..end).map(|(first, run)| (*first, *run)).collect();
    let mut at = first;
    for (start, (length, old)) in there {
        if at < start {
            numbers.insert(at, (start - at, number));
        }
        if old + number == 0 {
            numbers.remove(&start);
        } else {
            numbers.insert(start, (length, old + number));
        }
        at = start + length;
    }
    if at < end {
        numbers.insert(at, (end - at, number));
    }
}

/// The numbers of all blocks of `asked`, those included that have none.
fn fill(numbers: &Numbers, asked: BlockRun) -> Result<Vec<Share>, Stop> {
    assert!(numbers.keys().next().is_none_or(|start| *start >= asked.first), "only what was asked");
    let (mut at, mut pieces) = (asked.first, Vec::new());
    for (start, (length, number)) in numbers {
        if at < *start {
            pieces.push(Share { run: BlockRun::between(at, *start), others: 0 });
        }
        let run = BlockRun::new(*start, *length);
        pieces.push(Share { run, others: unsigned(*number, *start)? });
        at = run.end();
    }
    if at < asked.end() {
        pieces.push(Share { run: BlockRun::between(at, asked.end()), others: 0 });
    }
    Ok(pieces)
}

/// The entries of a leaf; neighbours with the same number are one run.
fn entries(numbers: &Numbers) -> Result<Vec<(Key, Value)>, Stop> {
    let mut shares: Vec<Share> = Vec::with_capacity(numbers.len());
    for (first, (blocks, number)) in numbers {
        let share = Share { run: BlockRun::new(*first, *blocks), others: unsigned(*number, *first)? };
        match shares.last_mut() {
            Some(last) if last.run.end() == share.run.first && last.others == share.others => {
                last.run.count += share.run.count;
            }
            _ => shares.push(share),
        }
    }
    Ok(shares.iter().map(|share| (share.key(), share.value())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdata::{Map, MapOptions, tests::memory};
    use futures_executor::block_on;
    use proptest::prelude::*;
    use varve_block::Arena;

    fn run(first: u64, blocks: u64) -> BlockRun {
        BlockRun::new(Block::new(first), blocks)
    }

    proptest! {
        #[test]
        fn numbers_say_what_an_array_says(changes in prop::collection::vec((0_u64..40, 1_u64..12, -2_i64..3), 1..60)) {
            let (mut numbers, mut model) = (Numbers::new(), [0; 60]);
            for (first, count, number) in changes.into_iter().filter(|change| change.2 != 0) {
                add(&mut numbers, run(first, count), number);
                model[first as usize..(first + count) as usize].iter_mut().for_each(|sum| *sum += number);
                let mut said = [0; 60];
                let mut end = Block::new(0);
                for (first, (count, number)) in &numbers {
                    prop_assert!(*first >= end && *count > 0 && *number != 0, "runs are apart and say something");
                    end = *first + *count;
                    said[(*first - SUPERBLOCK) as usize..(end - SUPERBLOCK) as usize].fill(*number);
                }
                prop_assert_eq!(said, model);
            }
        }
    }

    /// Runs are cut at the end of a leaf, and counted whole (REFCOUNT2).
    #[test]
    fn runs_that_reach_over_leaves_are_counted_everywhere() {
        let map = Map::open(
            memory(3000),
            Arena::heap(1 << 20),
            &MapOptions::fresh(9, Block::new(2), Block::new(3000)),
        );
        let ref_counts = RefCounts::open(Tree::EMPTY, ReaderEpochs::default(), None);
        let fold = || while block_on(map.run(|pages| ref_counts.try_fold(pages))).expect("room") {};
        for block in (1001..2000).step_by(2) {
            ref_counts.increment(run(block, 1));
        }
        fold();
        ref_counts.increment(run(1001, 999));
        fold();
        for block in 1001..2000 {
            let others = block_on(map.run(|pages| ref_counts.others(pages, Block::new(block))));
            assert_eq!(others, Ok(if block % 2 == 1 { 2 } else { 1 }), "{block}");
        }
        let pieces = block_on(map.run(|pages| ref_counts.pieces(pages, run(1001, 999)))).expect("readable");
        assert_eq!(pieces.iter().map(|piece| piece.run.count * piece.others).sum::<u64>(), 999 + 500);
    }

    /// A block is shared until all have ended that may have seen it so (REFCOUNT4).
    #[test]
    fn what_was_released_is_remembered_however_many_commits_pass_by() {
        let readers = ReaderEpochs::default();
        let ref_counts = RefCounts::open(Tree::EMPTY, readers.clone(), None);
        let hangs = readers.enter();
        for block in 100..120 {
            ref_counts.increment(run(block, 1));
            ref_counts.decrement(run(block, 1));
            ref_counts.commit_begins();
            ref_counts.commit_ended();
        }
        for block in 100..120 {
            assert!(ref_counts.were_shared_lately(run(block, 1)), "REFCOUNT4: {block}");
        }
        assert!(ref_counts.were_shared_lately(run(95, 10)), "REFCOUNT4: a run that begins within is seen");
        drop(hangs);
        assert!(!ref_counts.were_shared_lately(run(100, 20)));
    }

    /// REFCOUNT4: a run of several blocks is asked about from its midst.
    #[test]
    fn what_was_released_is_remembered_from_wherever_it_is_asked() {
        let ref_counts = RefCounts::open(Tree::EMPTY, ReaderEpochs::default(), None);
        ref_counts.increment(run(100, 10));
        ref_counts.decrement(run(100, 10));
        for (first, blocks) in [(100, 1), (105, 1), (109, 5), (90, 11), (90, 40)] {
            assert!(ref_counts.were_shared_lately(run(first, blocks)), "REFCOUNT4: {first} and {blocks}");
        }
        assert!(!ref_counts.were_shared_lately(run(110, 5)) && !ref_counts.were_shared_lately(run(90, 10)));
    }
}
