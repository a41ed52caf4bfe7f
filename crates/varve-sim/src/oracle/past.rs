//! Every content that one sector of a volume has ever had: what may be read there after a discard, beside zeros.

use crate::pattern::Stamp;
use std::rc::Rc;

/// The contents of one sector, the newest first. A copy shares what both have in common.
#[derive(Clone, Default)]
pub(super) struct Past(Option<Rc<Entry>>);

struct Entry {
    stamp: Stamp,
    before: Past,
}

impl Past {
    /// Adds what is written now. Zeros need not be remembered: they are allowed after every discard.
    pub(super) fn add(&mut self, stamp: Stamp) {
        if stamp != Stamp::ZEROS && stamp != Stamp::ANYTHING {
            let before = std::mem::take(self);
            self.0 = Some(Rc::new(Entry { stamp, before }));
        }
    }

    /// Adds all that `other` had.
    pub(super) fn absorb(&mut self, other: &Past) {
        let added: Vec<Stamp> = other.stamps().filter(|stamp| !self.has(*stamp)).collect();
        added.into_iter().rev().for_each(|stamp| self.add(stamp));
    }

    /// Whether a discard may leave `stamp`.
    pub(super) fn has(&self, stamp: Stamp) -> bool {
        stamp == Stamp::ZEROS || self.stamps().any(|other| other == stamp)
    }

    fn stamps(&self) -> impl Iterator<Item = Stamp> {
        let mut next = self;
        std::iter::from_fn(move || {
            let entry = next.0.as_ref()?;
            next = &entry.before;
            Some(entry.stamp)
        })
    }
}

impl Drop for Past {
    /// One entry after the other: a long past is dropped without recursion.
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(mut entry) = next.and_then(Rc::into_inner) {
            next = entry.before.0.take();
        }
    }
}
