//! Freed blocks that the device below is told of before they are handed out again (F6).

use super::{Run, Space};

/// What waits for that.
#[derive(Default)]
pub(super) struct Cooling {
    /// Whether freed blocks come here at all.
    enabled: bool,
    /// Free on the disk and read by nobody.
    waiting: Vec<Run>,
    /// Those of which the device is being told.
    passing: Vec<Run>,
}

impl Cooling {
    pub(super) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.waiting.iter().chain(&self.passing)
    }
}

impl Space {
    /// Has freed blocks wait for [`Space::take_cooling`] and [`Space::passed`] from now on, or not any more.
    pub(in super::super) fn cool(&mut self, enabled: bool) {
        self.cooling.enabled = enabled;
        if !enabled {
            std::mem::take(&mut self.cooling.waiting).into_iter().for_each(|run| self.set_free(run));
        }
    }

    /// Blocks are free on the disk, and nobody reads them.
    pub(super) fn come_back(&mut self, run: Run) {
        assert!(run.1 > 0, "F6: a run has blocks");
        match self.cooling.enabled {
            true => self.cooling.waiting.push(run),
            false => self.set_free(run),
        }
    }

    /// The blocks of which the device is to be told now, in order and joined. They are handed out after
    /// [`Space::passed`] (F6).
    pub(in super::super) fn take_cooling(&mut self) -> Vec<Run> {
        let mut runs = std::mem::take(&mut self.cooling.waiting);
        runs.sort_unstable();
        let blocks: u64 = runs.iter().map(|run| run.1).sum();
        let mut joined: Vec<Run> = Vec::with_capacity(runs.len());
        for run in runs {
            match joined.last_mut() {
                Some(last) if last.0 + last.1 == run.0 => last.1 += run.1,
                _ => joined.push(run),
            }
        }
        self.cooling.passing.extend(&joined);
        assert_eq!(blocks, joined.iter().map(|run| run.1).sum::<u64>(), "F6: no block is lost");
        joined
    }

    /// The device knows of all that was taken so.
    pub(in super::super) fn passed(&mut self) {
        std::mem::take(&mut self.cooling.passing).into_iter().for_each(|run| self.set_free(run));
    }
}
