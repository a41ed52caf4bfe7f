//! The walk through the nodes of the maps: each is read once, however many lead to it.

use super::super::PoolError;
use super::super::maps::runs;
use super::checker::{Checker, Known};
use crate::pdata::OF_ANOTHER_TIME;
use varve_format::pdata::link::Link;
use varve_format::pdata::node::{Entries, Key, Value};
use varve_format::pdata::{Block, BlockRun};
use varve_format::thin::{Mapping, Share};

/// What a node must be, going by the one above it.
#[derive(Clone, Copy)]
struct Under {
    /// Its level; none for a root.
    level: Option<u32>,
    /// The oldest that may have made it.
    generation: u64,
    /// The smallest key that it may contain, and the smallest that it may not.
    first: Key,
    end: Option<Key>,
}

/// A branch, some of whose children were visited.
struct Branch {
    block: Block,
    under: Under,
    generation: u64,
    children: Vec<(Key, Link)>,
    next: usize,
    known: Known,
}

enum Look {
    Ended(Known),
    Below(Branch),
}

impl Branch {
    /// The next child, and what it must be.
    fn next_child(&mut self) -> Option<(Link, Under)> {
        let (key, link) = *self.children.get(self.next)?;
        self.next += 1;
        assert!(self.known.level > 0, "NODE3: a branch is no leaf");
        // The first child takes what comes before its key too.
        let first = if self.next == 1 { self.under.first } else { key.max(self.under.first) };
        let end = self.children.get(self.next).map(|child| child.0).or(self.under.end);
        let under = Under { level: Some(self.known.level - 1), generation: self.generation, first, end };
        Some((link, under))
    }
}

impl Checker<'_> {
    /// Visits a tree; what is known of its root.
    pub(super) async fn walk(&mut self, root: Link, is_alone: bool) -> Result<Known, PoolError> {
        let generation = self.pool.map.pages().generation();
        let whole = Under { level: None, generation, first: 0, end: None };
        let mut branches = match self.look(root, is_alone, whole).await? {
            Look::Ended(known) => return Ok(known),
            Look::Below(branch) => vec![branch],
        };
        loop {
            let last = branches.last_mut().expect("the root ends the walk");
            if let Some((link, under)) = last.next_child() {
                match self.look(link, is_alone, under).await? {
                    Look::Below(branch) => branches.push(branch),
                    Look::Ended(known) => {
                        let parent = branches.last_mut().expect("it leads here");
                        self.absorb(parent, link.block(), under, known);
                    }
                }
                continue;
            }
            let branch = branches.pop().expect("the root ends the walk");
            self.nodes.insert(branch.block, branch.known);
            match branches.last_mut() {
                None => return Ok(branch.known),
                Some(parent) => self.absorb(parent, branch.block, branch.under, branch.known),
            }
        }
    }

    /// Adds what is known of a child.
    fn absorb(&mut self, parent: &mut Branch, block: Block, under: Under, known: Known) {
        assert!(parent.known.level > 0, "NODE3: a branch is no leaf");
        let runs = known.first < known.end;
        let inside =
            Key::from(known.first) >= under.first && under.end.is_none_or(|end| Key::from(known.end) <= end);
        if runs && !known.is_alone && !inside {
            self.report.error(format!("RUNS1: node {block} maps parts that are not its own"));
            self.broken.insert(block);
        }
        let whole = &mut parent.known;
        whole.mapped = whole.mapped.saturating_add(known.mapped);
        (whole.first, whole.end) = (whole.first.min(known.first), whole.end.max(known.end));
        whole.is_whole &= known.is_whole && !self.broken.contains(&block);
    }

    /// Looks at one node.
    async fn look(&mut self, link: Link, is_alone: bool, under: Under) -> Result<Look, PoolError> {
        self.breathe().await?;
        let block = link.block();
        if let Some(known) = self.nodes.get(&block).copied() {
            if is_alone || known.is_alone {
                self.report.error(format!("POOLCHECK3: block {block} is a node of two maps"));
            }
            if under.level.is_some_and(|level| level != known.level) && !self.broken.contains(&block) {
                return Ok(Look::Ended(self.breaks(link, is_alone, "is on another level")));
            }
            if known.link != link && !self.broken.contains(&block) {
                return Ok(Look::Ended(self.breaks(link, is_alone, OF_ANOTHER_TIME)));
            }
            return Ok(Look::Ended(known));
        }
        if !self.pool.is_inside(BlockRun::one(block)) {
            return Ok(Look::Ended(self.breaks(link, is_alone, "lies where none can lie")));
        }
        let node = match self.read_node(link).await {
            Ok(node) => node,
            Err(why) => return Ok(Look::Ended(self.breaks(link, is_alone, &why))),
        };
        if under.level.is_some_and(|level| level != node.level) {
            return Ok(Look::Ended(self.breaks(link, is_alone, "is on another level")));
        }
        if node.generation > under.generation {
            return Ok(Look::Ended(self.breaks(
                link,
                is_alone,
                "is younger than what leads to it (POOLCHECK1)",
            )));
        }
        let known = Known::nothing(link, node.level, is_alone);
        match &node.entries {
            Entries::Branch(children) => {
                let (generation, children) = (node.generation, children.clone());
                Ok(Look::Below(Branch { block, under, generation, children, next: 0, known }))
            }
            Entries::Leaf(entries) => {
                let known = match is_alone {
                    true => self.look_at_share(link, entries, known),
                    false => self.look_at_runs(link, node.generation, entries, known),
                };
                self.nodes.insert(block, known);
                Ok(Look::Ended(known))
            }
        }
    }

    /// A node that cannot be used.
    fn breaks(&mut self, link: Link, is_alone: bool, why: &str) -> Known {
        let block = link.block();
        self.report.error(format!("node {block}: {why}"));
        self.broken.insert(block);
        self.are_counts_readable &= !is_alone;
        let known = Known { is_whole: false, ..Known::nothing(link, 0, is_alone) };
        *self.nodes.entry(block).or_insert(known)
    }

    /// The entries of a leaf of a volume's map.
    fn look_at_runs(&mut self, link: Link, generation: u64, entries: &[(Key, Value)], known: Known) -> Known {
        let runs = match runs::of_leaf(entries, generation) {
            Ok(runs) => runs,
            Err(why) => return self.breaks(link, false, why),
        };
        if !self.pool.are_inside(&runs) {
            return self.breaks(link, false, "maps parts to where no data can lie");
        }
        let data = runs.iter().filter_map(Mapping::blocks);
        self.report.runs += data.clone().count() as u64;
        Known {
            first: runs.first().map_or(known.first, |run| run.start),
            end: runs.last().map_or(known.end, |run| run.end()),
            mapped: data.map(|run| run.count).sum(),
            ..known
        }
    }

    /// The entries of a leaf of the map of shares, or of the map of volumes, whose keys are much larger.
    fn look_at_share(&mut self, link: Link, entries: &[(Key, Value)], known: Known) -> Known {
        assert!(known.is_alone, "these maps are never cloned");
        let shares = entries.iter().filter(|entry| u64::try_from(entry.0).is_ok());
        let mut end = self.pool.base_block(); // The log and the superblocks are never shared.
        for (key, value) in shares {
            match Share::decode(*key, value) {
                Ok(share) if share.run.first >= end => end = share.run.end(),
                _ => return self.breaks(link, true, "counts what cannot be"),
            }
        }
        known
    }
}
