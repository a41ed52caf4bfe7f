//! What goes to the kernel for a disk, recorded, and failed or cut short where a test wants it: in the system calls of
//! `attempt.rs` and at the submission queue of `ring.rs`.

use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use varve_block::Extent;

/// A call, with what was really passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Read { offset: u64, length: usize },
    Write { offset: u64, length: usize, durable: bool },
    Flush,
    Allocate { mode: u32, extent: Extent },
    Discard { extent: Extent },
}

impl Call {
    fn length(self) -> usize {
        match self {
            Call::Read { length, .. } | Call::Write { length, .. } => length,
            Call::Flush | Call::Allocate { .. } | Call::Discard { .. } => 0,
        }
    }
}

/// What is to happen to the next call for which `applies` holds.
struct Fault {
    applies: fn(&Call) -> bool,
    /// An error, or most bytes that are moved.
    outcome: Result<usize, Errno>,
    /// How long the calling thread waits first.
    delay: Duration,
}

#[derive(Default)]
pub(crate) struct Tap {
    calls: Mutex<Vec<Call>>,
    faults: Mutex<VecDeque<Fault>>,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tap")
    }
}

impl Tap {
    /// Records a call; how many bytes it may move, or the error that it ends with instead.
    pub(crate) fn meet(&self, call: Call) -> Result<usize, Errno> {
        locked(&self.calls).push(call);
        let mut faults = locked(&self.faults);
        let found = faults.iter().position(|fault| (fault.applies)(&call));
        let fault = found.and_then(|index| faults.remove(index));
        drop(faults);
        if let Some(Fault { delay, .. }) = fault {
            std::thread::park_timeout(delay);
        }
        fault.map_or(Ok(call.length()), |fault| fault.outcome.map(|most| most.min(call.length())))
    }

    /// Lets one call end with an error.
    pub(crate) fn fail(&self, applies: fn(&Call) -> bool, errno: Errno) {
        self.fail_late(applies, errno, Duration::ZERO);
    }

    /// Lets one call end with an error, and late: its thread waits first. For calls of helper threads.
    pub(crate) fn fail_late(&self, applies: fn(&Call) -> bool, errno: Errno, delay: Duration) {
        locked(&self.faults).push_back(Fault { applies, outcome: Err(errno), delay });
    }

    /// Lets one call move at most so many bytes.
    pub(crate) fn cut(&self, applies: fn(&Call) -> bool, most: usize) {
        locked(&self.faults).push_back(Fault { applies, outcome: Ok(most), delay: Duration::ZERO });
    }

    /// The calls since the last time. Every fault must have been met.
    pub(crate) fn take(&self) -> Vec<Call> {
        assert_eq!(locked(&self.faults).len(), 0, "a fault was not met");
        std::mem::take(&mut *locked(&self.calls))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
