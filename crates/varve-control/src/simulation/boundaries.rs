//! Crashes at the boundaries between actions of controllers, and actions that are carried out twice.

use super::count;
use super::host::Host;
use crate::group::controller::boundary;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use varve_sim::{CrashAt, CrashKind, Random};

/// What happened at boundaries over all histories.
#[derive(Default)]
pub(super) struct BoundaryCounts {
    pub(super) crashes: AtomicU64,
    pub(super) repeated: AtomicU64,
}

/// Until it is dropped, actions are repeated and a crash comes at a boundary, as chance decides.
pub(super) struct Disturbed(());

impl Disturbed {
    /// A crash of the kind `crash` comes at one of the next boundaries.
    pub(super) fn new(
        host: &Rc<Host>,
        random: &mut Random,
        crash: Option<CrashKind>,
        counts: &Arc<BoundaryCounts>,
    ) -> Self {
        let (host, counts) = (Rc::clone(host), Arc::clone(counts));
        let crash = crash.filter(|_| random.chance(1, 3));
        let left = Cell::new(random.between(1, 120));
        let repeated_of_four = *random.pick(&[0, 0, 1, 4]);
        let random = RefCell::new(random.fork());
        boundary::at_each(Some(Box::new(move || {
            left.set(left.get().saturating_sub(1));
            if let Some(kind) = crash.filter(|_| left.get() == 0) {
                count(&counts.crashes);
                left.set(u64::MAX);
                host.world.schedule(CrashAt::Event(1), kind);
            }
            let is_repeated = random.borrow_mut().chance(repeated_of_four, 4);
            if is_repeated {
                count(&counts.repeated);
            }
            1 + usize::from(is_repeated)
        })));
        Self(())
    }
}

/// No crash comes until the life ends by itself.
pub(super) fn let_live(host: &Host) {
    host.world.schedule(CrashAt::Event(u64::MAX), CrashKind::Power);
    boundary::at_each(None);
}

impl Drop for Disturbed {
    fn drop(&mut self) {
        boundary::at_each(None);
    }
}
