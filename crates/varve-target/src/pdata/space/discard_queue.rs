//! Freed blocks that the device below is told of before they are handed out again (SPACE5).

use super::Run;

/// What waits for that.
#[derive(Default)]
pub(super) struct DiscardQueue {
    /// Whether freed blocks come here at all.
    enabled: bool,
    /// Free on the disk and read by nobody.
    waiting: Vec<Run>,
    /// Those of which the device is being told.
    passing: Vec<Run>,
}

impl DiscardQueue {
    pub(super) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.waiting.iter().chain(&self.passing)
    }

    /// How many blocks wait or are being told of.
    pub(super) fn blocks(&self) -> u64 {
        self.runs().map(|run| run.1).sum()
    }

    /// Whether freed blocks wait here from now on. What need not wait any more.
    pub(super) fn enable(&mut self, enabled: bool) -> Vec<Run> {
        self.enabled = enabled;
        if enabled { Vec::new() } else { std::mem::take(&mut self.waiting) }
    }

    /// Takes in what was freed; gives it back if it need not wait.
    pub(super) fn add(&mut self, run: Run) -> Option<Run> {
        assert!(run.1 > 0, "SPACE5: a run has blocks");
        if !self.enabled {
            return Some(run);
        }
        self.waiting.push(run);
        None
    }

    /// What waits, in order and joined, of which the device is told now.
    pub(super) fn take(&mut self) -> Vec<Run> {
        assert!(self.enabled || self.waiting.is_empty(), "SPACE5: nothing waits that need not");
        let mut runs = std::mem::take(&mut self.waiting);
        runs.sort_unstable();
        let blocks: u64 = runs.iter().map(|run| run.1).sum();
        let mut joined: Vec<Run> = Vec::with_capacity(runs.len());
        for run in runs {
            match joined.last_mut() {
                Some(last) if last.0 + last.1 == run.0 => last.1 += run.1,
                _ => joined.push(run),
            }
        }
        self.passing.extend(&joined);
        assert_eq!(blocks, joined.iter().map(|run| run.1).sum::<u64>(), "SPACE5: no block is lost");
        joined
    }

    /// What the device was told of and knows now.
    pub(super) fn discarded(&mut self) -> Vec<Run> {
        std::mem::take(&mut self.passing)
    }
}
