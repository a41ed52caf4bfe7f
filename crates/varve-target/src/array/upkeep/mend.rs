//! Blocks that a member cannot read, or of which it holds something else than what was written to it: found, had from the others, and
//! written again.
//!
//! Invariant MEND1: a block is mended while its caller holds it alone, where members do not differ since a crash.

use super::super::checksums::{Expected, block_size};
use super::super::read::Unread;
use super::super::sound::{Unsound, settled, sound};
use super::super::{Array, ArrayLayout, combine};
use futures_util::future::join_all;
use varve_block::{Bytes, Extent, IoError, LockMode};
use varve_format::array::{MemberState, fragment_checksum};

/// Why a block is not mended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::array) enum Unmended {
    /// Too much of it is wrong, or it is unknown what is.
    Unsound(Unsound),
    /// The array is out of use.
    Io(IoError),
}

impl From<IoError> for Unmended {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}

impl Array {
    /// Whether members may differ in `extent` since a crash.
    pub(in crate::array) fn differs(&self, extent: Extent) -> bool {
        self.regions.unsynced().has_any(self.regions.of(extent))
    }

    /// What could not be read of `extent`, or was wrong, is written again, block by block; then it is to be read anew. An error if nothing
    /// of it can be.
    pub(in crate::array) async fn heal(&self, unread: Unread, extent: Extent) -> Result<(), IoError> {
        if unread == Unread::Mismatch && self.checksums.is_none() {
            self.note_mismatch(extent);
            return Err(unread.error()); // SOUND2
        }
        let _alone = self.range.lock(extent, LockMode::Exclusive).await;
        if let Unread::Member(place, error) = unread {
            if !self.members.is_in_sync(place) {
                return Ok(()); // It has left since.
            }
            let in_sync = self.members.in_state(MemberState::InSync).len();
            let is_redundant = in_sync as u64 > self.spec.layout.data_members();
            if !is_redundant || (self.differs(extent) && !self.is_mirror()) {
                self.count_error(place, error);
                return Err(error); // ARRAYIO5
            }
            if self.differs(extent) {
                return self.leave_unread(place, extent, error).await;
            }
        }
        self.mend(unread, extent).await
    }

    /// Mends `extent`, which the caller holds alone. An error if something of it is wrong and nothing could be mended: what is wrong beside
    /// what was mended may not matter to the reader.
    async fn mend(&self, unread: Unread, extent: Extent) -> Result<(), IoError> {
        let in_sync = self.members.in_state(MemberState::InSync);
        let (suspects, is_readable) = self.suspects(extent).await;
        let (mut is_mended, mut unsound) = (false, Vec::new());
        if is_readable && let Unread::Member(place, error) = unread {
            self.count_error(place, error); // It passed by itself.
            is_mended = true;
        }
        for block in suspects {
            match self.mend_block(block).await {
                Ok(is_changed) => is_mended |= is_changed,
                Err(Unmended::Io(error)) => return Err(error),
                Err(Unmended::Unsound(_)) => unsound.push(block),
            }
            if self.members.in_state(MemberState::InSync) != in_sync {
                return Ok(()); // The others may have all of the rest.
            }
        }
        if is_mended || unsound.is_empty() {
            return Ok(());
        }
        if self.checksums.is_some() {
            unsound.into_iter().for_each(|block| self.note_mismatch(block));
        }
        Err(unread.error())
    }

    /// Member `place` of a mirror cannot read `extent`, in which members may differ: it leaves if another one can, which is read
    /// from then on (ARRAYREAD2). The caller holds the extent alone.
    async fn leave_unread(&self, place: usize, extent: Extent, error: IoError) -> Result<(), IoError> {
        let inside = self.gate.enter().await;
        self.count_error(place, error);
        let mut others = self.members.sources();
        others.retain(|other| *other != place);
        let mut outcome = Err(error);
        for other in others {
            outcome = self.read_members(extent, &[other]).await.map(drop).map_err(Unread::error);
            if outcome.is_ok() {
                break;
            }
        }
        if outcome.is_ok() {
            self.members.leave([place]);
        }
        drop(inside);
        outcome?;
        self.reconfigure().await
    }

    /// The blocks of `extent` that are not as they should be, all of them if a member cannot read it; and whether all members can.
    async fn suspects(&self, extent: Extent) -> (Vec<Extent>, bool) {
        self.read_pages(extent).await;
        let places = self.members.in_state(MemberState::InSync);
        let runs = self.read_members(extent, &places).await;
        let mut blocks: Vec<Extent> =
            extent.pieces(block_size(self.spec.layout)).map(|(_, block)| block).collect();
        let Ok(runs) = runs else { return (blocks, false) };
        blocks.retain(|block| {
            let (run, whole) = (self.spec.layout.on_members(*block), self.spec.layout.on_members(extent));
            let start = usize::try_from(run.offset - whole.offset).expect("a request is in memory");
            let end = start + usize::try_from(run.length).expect("a block is small");
            let fragments: Vec<&[u8]> = runs.iter().map(|run| &run[start..end]).collect();
            let mut held = places.iter().zip(&fragments);
            held.any(|(place, held)| !self.expected(*place, *block).allows(held)) || !self.agree(&fragments)
        });
        (blocks, true)
    }

    /// What member `place` is expected to have in `block`.
    fn expected(&self, place: usize, block: Extent) -> Expected {
        self.checked(block).map_or(Expected::Unknown, |checksums| checksums.expected(place, block))
    }

    /// Whether the runs of all members in sync fit each other.
    pub(in crate::array) fn agree(&self, runs: &[&[u8]]) -> bool {
        match self.spec.layout {
            ArrayLayout::Mirror { .. } => runs.windows(2).all(|pair| pair[0] == pair[1]),
            ArrayLayout::Ddraid { .. } => {
                runs.len() < self.members.count() || combine::is_consistent(runs, &self.options.arena)
            }
        }
    }

    /// Writes again what is wrong in `block`, which the caller holds alone (MEND1). Returns whether anything is another than before: on
    /// members, of checksums, or which members there are.
    pub(in crate::array) async fn mend_block(&self, block: Extent) -> Result<bool, Unmended> {
        self.mend_block_by(block, true, |held, expected| {
            sound(self.spec.layout, held, expected, &self.options.arena)
        })
        .await
    }

    /// Makes members equal in `block`, which the caller holds alone, where nothing tells what is wrong (MEND1, SCRUB1).
    pub(in crate::array) async fn settle_block(&self, block: Extent) -> Result<(), Unmended> {
        let counts = |held: &[_], _: &[_]| settled(self.spec.layout, held, &self.options.arena);
        self.mend_block_by(block, false, counts).await.map(drop)
    }

    /// Writes to members what `decide` makes of what they hold of `block`, where they hold something else; `is_wrong`: they are known to be wrong
    /// then.
    async fn mend_block_by(
        &self,
        block: Extent,
        is_wrong: bool,
        decide: impl FnOnce(&[Option<Bytes>], &[Expected]) -> Result<Vec<Bytes>, Unsound>,
    ) -> Result<bool, Unmended> {
        let inside = self.gate.enter().await;
        self.latch.check()?;
        self.read_pages(block).await;
        if self.differs(block) {
            return Ok(false); // MEND1
        }
        assert!(block.length <= block_size(self.spec.layout), "MEND1: one block, not {block:?}");
        let places = self.members.in_state(MemberState::InSync);
        let reads = places.iter().map(|place| self.read_members(block, std::slice::from_ref(place)));
        let outcomes = join_all(reads).await;
        let mut held: Vec<Option<Bytes>> = vec![None; self.members.count()];
        let mut errors = vec![None; held.len()];
        for (place, outcome) in places.iter().zip(outcomes) {
            match outcome {
                Ok(runs) => held[*place] = runs.into_iter().next().map(varve_block::Buffer::freeze),
                Err(unread) => {
                    let error = unread.error();
                    self.count_error(*place, error);
                    errors[*place] = Some(error);
                }
            }
        }
        let expected: Vec<Expected> = (0..held.len()).map(|place| self.expected(place, block)).collect();
        let sound = decide(&held, &expected).map_err(Unmended::Unsound)?;
        assert_eq!(sound.len(), self.members.count(), "SOUND1: of each member");
        let mut is_changed = false;
        for place in places.into_iter().filter(|place| held[*place].as_deref() != Some(&sound[*place][..])) {
            if is_wrong && errors[place].is_none() {
                self.note_wrong(place, block);
            }
            let error = errors[place].unwrap_or(IoError::Corrupt);
            let run = self.spec.layout.on_members(block);
            if !self.rewrite(place, run, sound[place].clone(), error).await {
                self.members.leave([place]);
            } else if is_wrong || errors[place].is_some() {
                let healed = &self.members.counters(place).healed;
                healed.set(healed.get() + 1);
            }
            is_changed = true;
        }
        let fragments: Vec<&[u8]> = sound.iter().map(|fragment| &fragment[..]).collect();
        if let Some(checksums) = self.checked(block).filter(|_| self.agree(&fragments)) {
            for (place, fragment) in fragments.into_iter().enumerate() {
                if expected[place] != Expected::Is(fragment_checksum(fragment)) {
                    checksums.set(place, block, fragment);
                    is_changed = true;
                    self.tell();
                }
            }
        }
        drop(inside);
        if self.members.is_leaving() {
            self.reconfigure().await?;
        }
        Ok(is_changed)
    }

    /// Counts a block of which member `place` holds something else than what was written to it.
    fn note_wrong(&self, place: usize, block: Extent) {
        let wrong = &self.members.counters(place).wrong;
        wrong.set(wrong.get() + 1);
        tracing::error!(array = %self.spec.id, member = place, ?block, "a member holds something else than what was written");
        self.tell();
    }
}
