//! Ranges of answers of which the mapper wants to hear when they are durable, until a request has written there.

use super::range_map::Target;
use std::rc::Rc;
use varve_block::Extent;

/// A range of an answer, and where it is.
pub(super) struct Notice {
    pub(super) extent: Extent,
    pub(super) to: (Rc<Target>, u64),
}

impl Notice {
    /// Whether `part`, as far as it is in the range, is there.
    fn leads(&self, part: Extent, to: (&Rc<Target>, u64)) -> bool {
        let Some(common) = self.extent.intersect(part) else { return true };
        let own = self.to.1 + (common.offset - self.extent.offset);
        Rc::ptr_eq(&self.to.0, to.0) && own == to.1 + (common.offset - part.offset)
    }
}

/// Notices that a request owes to the mapper, with the numbers of its questions (DELEGATE8).
#[derive(Default)]
pub(super) struct Owed(Vec<(u64, Notice)>);

impl Owed {
    /// An answer has come to question `number` of a request that has not written `left` yet. Ranges in which it writes nothing
    /// are not reported.
    pub(super) fn add(&mut self, number: u64, notices: Vec<Notice>, left: &[Extent]) {
        assert!(self.0.iter().all(|(earlier, _)| *earlier < number), "DELEGATE8: an answer is added once");
        let is_written = |notice: &Notice| left.iter().any(|extent| extent.overlaps(notice.extent));
        self.0.extend(notices.into_iter().filter(is_written).map(|notice| (number, notice)));
    }

    /// The request writes `part` at `to`. A range that is elsewhere by its answer, since replaced, is not reported.
    pub(super) fn written_at(&mut self, part: Extent, to: (&Rc<Target>, u64)) {
        self.0.retain(|(_, notice)| notice.leads(part, to));
    }

    /// Takes those for which the request, which has not written `left` yet, writes nothing more.
    pub(super) fn take_written(&mut self, left: &[Extent]) -> Vec<(u64, Extent)> {
        let is_written = |notice: &Notice| !left.iter().any(|extent| extent.overlaps(notice.extent));
        let written = self.0.extract_if(.., |(_, notice)| is_written(notice));
        written.map(|(number, notice)| (number, notice.extent)).collect()
    }
}
