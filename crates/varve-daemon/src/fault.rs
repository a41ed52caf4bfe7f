//! Places at which a test lets the daemon die, as a crash would, or a volume panic, as a bug would, and what it takes from it:
//! only in builds that check their assertions.

use varve_block::{BlockDevice, Checked, Completion, Device, Extent, Io, Shape, StatusFuture};

/// Whether `$VARVE_FAULT` says that `what` does not work.
pub(crate) fn lacks(what: &str) -> bool {
    cfg!(debug_assertions) && std::env::var_os("VARVE_FAULT").is_some_and(|named| named == what)
}

/// Ends the process at once if `$VARVE_FAULT` names this place.
pub(crate) fn die_at(place: &str) {
    if cfg!(debug_assertions) && std::env::var_os("VARVE_FAULT").is_some_and(|named| named == place) {
        tracing::error!(place, "the daemon dies, as a test wants it");
        std::process::abort();
    }
}

/// Panics if `$VARVE_INJECT_PANIC` is `SUBJECT:VERB`, for example `data/a:open`; the subject is a volume's identity where its
/// name is not known (`fence`, `retire`).
pub fn panic_at(subject: &str, verb: &str) {
    assert!(!is_injected(subject, verb), "an injected bug: {verb} of {subject}");
}

fn is_injected(subject: &str, verb: &str) -> bool {
    cfg!(debug_assertions)
        && std::env::var_os("VARVE_INJECT_PANIC")
            .is_some_and(|named| named == format!("{subject}:{verb}").as_str())
}

const VERBS: [&str; 5] = ["read", "write", "zero", "discard", "flush"];

/// `device` of `subject`, which panics at a request of the kind that `$VARVE_INJECT_PANIC` names.
pub(crate) fn with_injected_bug(device: Device, subject: &str) -> Device {
    match VERBS.into_iter().find(|verb| is_injected(subject, verb)) {
        Some(verb) => Device::new(Injected { device, verb }),
        None => device,
    }
}

struct Injected {
    device: Device,
    verb: &'static str,
}

impl BlockDevice for Injected {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let io = io.into_io();
        let verb = match &io {
            Io::Read { .. } => VERBS[0],
            Io::Write { .. } => VERBS[1],
            Io::Zero { .. } => VERBS[2],
            Io::Discard { .. } => VERBS[3],
            Io::Flush => VERBS[4],
        };
        if verb != self.verb {
            return self.device.submit(io);
        }
        Completion::pending(async move { panic!("an injected bug: {verb}") })
    }

    fn status(&self, extent: Extent) -> StatusFuture<'_> {
        self.device.status(extent)
    }
}
