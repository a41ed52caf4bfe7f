//! Where the next data or the next hole begins, found by asking the device piece by piece.

use super::errno::of_error;
use fuser::Errno;
use varve_block::{Allocation, Extent, GIB, Portal, StatusRun};

/// Bytes asked about at a time.
const STEP: u64 = GIB;

/// What is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// Bytes that hold data.
    Data,
    /// Bytes that read as zeros, or the end of the file.
    Hole,
}

/// Receives the offset that was found, or an errno.
pub(super) type Answer = Box<dyn FnOnce(Result<u64, Errno>) + Send>;

/// Calls `answer` with the first offset from `at` on where `wanted` begins: `ENXIO` if there is none.
pub(super) fn seek(portal: &Portal, at: u64, wanted: Wanted, answer: Answer) {
    let size = portal.shape().size;
    if at >= size {
        return answer(if wanted == Wanted::Hole { Ok(size) } else { Err(Errno::ENXIO) });
    }
    let extent = Extent::between(at, size.min(at.saturating_add(STEP)));
    let again = portal.clone();
    portal.status(extent, move |told| match told.map(|runs| find(&runs, at, wanted)) {
        Err(error) => answer(Err(of_error(error))),
        Ok(Ok(offset)) => answer(Ok(offset)),
        Ok(Err(end)) if end > at => seek(&again, end, wanted, answer),
        Ok(Err(_)) => answer(Err(Errno::EIO)),
    });
}

/// The start of the first run that fits, else (`Err`) where the runs end. They begin at `at`.
fn find(runs: &[StatusRun], at: u64, wanted: Wanted) -> Result<u64, u64> {
    let mut here = at;
    for run in runs {
        let holds_data = run.allocation == Allocation::Data;
        if holds_data == (wanted == Wanted::Data) {
            return Ok(here);
        }
        here += run.length;
    }
    Err(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(kinds: &[(u64, Allocation)]) -> Vec<StatusRun> {
        kinds.iter().map(|&(length, allocation)| StatusRun { length, allocation }).collect()
    }

    #[test]
    fn zeros_count_as_a_hole() {
        let runs = runs(&[(10, Allocation::Data), (5, Allocation::Zero), (7, Allocation::Hole)]);
        assert_eq!(find(&runs, 100, Wanted::Data), Ok(100));
        assert_eq!(find(&runs, 100, Wanted::Hole), Ok(110));
    }

    #[test]
    fn where_nothing_fits_the_end_is_told() {
        let runs = runs(&[(5, Allocation::Zero), (7, Allocation::Hole)]);
        assert_eq!(find(&runs, 100, Wanted::Data), Err(112));
        assert_eq!(find(&[], 100, Wanted::Hole), Err(100));
    }
}
