//! What is sent to a mapper, and what its answers come to.

use super::changing::ChangingRange;
use super::link::Link;
use super::notices::Notice;
use super::range_map::{Place, Target};
use std::rc::Rc;
use varve_block::{Extent, RangeGuard, TrackerGuard};
use varve_mapper::wire::{Access, Intent, Message, Status, ToMapper, Welcome};

/// The connection in use.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) link: Rc<dyn Link>,
    pub(super) number: u64,
    pub(super) welcome: Welcome,
}

/// A question that was sent.
pub(super) struct Outstanding {
    pub(super) about: About,
    pub(super) answer: Option<Answer>,
    /// The range around all copies that have failed since it was sent (DELEGATE2).
    pub(super) failed: Option<Extent>,
    /// The range of a trim whose request was given up (DELEGATE5).
    pub(super) late: Option<Trimming>,
}

/// What a question is about.
#[derive(Clone, Copy)]
pub(super) enum About {
    /// Where a range is.
    Range(Extent, Intent),
    /// All that was answered.
    Flush,
    /// A range that is to be zeros.
    Trim(Extent),
}

impl About {
    pub(super) fn range(self) -> Option<(Extent, Intent)> {
        match self {
            About::Range(extent, intent) => Some((extent, intent)),
            About::Flush | About::Trim(_) => None,
        }
    }

    pub(super) fn message(self) -> ToMapper {
        match self {
            About::Range(Extent { offset, length }, intent) => ToMapper::Map { offset, length, intent },
            About::Flush => ToMapper::Flush,
            About::Trim(Extent { offset, length }) => ToMapper::Trim { offset, length },
        }
    }
}

/// The answer to a question.
pub(super) enum Answer {
    /// Where the first bytes lie is known now.
    Kept {
        /// Ranges of which the mapper wants a notice when they are durable.
        notices: Vec<Notice>,
    },
    /// Something is to be copied first.
    Copies { copies: Vec<CopyFirst>, notices: Vec<Notice>, in_use: TrackerGuard },
    /// The mapper does not say.
    Error,
    /// To a flush or a trim.
    Status(Status),
}

/// A range to be copied before requests are led to it (DELEGATE2).
pub(super) struct CopyFirst {
    pub(super) extent: Extent,
    pub(super) to: (Rc<Target>, u64),
    /// Zeros if there is none.
    pub(super) from: Option<(Rc<Target>, u64)>,
    /// How the answer is kept.
    pub(super) kept: Kept,
    /// Until it is copied.
    pub(super) changing: ChangingRange,
}

/// A range that is being trimmed: no request uses it, until the mapper has answered or its connection is lost (DELEGATE5).
pub(super) struct Trimming {
    pub(super) extent: Extent,
    _changing: ChangingRange,
    /// No other trim, and no question, is of the range.
    _alone: RangeGuard,
}

impl Trimming {
    pub(super) fn new(extent: Extent, changing: ChangingRange, alone: RangeGuard) -> Self {
        Self { extent, _changing: changing, _alone: alone }
    }
}

/// How an answer is kept.
pub(super) struct Kept {
    pub(super) access: Access,
    pub(super) place: Place,
    pub(super) once: bool,
    pub(super) expiry_ms: u32,
}

/// Sends a message.
pub(super) fn send(connection: &Connection, number: u64, message: &ToMapper) {
    let mut bytes = Vec::new();
    message.encode(number, &mut bytes);
    connection.link.send(bytes);
}
