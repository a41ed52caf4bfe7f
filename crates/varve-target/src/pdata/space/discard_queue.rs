//! Freed blocks that are discarded on the device below before they are handed out again (SPACE5).

use varve_format::pdata::BlockRun;

/// The blocks that wait for that.
#[derive(Default)]
pub(super) struct DiscardQueue {
    /// Whether freed blocks come here at all.
    enabled: bool,
    /// Free on the disk and no longer read.
    waiting: Vec<BlockRun>,
    /// Those that are being discarded.
    passing: Vec<BlockRun>,
}

impl DiscardQueue {
    pub(super) fn runs(&self) -> impl Iterator<Item = &BlockRun> {
        self.waiting.iter().chain(&self.passing)
    }

    /// How many blocks wait or are being discarded.
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

    /// The runs that wait, in order and joined, to be discarded now.
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

    /// The runs that were taken, for which the device has answered now.
    pub(super) fn discarded(&mut self) -> Vec<BlockRun> {
        std::mem::take(&mut self.passing)
    }
}
