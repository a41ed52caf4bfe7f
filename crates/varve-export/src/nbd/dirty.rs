//! What was changed in an export since a state of before.

use varve_block::Extent;
use varve_nbd::Run;
use varve_nbd::wire::STATE_DIRTY;

/// The bytes in which two states of a volume that does not change differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirtyBitmap {
    since: String,
    /// By their offsets; none is empty, and none touches another.
    changed: Vec<Extent>,
}

impl DirtyBitmap {
    /// What differs from the state that clients know as `since`. Extents may come in any order, and overlap.
    pub fn new(since: impl Into<String>, mut extents: Vec<Extent>) -> Self {
        extents.sort_unstable_by_key(|extent| extent.offset);
        let mut changed: Vec<Extent> = Vec::with_capacity(extents.len());
        for extent in extents.into_iter().filter(|extent| !extent.is_empty()) {
            match changed.last_mut() {
                Some(last) if last.end() >= extent.offset => {
                    *last = Extent::between(last.offset, last.end().max(extent.end()));
                }
                _ => changed.push(extent),
            }
        }
        Self { since: since.into(), changed }
    }

    /// What clients call the state of before.
    pub fn since(&self) -> &str {
        &self.since
    }

    /// The runs of `extent`, at most `runs_max` of them.
    pub(super) fn runs(&self, extent: Extent, runs_max: usize) -> Vec<Run> {
        let first = self.changed.partition_point(|changed| changed.end() <= extent.offset);
        let (mut runs, mut at) = (Vec::new(), extent.offset);
        for changed in self.changed[first..].iter().take_while(|changed| changed.offset < extent.end()) {
            if changed.offset > at {
                runs.push(Run { length: changed.offset - at, state: 0 });
            }
            let begin = changed.offset.max(at);
            at = changed.end().min(extent.end());
            runs.push(Run { length: at - begin, state: STATE_DIRTY });
            if runs.len() >= runs_max {
                break;
            }
        }
        if runs.len() < runs_max && at < extent.end() {
            runs.push(Run { length: extent.end() - at, state: 0 });
        }
        runs.truncate(runs_max);
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_sim::Random;

    #[test]
    fn extents_are_joined_and_cut_to_what_is_asked() {
        let extents = [(40, 10), (0, 5), (5, 5), (47, 5), (90, 0)];
        let bitmap =
            DirtyBitmap::new("mon", extents.map(|(offset, length)| Extent::new(offset, length)).to_vec());
        let runs = |offset, length, runs_max| -> Vec<(u64, u32)> {
            let runs = bitmap.runs(Extent::new(offset, length), runs_max);
            runs.into_iter().map(|run| (run.length, run.state)).collect()
        };
        assert_eq!(runs(0, 100, 9), [(10, 1), (30, 0), (12, 1), (48, 0)]);
        assert_eq!(runs(4, 40, 9), [(6, 1), (30, 0), (4, 1)]);
        assert_eq!(runs(10, 20, 9), [(20, 0)]);
        assert_eq!(runs(60, 40, 9), [(40, 0)]);
        assert_eq!(runs(0, 100, 2), [(10, 1), (30, 0)], "what follows is asked next");
        assert_eq!(runs(0, 100, 1), [(10, 1)]);
        assert_eq!(runs(20, 100, 1), [(20, 0)]);
    }

    #[test]
    fn each_byte_has_the_state_that_the_extents_give_it() {
        let mut random = Random::new(1);
        for _ in 0..3000 {
            let extents: Vec<Extent> =
                (0..random.below(12)).map(|_| Extent::new(random.below(200), random.below(40))).collect();
            let (asked, runs_max) =
                (Extent::new(random.below(220), random.between(1, 60)), 1 + random.index(8));
            let runs = DirtyBitmap::new("mon", extents.clone()).runs(asked, runs_max);
            assert!(!runs.is_empty() && runs.len() <= runs_max, "{runs:?}");
            let states: Vec<u32> = runs.iter().flat_map(|run| (0..run.length).map(|_| run.state)).collect();
            assert!(states.len() as u64 <= asked.length, "{runs:?}");
            for (byte, state) in (asked.offset..).zip(states) {
                let is_in = extents.iter().any(|extent| (extent.offset..extent.end()).contains(&byte));
                assert_eq!(state == STATE_DIRTY, is_in, "byte {byte} of {extents:?} in {runs:?}");
            }
        }
    }
}
