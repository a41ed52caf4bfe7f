//! Questions to and changes of a volume's map, as attempts over the blocks in memory; each is about one leaf.
//!
//! Every change is logged where it is made, in the same instant: the log says the same things in the same order.

use super::super::lifecycle::volume::{Lately, Volume};
use super::super::{InjectedBug, Pool};
use super::runs::{Runs, Segment, before, leaf_end, replace, segments, within};
use crate::pdata::{AllocClass, Gone, MapError, Pages, Stop};
use varve_format::pdata::node::Key;
use varve_format::pdata::{Block, BlockRun};
use varve_format::thin::{Change, Mapping};

/// Where fresh blocks for some parts should lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::thin) struct Hint {
    /// Directly behind, or where the neighbours in the same block of the pool leave room.
    pub(in crate::thin) place: Option<Block>,
}

/// What becomes of a write to some parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::thin) enum Target {
    /// The blocks are the volume's own: in place.
    Own(Block),
    /// Fresh blocks are needed.
    Fresh(Hint),
}

impl Pool {
    /// What the parts from `from` to `to` are.
    pub(in crate::thin) fn try_resolve(
        &self,
        pages: &mut Pages,
        volume: &Volume,
        from: u64,
        to: u64,
    ) -> Result<Vec<Segment>, Stop> {
        assert!(from < to, "something is asked");
        let (mut found, mut at) = (Vec::new(), from);
        while at < to {
            let span = volume.tree.get().span(pages, Key::from(at))?;
            let end = leaf_end(span.end).min(to);
            segments(Runs::of(&span, self.bounds()), at, end, &mut found)?;
            at = end;
        }
        Ok(found)
    }

    /// As [`Pool::try_resolve`], for as much as the leaf of `from` knows.
    pub(in crate::thin) fn try_resolve_some(
        &self,
        pages: &mut Pages,
        volume: &Volume,
        from: u64,
        to: u64,
    ) -> Result<Vec<Segment>, Stop> {
        let span = volume.tree.get().span(pages, Key::from(from))?;
        let mut found = Vec::new();
        segments(Runs::of(&span, self.bounds()), from, leaf_end(span.end).min(to), &mut found)?;
        Ok(found)
    }

    /// Where a write to the parts from `from` to `to` goes: runs of parts, in order.
    pub(in crate::thin) fn try_plan(
        &self,
        pages: &mut Pages,
        volume: &Volume,
        from: u64,
        to: u64,
    ) -> Result<Vec<(u64, u64, Target)>, Stop> {
        assert!(from < to, "something is written");
        let (mut targets, mut at) = (Vec::new(), from);
        while at < to {
            let span = volume.tree.get().span(pages, Key::from(at))?;
            let end = leaf_end(span.end).min(to);
            let (mut found, runs) = (Vec::new(), Runs::of(&span, self.bounds()));
            segments(runs, at, end, &mut found)?;
            for segment in found {
                match segment.mapping {
                    Some(mapping) if mapping.place.is_some() => {
                        self.plan_mapped(pages, volume, span.leaf().1, mapping, &mut targets)?;
                    }
                    _ => {
                        push(&mut targets, segment.start, segment.count, Target::Fresh(Hint { place: None }));
                    }
                }
            }
            for (start, _, target) in &mut targets {
                if let Target::Fresh(hint) = target
                    && *start >= at
                {
                    hint.place = self.hint(volume, before(runs, *start)?, *start);
                }
            }
            at = end;
        }
        Ok(targets)
    }

    /// THIN4: in place where the volume alone holds the blocks. `made` is the generation of their leaf.
    fn plan_mapped(
        &self,
        pages: &mut Pages,
        volume: &Volume,
        made: u64,
        mapping: Mapping,
        targets: &mut Vec<(u64, u64, Target)>,
    ) -> Result<(), Stop> {
        assert!(mapping.birth <= made, "RUNS3: no run is younger than its leaf");
        let lies = mapping.blocks().expect("MAPPING2: only zeros lie nowhere");
        let held = volume.held(&self.ref_counts, self.bounds());
        if mapping.birth > held.last_clone || self.has_bug(InjectedBug::OverwriteShared) {
            push(targets, mapping.start, mapping.count, Target::Own(lies.first));
            return Ok(());
        }
        let fresh = Target::Fresh(Hint { place: None });
        // No branch is older than the leaf (DESCENT2): a leaf that was made since the last clone is the volume's own.
        let may_share = made <= held.last_clone;
        if may_share && volume.tree.get().is_shared(pages, &Lately(held), mapping.key())? {
            push(targets, mapping.start, mapping.count, fresh);
            return Ok(());
        }
        for piece in self.ref_counts.pieces(pages, lies)? {
            let start = mapping.start + (piece.run.first - lies.first);
            let shared = piece.others > 0 || self.ref_counts.were_shared_lately(piece.run);
            let target = if shared { fresh } else { Target::Own(piece.run.first) };
            push(targets, start, piece.run.count, target);
        }
        Ok(())
    }

    /// Behind the run before, if that is the volume's own and follows or is in the same block of the volume.
    fn hint(&self, volume: &Volume, before: Option<Mapping>, start: u64) -> Option<Block> {
        let before = before.filter(|run| run.birth > volume.last_clone.get())?;
        let place = before.place?;
        let near = before.end() == start || (before.end() - 1) / self.unit() == start / self.unit();
        near.then(|| place + (start - before.start))
    }

    /// Maps the parts of `new` that lie in the leaf of the first; their blocks were taken unpublished. Where the rest
    /// begins.
    pub(in crate::thin) fn try_map(
        &self,
        pages: &mut Pages,
        volume: &Volume,
        new: Mapping,
    ) -> Result<u64, Stop> {
        let end = self.try_put(pages, volume, new)?;
        if let Some(place) = new.place {
            pages.publish(BlockRun::new(place, end - new.start));
        }
        Ok(end)
    }

    /// As [`Pool::try_map`], for blocks that others may hold already: the caller counts them.
    pub(in crate::thin) fn try_put(
        &self,
        pages: &mut Pages,
        volume: &Volume,
        new: Mapping,
    ) -> Result<u64, Stop> {
        let (mut tree, held) = (volume.tree.get(), volume.held(&self.ref_counts, self.bounds()));
        let span = tree.span(pages, new.key())?;
        let end = leaf_end(span.end).min(new.end());
        assert!(new.start < end, "RUNS1: a part of {new:?} lies in the leaf");
        assert!(pages.generation() > held.last_clone, "EDIT2: what is mapped now is nobody else's");
        let new = Mapping { count: end - new.start, birth: pages.generation(), ..new };
        let runs = Runs::of(&span, self.bounds());
        let (change, replaced) = replace(runs, (new.start, end), Some(new), held.last_clone)?;
        let gone = replaced.iter().filter_map(Mapping::blocks).map(|run| run.count).sum();
        volume.can_count(gone)?;
        drop(span); // So that the leaf is changed in its place.
        for old in &replaced {
            held.require(pages, old)?;
        }
        tree.splice(pages, &held, new.key(), change, AllocClass::Reserve)?;
        volume.set_tree(tree);
        let at_once = self.has_bug(InjectedBug::ReuseAtOnce);
        replaced.iter().for_each(|old| held.release(pages, old, at_once));
        volume.count(new.blocks().map_or(0, |run| run.count), gone);
        Ok(end)
    }

    /// Unmaps what is mapped from `from` to `to` in the leaf of `from`. Where the next leaf begins, and whether anything
    /// was unmapped.
    pub(in crate::thin) fn try_unmap(
        &self,
        pages: &mut Pages,
        volume: &Volume,
        from: u64,
        to: u64,
    ) -> Result<(u64, bool), Stop> {
        let (mut tree, held) = (volume.tree.get(), volume.held(&self.ref_counts, self.bounds()));
        assert!(from < to, "something is unmapped");
        let span = tree.span(pages, Key::from(from))?;
        let end = leaf_end(span.end).min(to);
        let runs = Runs::of(&span, self.bounds());
        let gone: Vec<_> = within(runs, from, end).collect::<Result<_, _>>()?;
        if gone.is_empty() {
            return Ok((end, false));
        }
        let unmapped = gone.iter().filter_map(Mapping::blocks).map(|run| run.count).sum();
        volume.can_count(unmapped)?;
        // Only the first and the last of them may have been cut.
        let is_uncut = |index: usize| Ok(gone[index] == runs.at(index)?);
        let whole = gone.len() == runs.len() && is_uncut(0)? && is_uncut(gone.len() - 1)?;
        let shared = tree.is_shared(pages, &held, Key::from(from))?;
        if !(whole && shared) {
            for old in &gone {
                held.require(pages, old)?;
            }
        }
        let mut released = true;
        if whole {
            let dropped = tree.drop_leaf(pages, &held, Key::from(from))?;
            released = matches!(dropped, Some(Gone::Own(_)));
        } else {
            let (change, _) = replace(runs, (from, end), None, held.last_clone)?;
            drop(span);
            tree.splice(pages, &held, Key::from(from), change, AllocClass::Reserve)?;
        }
        volume.set_tree(tree);
        if released {
            let at_once = self.has_bug(InjectedBug::ReuseAtOnce);
            gone.iter().for_each(|old| held.release(pages, old, at_once));
        }
        volume.count(0, unmapped);
        Ok((end, true))
    }

    /// Maps `new`, all of it, and logs it; if that fails, says what is not mapped.
    pub(in crate::thin) async fn map(
        &self,
        volume: &Volume,
        new: Mapping,
    ) -> Result<(), (MapError, Mapping)> {
        let mut rest = new;
        while rest.count > 0 {
            let attempt = |pages: &mut Pages| {
                let end = self.try_map(pages, volume, rest)?;
                let Mapping { start, place, .. } = rest;
                let volume = volume.id;
                self.log(match place {
                    None => Change::Zero { volume, start, end },
                    Some(place) => Change::Map { volume, start, count: end - start, place },
                });
                Ok(end)
            };
            let end = self.map.run(attempt).await.map_err(|error| (error, rest))?;
            rest = rest.behind(end - rest.start);
        }
        Ok(())
    }

    /// Unmaps everything from `from` to `to` that one leaf holds, and logs it; where to go on.
    pub(in crate::thin) async fn unmap_some(
        &self,
        volume: &Volume,
        from: u64,
        to: u64,
    ) -> Result<u64, MapError> {
        let attempt = |pages: &mut Pages| {
            let (end, changed) = self.try_unmap(pages, volume, from, to)?;
            if changed {
                self.log(Change::Unmap { volume: volume.id, start: from, end });
            }
            Ok(end)
        };
        self.map.run(attempt).await
    }
}

/// Adds a run, as part of the one before if it goes on.
fn push(targets: &mut Vec<(u64, u64, Target)>, start: u64, count: u64, target: Target) {
    assert!(count > 0, "a run has parts");
    if let Some((last_start, last_count, last)) = targets.last_mut()
        && *last_start + *last_count == start
    {
        let goes_on = match (*last, target) {
            (Target::Own(one), Target::Own(two)) => one + *last_count == two,
            (Target::Fresh(_), Target::Fresh(_)) => true,
            _ => false,
        };
        if goes_on {
            *last_count += count;
            return;
        }
    }
    targets.push((start, count, target));
}
