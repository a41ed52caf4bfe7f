//! Freed blocks that the device below is told of before they are handed out again (SPACE5).

use varve_format::pdata::BlockRun;

/// What waits for that.
#[derive(Default)]
pub(super) struct DiscardQueue {
    /// Whether freed blocks come here at all.
    enabled: bool,
    /// Free on the disk and read by nobody.
    waiting: Vec<BlockRun>,
    /// Those of which the device is being told.
    passing: Vec<BlockRun>,
}

impl DiscardQueue {
    pub(super) fn runs(&self) -> impl Iterator<Item = &BlockRun> {
        self.waiting.iter().chain(&self.passing)
    }

    /// How many blocks wait or are being told of.
    pub(super) fn blocks(&self) -> u64 {
        self.runs().map(|run| run.count).sum()
    }

    /// Whether freed blocks wait here from now on. What need not wait any more.
    pub(super) fn enable(&mut self, enabled: bool) -> Vec<BlockRun> {
        self.enabled = enabled;
        if enabled { Vec::new() } else { std::mem::take(&mut self.waiting) }
    }

    /// Takes in what was freed; gives it back if it need not wait.
    pub(super) fn add(&mut self, run: BlockRun) -> Option<BlockRun> {
        assert!(run.count > 0, "SPACE5: a run has blocks");
        if !self.enabled {
            return Some(run);
        }
        self.waiting.push(run);
        None
    }

    /// What waits, in order and joined, of which the device is told now.
    pub(super) fn take(&mut self) -> Vec<BlockRun> {
        assert!(self.enabled || self.waiting.is_empty(), "SPACE5: nothing waits that need not");
        let mut runs = std::mem::take(&mut self.waiting);
        runs.sort_unstable();
        let blocks: u64 = runs.iter().map(|run| run.count).sum();
        let mut joined: Vec<BlockRun> = Vec::with_capacity(runs.len());
        for run in runs {
            match joined.last_mut() {
                Some(last) if last.end() == run.first => last.count += run.count,
                _ => joined.push(run),
            }
        }
        self.passing.extend(&joined);
        assert_eq!(blocks, joined.iter().map(|run| run.count).sum::<u64>(), "SPACE5: no block is lost");
        joined
    }

    /// What the device was told of and knows now.
    pub(super) fn discarded(&mut self) -> Vec<BlockRun> {
        std::mem::take(&mut self.passing)
    }
}
