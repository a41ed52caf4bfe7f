//! In which parts two volumes of a pool differ, from metadata alone, in proportion to what differs.
//!
//! What both hold is the same block of a node, wherever it hangs in the two trees: such nodes are struck from both sides,
//! level by level, before they are read. In what remains, a part that lies in the same place in both is the same.

use super::runs;
use super::{Pool, PoolError};
use crate::pdata::{MapError, Pages, Tree};
use std::collections::BTreeSet;
use std::ops::Range;
use varve_block::Extent;
use varve_format::pdata::node::Entries;
use varve_format::thin::{Mapping, Origin, PART_SIZE};

/// Nodes of one tree that are left to compare, on one level or below.
type Side = Vec<u64>;

impl Pool {
    /// The extents in which `one` and `two` may differ, in order and joined. What lies behind the end of the shorter one
    /// differs where the longer one has something. Zeros that were written differ from what never was, and all that the
    /// origin of one shows from what lies over another one or none ([`Pool::have_same_origin`]). Writes to the two volumes
    /// wait meanwhile.
    pub async fn diff(&self, one: u64, two: u64) -> Result<Vec<Extent>, PoolError> {
        // The walk goes from node to node: none of them may be given up meanwhile.
        let _first = self.manage(one.min(two)).await;
        let _second = if one == two { None } else { Some(self.manage(one.max(two)).await) };
        let (one, two) = (self.find(one)?, self.find(two)?);
        let _closed = (one.gate.close(), two.gate.close());
        one.gate.drained().await;
        two.gate.drained().await;
        let _ticket = self.tickets.take();
        let (first, second) = self.leaves_that_differ(one.tree.get(), two.tree.get()).await?;
        let shown = origins_differ(one.over.get(), two.over.get());
        Ok(compare(&first, &second, shown))
    }

    /// The runs of the leaves that only one of the two trees has.
    async fn leaves_that_differ(
        &self,
        one: Tree,
        two: Tree,
    ) -> Result<(Vec<Mapping>, Vec<Mapping>), MapError> {
        let side = |tree: Tree| -> Side { (tree.root != 0).then_some(tree.root).into_iter().collect() };
        let mut sides = [side(one), side(two)];
        let mut found = [Vec::new(), Vec::new()];
        loop {
            strike(&mut sides);
            let levels = [self.level(&sides[0]).await?, self.level(&sides[1]).await?];
            let Some(highest) = levels.into_iter().flatten().max() else { return Ok(found.into()) };
            for (index, level) in levels.into_iter().enumerate() {
                if level != Some(highest) {
                    continue; // The other tree is higher: it comes down first.
                }
                let mut below = Side::new();
                for block in std::mem::take(&mut sides[index]) {
                    let node = self.map.run(|pages: &mut Pages| pages.node(block)).await?;
                    match &node.entries {
                        Entries::Branch(children) => below.extend(children.iter().map(|child| child.1)),
                        Entries::Leaf(entries) => found[index].extend(entries.iter().map(runs::decode)),
                    }
                }
                sides[index] = below;
            }
        }
    }

    async fn level(&self, side: &Side) -> Result<Option<u32>, MapError> {
        let Some(block) = side.first().copied() else { return Ok(None) };
        self.map.run(|pages: &mut Pages| Ok(Some(pages.node(block)?.level))).await
    }
}

/// Takes out what is on both sides.
fn strike(sides: &mut [Side; 2]) {
    let [one, two] = sides;
    assert!(!one.contains(&0) && !two.contains(&0), "an empty map has no node");
    let first: BTreeSet<u64> = one.iter().copied().collect();
    let both: BTreeSet<u64> = two.iter().copied().filter(|block| first.contains(block)).collect();
    one.retain(|block| !both.contains(block));
    two.retain(|block| !both.contains(block));
}

/// The parts in which a hole in one volume may not show what a hole in the other does.
fn origins_differ(one: Option<Origin>, two: Option<Origin>) -> Range<u64> {
    let parts = |over: Option<Origin>| over.map_or(0, |over| over.bytes / PART_SIZE);
    let (one_shows, two_shows) = (parts(one), parts(two));
    let is_same = one.map(|over| Origin { bytes: 0, ..over }) == two.map(|over| Origin { bytes: 0, ..over });
    let from = if is_same { one_shows.min(two_shows) } else { 0 };
    from..one_shows.max(two_shows)
}

/// Where two lists of runs, each in order, say different things; and the parts of `shown` in any case.
fn compare(one: &[Mapping], two: &[Mapping], shown: Range<u64>) -> Vec<Extent> {
    let mut edges: BTreeSet<u64> = BTreeSet::new();
    if !shown.is_empty() {
        edges.extend([shown.start, shown.end]);
    }
    for run in one.iter().chain(two) {
        edges.extend([run.start, run.end()]);
    }
    let edges: Vec<u64> = edges.into_iter().collect();
    let mut differing: Vec<Extent> = Vec::new();
    let (mut first, mut second) = (one.iter().peekable(), two.iter().peekable());
    for pair in edges.windows(2) {
        let (start, end) = (pair[0], pair[1]);
        let is_same = place(&mut first, start, end) == place(&mut second, start, end);
        if is_same && !shown.contains(&start) {
            continue;
        }
        match differing.last_mut() {
            Some(last) if last.end() == start * PART_SIZE => last.length += (end - start) * PART_SIZE,
            _ => differing.push(Extent::between(start * PART_SIZE, end * PART_SIZE)),
        }
    }
    differing
}

/// Where the parts from `start` to `end`, which no edge divides, lie; runs before them are passed.
fn place(runs: &mut std::iter::Peekable<std::slice::Iter<'_, Mapping>>, start: u64, end: u64) -> Option<u64> {
    assert!(start < end, "edges rise");
    while runs.next_if(|run| run.end() <= start).is_some() {}
    runs.peek().and_then(|run| runs::clip(**run, start, end)).map(|run| run.place)
}
