//! Which contents one sector may have: the writes to it, in the order in which they may have taken effect.
//!
//! A write takes effect at one instant between its start and its end. So of two writes, the one that ended before
//! the other started came first; otherwise either may have. Times are ticks of the oracle's own counter.
//!
//! Invariants:
//! - ORACLE1. A read that started at `r` may see a write unless another, acknowledged before `r`, came after it.
//! - ORACLE2. After a crash a sector may hold a write unless another, durable one came after it.
//! - ORACLE3. What a read has seen came after everything that ended before the read started: later reads do not go back.
//! - ORACLE4. After a discard a sector holds zeros or something that this volume has had there, and nothing else.

use super::past::Past;
use crate::pattern::Stamp;

/// No time: the write is still under way.
const NEVER: u64 = u64::MAX;

#[derive(Clone, Debug)]
pub(super) struct Write {
    stamp: Stamp,
    /// When it was started; names it.
    token: u64,
    /// Before this it has not taken effect: its start, or the start of a later read that saw it (ORACLE3).
    started: u64,
    /// After this it has taken effect, if ever.
    finished: u64,
    acknowledged: bool,
    durable: bool,
    /// It may or may not have happened, before a crash or a snapshot; if it is seen, it has.
    uncertain: bool,
    /// It was acknowledged, and a flush after that has failed: no later flush makes it durable.
    unkept: bool,
    /// It cannot come back in a crash any more; kept for reads that started before it was overwritten.
    overwritten: bool,
}

impl Write {
    fn settled(stamp: Stamp) -> Self {
        Write {
            stamp,
            token: 0,
            started: 0,
            finished: 0,
            acknowledged: true,
            durable: true,
            uncertain: false,
            unkept: false,
            overwritten: false,
        }
    }

    fn came_after(&self, other: &Write) -> bool {
        // A write that a read has seen may have a start after its own end.
        other.finished < self.started && !std::ptr::eq(self, other)
    }
}

/// One sector.
#[derive(Clone, Debug)]
pub(super) enum Block {
    /// One durable write, and nothing else.
    Settled(Stamp),
    /// Anything more.
    Open(Vec<Write>),
}

impl Block {
    fn open(&mut self) -> &mut Vec<Write> {
        if let Block::Settled(stamp) = *self {
            *self = Block::Open(vec![Write::settled(stamp)]);
        }
        match self {
            Block::Open(writes) => writes,
            Block::Settled(_) => unreachable!("it was just opened"),
        }
    }

    /// The one thing that it holds, if that is known.
    pub(super) fn settled(&self) -> Option<Stamp> {
        match self {
            Block::Settled(stamp) => Some(*stamp),
            Block::Open(_) => None,
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        matches!(self, Block::Settled(_))
    }

    pub(super) fn start(&mut self, stamp: Stamp, now: u64) {
        self.open().push(Write {
            token: now,
            started: now,
            finished: NEVER,
            acknowledged: false,
            durable: false,
            ..Write::settled(stamp)
        });
    }

    /// Ends the write that started at `token`. `oldest_read`: the start of the oldest read under way.
    pub(super) fn finish(&mut self, token: u64, now: u64, end: End, oldest_read: u64) {
        let writes = self.open();
        let write = writes.iter_mut().find(|write| write.token == token && write.finished == NEVER);
        // None if the sector was cut off and has come back meanwhile.
        let Some(write) = write else { return self.prune(oldest_read) };
        write.finished = now;
        write.acknowledged = end != End::Failed;
        write.durable = end == End::Durable;
        write.uncertain = end == End::Failed;
        self.prune(oldest_read);
    }

    /// The write that started at `token` has not happened.
    pub(super) fn undo(&mut self, token: u64) {
        self.open().retain(|write| write.token != token);
        self.prune(NEVER);
    }

    /// A flush that started at `started` has ended.
    pub(super) fn flushed(&mut self, started: u64, oldest_read: u64) {
        if let Block::Open(writes) = self {
            for write in writes {
                write.durable |= write.acknowledged && write.finished < started && !write.unkept;
            }
            self.prune(oldest_read);
        }
    }

    /// A flush has failed: what was acknowledged and not yet durable may be lost, now or later.
    pub(super) fn flush_failed(&mut self) {
        let Block::Open(writes) = self else { return };
        for write in writes.iter_mut().filter(|write| write.acknowledged && !write.durable) {
            write.unkept = true;
            write.acknowledged = false;
            write.uncertain = true;
        }
    }

    /// ORACLE2: forgets what can neither be read nor come back.
    fn prune(&mut self, oldest_read: u64) {
        let Block::Open(writes) = self else { return };
        for index in 0..writes.len() {
            let write = &writes[index];
            let replaced = writes.iter().any(|other| other.durable && other.came_after(write));
            writes[index].overwritten |= replaced;
        }
        let needed = |write: &Write| !write.overwritten || Self::readable(writes, write, oldest_read);
        let mut needed = writes.iter().map(needed).collect::<Vec<_>>().into_iter();
        writes.retain(|_| needed.next().unwrap_or(true));
        if let [write] = &writes[..]
            && write.durable
        {
            *self = Block::Settled(write.stamp);
        }
    }

    fn readable(writes: &[Write], write: &Write, read_started: u64) -> bool {
        !writes
            .iter()
            .any(|other| other.acknowledged && other.finished < read_started && other.came_after(write))
    }

    /// Whether a read that started at `read_started` may see `found`; if so, takes note that it was seen (ORACLE1, ORACLE3).
    /// `past`: what a discard may have left (ORACLE4).
    pub(super) fn see(&mut self, found: Stamp, past: &Past, read_started: u64, oldest_read: u64) -> bool {
        let writes = match self {
            Block::Settled(stamp) if *stamp == found => return true,
            Block::Settled(Stamp::ANYTHING) if past.has(found) => {
                *self = Block::Settled(found);
                return true;
            }
            Block::Settled(_) => return false,
            Block::Open(writes) => writes,
        };
        let matching = |stamp: Stamp| -> Vec<usize> {
            let of_stamp =
                |write: &Write| write.stamp == stamp && Self::readable(writes, write, read_started);
            (0..writes.len()).filter(|index| of_stamp(&writes[*index])).collect()
        };
        let (exact, mut loose) = (matching(found), matching(Stamp::ANYTHING));
        if !past.has(found) {
            loose.clear();
        }
        match (&exact[..], &loose[..]) {
            ([], []) => return false,
            ([one], []) | ([], [one]) => {
                let write = &mut writes[*one];
                if write.finished < read_started {
                    write.stamp = found;
                }
                write.started = write.started.max(read_started);
                write.acknowledged |= write.uncertain;
            }
            // Zeros that come from several writes: which of them was seen is unknown.
            _ => {}
        }
        self.prune(oldest_read);
        true
    }

    /// After a power failure: one of what may have survived, not known which until it is read.
    pub(super) fn crash(&mut self) {
        let Block::Open(writes) = self else { return };
        writes.retain(|write| !write.overwritten);
        writes.sort_by_key(|write| write.stamp);
        writes.dedup_by_key(|write| write.stamp);
        for write in writes.iter_mut() {
            *write = Write { uncertain: true, ..Write::settled(write.stamp) };
        }
        self.prune(NEVER);
    }

    /// Writes under way may have happened or not, and go no further.
    pub(super) fn cut_short(&mut self, now: u64) {
        let Block::Open(writes) = self else { return };
        for write in writes.iter_mut().filter(|write| write.finished == NEVER) {
            write.finished = now;
            write.uncertain = true;
        }
        self.prune(NEVER);
    }

    /// The writes under way, and when they were started.
    pub(super) fn under_way(&self) -> Vec<(Stamp, u64)> {
        let Block::Open(writes) = self else { return Vec::new() };
        let going_on = writes.iter().filter(|write| write.finished == NEVER);
        going_on.map(|write| (write.stamp, write.token)).collect()
    }

    /// All that it may hold, or may come to hold.
    pub(super) fn stamps(&self) -> Vec<Stamp> {
        match self {
            Block::Settled(stamp) => vec![*stamp],
            Block::Open(writes) => writes.iter().map(|write| write.stamp).collect(),
        }
    }

    /// What a read that starts at `now` may see.
    pub(super) fn readable_now(&self, now: u64) -> Vec<Stamp> {
        match self {
            Block::Settled(stamp) => vec![*stamp],
            Block::Open(writes) => writes
                .iter()
                .filter(|write| Self::readable(writes, write, now))
                .map(|write| write.stamp)
                .collect(),
        }
    }
}

/// How a write ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Volatile,
    Durable,
    Failed,
}
