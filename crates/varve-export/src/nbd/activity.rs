//! Whose turn it is: how much a connection does at a time, and whether others want the same thread and disks.
//!
//! A connection that is alone on its thread works in long turns and keeps as much in flight as its client likes. As
//! soon as another export of the thread has work too, turns become short and what is in flight at the devices is
//! bounded, so that a request of the other waits behind little. Connections of one export share what it may do.
//!
//! Invariants:
//! - ACTIVITY1. What one poll of a connection does is bounded, whatever its client has sent.
//! - ACTIVITY2. No device is asked for more than [`PIECE`] at once, and no run of memory is longer: fresh memory is cleared on the
//!   thread that takes it, and a disk answers in the order in which it was asked.

use std::cell::Cell;
use std::rc::Rc;

/// Steps (a request started, an answer taken) of a turn of a connection that is alone.
const STEPS: usize = 64;
/// Steps of the turns of an export's connections while another export is active.
const CONTENDED_STEPS: usize = 16;
/// Fewest steps of a turn.
const STEPS_MIN: usize = 4;
/// Bytes of data that are moved in a turn; one request may be larger.
const BYTES: u64 = 256 << 10;
/// Bytes in flight at the devices for an export's connections while another export is active.
const CONTENDED_FLIGHT: u64 = 1 << 20;
/// Bytes of a read or a write that are asked of the device at once; also the longest run of memory for one.
pub(super) const PIECE: u64 = 1 << 20;
/// As [`PIECE`], while another export is active.
const CONTENDED_PIECE: u64 = 256 << 10;
/// Pieces of a write that are in flight together.
const PIECES_AT_ONCE: usize = 4;
/// Bytes that are discarded or zeroed at once while another export is active.
const CONTENDED_CHANGE: u64 = 64 << 20;
/// Turns of others after which an export is silent.
const SILENT_TURNS: u64 = 256;

/// Which exports of a thread have been active lately. Cloning shares it.
#[derive(Clone, Default)]
pub struct Activity {
    state: Rc<State>,
}

/// An export, and the number of its last turn with a request; zero: none.
type Latest = Cell<(usize, u64)>;

#[derive(Default)]
struct State {
    turns: Cell<u64>,
    latest: Latest,
    /// The latest of all others.
    other: Latest,
}

impl Activity {
    /// Notes a turn in which requests of `export` were started.
    pub(super) fn note(&self, export: usize) {
        let turn = self.state.turns.get() + 1;
        self.state.turns.set(turn);
        let latest = self.state.latest.get();
        if latest.0 != export {
            self.state.other.set(latest);
        }
        self.state.latest.set((export, turn));
    }

    /// Whether an export besides `export` was active lately.
    pub(super) fn is_contended(&self, export: usize) -> bool {
        let latest = self.state.latest.get();
        let (_, turn) = if latest.0 == export { self.state.other.get() } else { latest };
        turn > 0 && self.state.turns.get() - turn < SILENT_TURNS
    }
}

/// Into which pieces the long requests of an export are cut; asked anew for each piece.
#[derive(Clone, Copy)]
pub(super) struct Pace<'a> {
    pub(super) activity: &'a Activity,
    pub(super) export: usize,
}

impl Pace<'_> {
    /// Most bytes of the next piece of a read or a write.
    pub(super) fn piece(self) -> u64 {
        if self.is_contended() { CONTENDED_PIECE } else { PIECE }
    }

    /// Pieces of a write that may be in flight together.
    pub(super) fn pieces_at_once(self) -> usize {
        if self.is_contended() { 1 } else { PIECES_AT_ONCE }
    }

    /// Most bytes that the next piece discards or zeroes.
    pub(super) fn change(self) -> u64 {
        if self.is_contended() { CONTENDED_CHANGE } else { u64::MAX }
    }

    fn is_contended(self) -> bool {
        self.activity.is_contended(self.export)
    }
}

/// What is left of one turn of a connection.
pub(super) struct Turn {
    steps: usize,
    bytes: u64,
    /// Bytes that may be in flight at the devices.
    pub(super) flight_max: u64,
}

impl Turn {
    /// A turn of one of `connections` of an export.
    pub(super) fn new(is_contended: bool, connections: u64) -> Self {
        if !is_contended {
            return Self { steps: STEPS, bytes: BYTES, flight_max: u64::MAX };
        }
        let connections = connections.max(1);
        let steps = CONTENDED_STEPS / usize::try_from(connections).unwrap_or(usize::MAX);
        let flight_max = CONTENDED_FLIGHT / connections;
        Self { steps: steps.max(STEPS_MIN), bytes: BYTES, flight_max }
    }

    /// Notes a step.
    pub(super) fn step(&mut self) {
        self.steps = self.steps.saturating_sub(1);
    }

    /// Notes `bytes` that were received or sent.
    pub(super) fn moved(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Whether others are to have their turn (ACTIVITY1).
    pub(super) fn is_over(&self) -> bool {
        self.steps == 0 || self.bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_contended_while_another_was_active_lately() {
        let activity = Activity::default();
        activity.note(1);
        assert!(!activity.is_contended(1) && activity.is_contended(2));
        activity.note(2);
        assert!(activity.is_contended(1) && activity.is_contended(2));
        (1..SILENT_TURNS).for_each(|_| activity.note(1));
        assert!(activity.is_contended(1));
        activity.note(1);
        assert!(!activity.is_contended(1) && activity.is_contended(2));
    }

    #[test]
    fn a_turn_ends_after_its_steps_or_its_bytes() {
        for (contended, connections, steps) in [(false, 1, 64), (true, 1, 16), (true, 2, 8), (true, 99, 4)] {
            let mut turn = Turn::new(contended, connections);
            (1..steps).for_each(|_| turn.step());
            assert!(!turn.is_over());
            turn.step();
            assert!(turn.is_over(), "ACTIVITY1");
        }
        let mut turn = Turn::new(false, 1);
        turn.moved(BYTES + 1);
        assert!(turn.is_over(), "ACTIVITY1");
    }
}
