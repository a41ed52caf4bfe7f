//! Blocks of which a member holds something else than what was written to it: found, computed from the others, and written again.
//!
//! Invariant MEND1: a block is mended while its caller holds it alone, where members do not differ since a crash.

use super::checksums::Expected;
use super::sound::{Unsound, sound};
use super::{Array, ArrayLayout, combine, lost};
use futures_util::future::join_all;
use varve_block::{Bytes, Extent, IoError, LockMode};
use varve_format::array::{MemberState, fragment_checksum};

/// Why a block is not mended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unmended {
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
    /// Writes again what is wrong in `extent`; an error if what it should be is not known.
    pub(super) async fn mend(&self, extent: Extent) -> Result<(), IoError> {
        let _alone = self.range.lock(extent, LockMode::Exclusive).await;
        for block in self.suspects(extent).await {
            match self.mend_block(block).await {
                Ok(_) => {}
                Err(Unmended::Io(error)) => return Err(error),
                Err(Unmended::Unsound(_)) => {
                    self.note_mismatch(block);
                    return Err(lost());
                }
            }
        }
        Ok(())
    }

    /// The blocks of `extent` that are not as they should be; all of them if a member cannot read it.
    async fn suspects(&self, extent: Extent) -> Vec<Extent> {
        self.read_pages(extent).await;
        let Some(checksums) = self.checked(extent) else { return Vec::new() };
        let places = self.members.in_state(MemberState::InSync);
        let runs = self.read_members(extent, &places).await;
        let mut blocks: Vec<Extent> = extent.pieces(checksums.block_size()).map(|(_, block)| block).collect();
        let Ok(runs) = runs else { return blocks };
        let (size, mut number) = (checksums.fragment_size(), 0);
        blocks.retain(|block| {
            let fragments: Vec<&[u8]> = runs.iter().map(|run| &run[number * size..][..size]).collect();
            number += 1;
            let mut held = places.iter().zip(&fragments);
            let is_wrong = held.any(|(place, held)| !checksums.expected(*place, *block).allows(held));
            is_wrong || !self.agree(&fragments)
        });
        blocks
    }

    /// Whether the runs of all members in sync fit each other.
    pub(super) fn agree(&self, runs: &[&[u8]]) -> bool {
        match self.spec.layout {
            ArrayLayout::Mirror { .. } => runs.windows(2).all(|pair| pair[0] == pair[1]),
            ArrayLayout::Ddraid { .. } => {
                runs.len() < self.members.count() || combine::is_consistent(runs, &self.options.arena)
            }
        }
    }

    /// Writes again what is wrong in `block`, which the caller holds alone (MEND1). Returns on how many members.
    pub(super) async fn mend_block(&self, block: Extent) -> Result<u64, Unmended> {
        let inside = self.gate.enter().await;
        self.latch.check()?;
        self.read_pages(block).await;
        let Some(checksums) = self.checked(block) else { return Ok(0) };
        assert_eq!(block.length, checksums.block_size(), "MEND1: one block");
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
        let expected: Vec<Expected> = (0..held.len()).map(|place| checksums.expected(place, block)).collect();
        let sound =
            sound(self.spec.layout, &held, &expected, &self.options.arena).map_err(Unmended::Unsound)?;
        assert_eq!(sound.len(), self.members.count(), "SOUND1: of each member");
        let mut written = 0;
        for place in places.into_iter().filter(|place| held[*place].as_deref() != Some(&sound[*place][..])) {
            if errors[place].is_none() {
                self.note_wrong(place, block);
            }
            let error = errors[place].unwrap_or(IoError::Corrupt);
            match self.rewrite(place, self.spec.layout.on_members(block), sound[place].clone(), error).await {
                true => written += 1,
                false => self.members.leave([place]),
            }
        }
        for (place, fragment) in sound.iter().enumerate() {
            if expected[place] != Expected::Is(fragment_checksum(fragment)) {
                checksums.set(place, block, fragment);
                self.tell();
            }
        }
        drop(inside);
        if self.members.is_leaving() {
            self.reconfigure().await?;
        }
        Ok(written)
    }

    /// Counts a block of which member `place` holds something else than what was written to it.
    fn note_wrong(&self, place: usize, block: Extent) {
        let wrong = &self.members.counters(place).wrong;
        wrong.set(wrong.get() + 1);
        tracing::error!(array = %self.spec.id, member = place, ?block, "a member holds something else than what was written");
        self.tell();
    }
}
