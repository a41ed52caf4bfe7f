//! Panics that are expected: they are not printed.

use std::cell::Cell;
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Whether panics of this thread are expected, and not to be shown.
pub(crate) fn is_quiet() -> bool {
    QUIET.get()
}

/// Keeps the panics of this thread from being printed.
pub(crate) struct Quiet;

impl Quiet {
    pub(crate) fn new() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let loud = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                if !is_quiet() {
                    loud(panic);
                }
            }));
        });
        QUIET.set(true);
        Quiet
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        QUIET.set(false);
    }
}
