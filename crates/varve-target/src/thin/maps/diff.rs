//! In which parts two volumes of a pool differ, from metadata alone, in proportion to what differs.
//!
//! What both hold is the same block of a node, wherever it hangs in the two trees: such nodes are struck from both sides,
//! level by level, before they are read. In what remains, a part that is in the same place in both does not differ.
//!
//! Invariant POOLDIFF1: the nodes that are believed are those that the engine and a check believe (DESCENT1 of `pdata::down`, POOLCHECK1 of
//! `check`, RUNS3 of `runs.rs`): what a repair takes for a volume's is what a check calls whole.

use super::super::{Pool, PoolError};
use super::read_view::ReadView;
use super::runs;
use super::runs::{Content, leaf_end};
use crate::pdata::{Down, MapError, Pages, Stop, Tree};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use varve_block::{Extent, joined};
use varve_format::pdata::BlockError;
use varve_format::pdata::link::Link;
use varve_format::pdata::node::{Entries, Key, Node, Value};
use varve_format::thin::{Mapping, Origin, PART_SIZE};

/// Nodes of one tree that are left to compare, all on one level.
struct Side {
    /// Not known before the root is read.
    level: Option<u32>,
    nodes: Vec<Below>,
}

/// What a node may be, and of which generation it may be at most (POOLDIFF1).
pub(in crate::thin) type Below = (Down, u64);

/// What becomes of nodes that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::thin) enum Damage {
    /// Nothing can be said.
    Refuse,
    /// They say nothing.
    PassOver,
}

/// Parts that lie in different places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::thin) struct Difference {
    pub(in crate::thin) start: u64,
    pub(in crate::thin) end: u64,
    /// What they are in the second.
    pub(in crate::thin) content: Content,
}

impl Difference {
    fn extent(&self) -> Extent {
        Extent::between(self.start * PART_SIZE, self.end * PART_SIZE)
    }
}

impl Pool {
    /// The extents in which `one` and `two` may differ, in order and joined. What is behind the end of the shorter one
    /// differs where the longer one has something. Zeros that were written differ from what never was, and all that the
    /// origin of one shows differs if the other has another or none ([`Pool::have_same_origin`]). All of it at one instant;
    /// everything goes on meanwhile.
    pub async fn diff(&self, one: u64, two: u64) -> Result<Vec<Extent>, PoolError> {
        let (one, two, (first, second)) = self
            .walk(&[one, two], async |view| {
                let (one, two) = (view.volumes[0], view.volumes[1]);
                let view = Some(view);
                let leaves = self.leaves_that_differ(one.tree, two.tree, Damage::Refuse, view).await?;
                Ok((one, two, leaves))
            })
            .await?;
        let shown = origins_differ(one.over, two.over);
        let mut extents: Vec<Extent> = differences(&first, &second).iter().map(Difference::extent).collect();
        if !shown.is_empty() {
            extents.push(Extent::between(shown.start * PART_SIZE, shown.end * PART_SIZE));
        }
        Ok(joined(extents))
    }

    /// The runs of the leaves that only one of the two trees has, in `view` if they may change meanwhile.
    pub(in crate::thin) async fn leaves_that_differ(
        &self,
        one: Tree,
        two: Tree,
        damage: Damage,
        view: Option<&ReadView<'_>>,
    ) -> Result<(Vec<Mapping>, Vec<Mapping>), PoolError> {
        let side = |tree: Tree| Side { level: None, nodes: self.top(tree).into_iter().collect() };
        let mut sides = [side(one), side(two)];
        let mut found = [Vec::new(), Vec::new()];
        loop {
            strike(&mut sides);
            for side in &mut sides {
                self.find_level(side, damage).await?;
            }
            let levels = sides.iter().filter(|side| !side.nodes.is_empty()).filter_map(|side| side.level);
            let Some(highest) = levels.max() else { return Ok(found.into()) };
            for (side, found) in sides.iter_mut().zip(&mut found) {
                if side.level != Some(highest) {
                    continue; // The other tree is higher: it comes down first.
                }
                let mut below = Side { level: highest.checked_sub(1), nodes: Vec::new() };
                for node in std::mem::take(&mut side.nodes) {
                    if let Some(view) = view {
                        view.breathe().await?;
                    }
                    match self.step_down(node).await {
                        Ok((nodes, runs)) => {
                            below.nodes.extend(nodes);
                            found.extend(runs);
                        }
                        Err(_) if damage == Damage::PassOver => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                *side = below;
            }
        }
    }

    /// The root of a tree, if there is one.
    pub(in crate::thin) fn top(&self, tree: Tree) -> Option<Below> {
        let generation = self.map.pages().generation();
        (!tree.root.is_none()).then(|| (Down::root(tree.root), generation))
    }

    /// The nodes below one, or the runs in it, if it is one that may be there (POOLDIFF1).
    pub(in crate::thin) async fn step_down(
        &self,
        below: Below,
    ) -> Result<(Vec<Below>, Vec<Mapping>), MapError> {
        let (down, _) = below;
        let node = self.node_below(below).await?;
        let (mut nodes, mut found) = (Vec::new(), Vec::new());
        match &node.entries {
            Entries::Branch(children) => {
                let child = |index| (down.to_child(&node, children, index), node.generation);
                nodes.extend((0..children.len()).map(child));
            }
            Entries::Leaf(entries) => {
                found = self.runs_of(entries, down, node.generation).map_err(|why| MapError::Damaged {
                    block: down.address(),
                    error: BlockError::Invalid(why),
                })?;
            }
        }
        assert!(nodes.is_empty() || node.level > 0, "NODE3: nothing lies below a leaf");
        Ok((nodes, found))
    }

    /// A node, if it is of the level, the keys and the time that may be there (DESCENT1, POOLCHECK1).
    pub(in crate::thin) async fn node_below(&self, (down, youngest): Below) -> Result<Rc<Node>, MapError> {
        let attempt = |pages: &mut Pages| {
            let node = down.node(pages)?;
            if node.generation > youngest {
                let why = BlockError::Invalid("POOLCHECK1: a node that is younger than the one above it");
                return Err(Stop::Damaged(down.address(), why));
            }
            Ok(node)
        };
        self.map.run(attempt).await
    }

    /// RUNS3 and RUNS1: the runs of a leaf.
    fn runs_of(
        &self,
        entries: &[(Key, Value)],
        down: Down,
        generation: u64,
    ) -> Result<Vec<Mapping>, &'static str> {
        let runs = runs::of_leaf(entries, generation)?;
        if runs.last().is_some_and(|run| run.end() > leaf_end(down.high)) || !self.are_inside(&runs) {
            return Err("RUNS1: runs that are not its own, or lie where no data can");
        }
        Ok(runs)
    }

    /// A root says on which level a side begins.
    async fn find_level(&self, side: &mut Side, damage: Damage) -> Result<(), MapError> {
        let (None, Some(node)) = (side.level, side.nodes.first().copied()) else { return Ok(()) };
        assert_eq!(side.nodes.len(), 1, "only the level of a root is not known");
        match self.node_below(node).await {
            Ok(node) => side.level = Some(node.level),
            Err(_) if damage == Damage::PassOver => side.nodes.clear(),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Takes out what is on both sides.
fn strike(sides: &mut [Side; 2]) {
    let [one, two] = sides;
    let links = |side: &Side| side.nodes.iter().map(|(down, _)| down.link).collect::<BTreeSet<Link>>();
    let both: BTreeSet<Link> = links(one).intersection(&links(two)).copied().collect();
    one.nodes.retain(|(down, _)| !both.contains(&down.link));
    two.nodes.retain(|(down, _)| !both.contains(&down.link));
}

/// The parts in which a hole in one volume may not show what a hole in the other does.
fn origins_differ(one: Option<Origin>, two: Option<Origin>) -> Range<u64> {
    let parts = |over: Option<Origin>| over.map_or(0, |over| over.bytes / PART_SIZE);
    let (one_shows, two_shows) = (parts(one), parts(two));
    let are_same = one.zip(two).is_some_and(|(one, two)| one.backing == two.backing);
    let from = if are_same { one_shows.min(two_shows) } else { 0 };
    from..one_shows.max(two_shows)
}

/// Where two lists of runs, each in order, say different things.
pub(in crate::thin) fn differences(one: &[Mapping], two: &[Mapping]) -> Vec<Difference> {
    assert!(one.is_sorted_by_key(|run| run.start), "RUNS1: runs are in order");
    let mut edges: Vec<u64> = one.iter().chain(two).flat_map(|run| [run.start, run.end()]).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut differing = Vec::new();
    let (mut first, mut second) = (one.iter().peekable(), two.iter().peekable());
    for pair in edges.windows(2) {
        let (start, end) = (pair[0], pair[1]);
        let (there, here) = (content(&mut first, start, end), content(&mut second, start, end));
        if there != here {
            differing.push(Difference { start, end, content: here });
        }
    }
    differing
}

/// What the parts from `start` to `end` are, which no edge divides; runs before them are passed.
fn content(runs: &mut std::iter::Peekable<std::slice::Iter<'_, Mapping>>, start: u64, end: u64) -> Content {
    assert!(start < end, "edges rise");
    while runs.next_if(|run| run.end() <= start).is_some() {}
    Content::of(runs.peek().and_then(|run| runs::clip(**run, start, end)))
}
