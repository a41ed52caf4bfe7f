//! Places at which a test lets the daemon die, as a crash would, or a volume panic, as a bug would, and what it takes from it:
//! only in builds that check their assertions. The program says which, once, before it begins.

use std::ffi::OsString;
use std::sync::OnceLock;
use varve_block::{
    BlockDevice, Checked, Completion, Device, Extent, Io, MapAnswer, MapFuture, MapIntent, Shape,
};

/// What is injected.
#[derive(Clone, Debug, Default)]
pub struct Injections {
    /// What does not work, or the place at which the process ends.
    pub fault: Option<OsString>,
    /// `SUBJECT:VERB` of a panic.
    pub panic: Option<OsString>,
}

static INJECTED: OnceLock<Injections> = OnceLock::new();

/// Says what is injected. Only the first call counts, and only in builds that check their assertions.
pub fn inject(injections: Injections) {
    let _ = INJECTED.set(injections);
}

fn injected() -> Option<&'static Injections> {
    if cfg!(debug_assertions) { INJECTED.get() } else { None }
}

fn names_fault(what: &str) -> bool {
    injected().and_then(|injected| injected.fault.as_ref()).is_some_and(|named| named == what)
}

/// Whether an injected fault says that `what` does not work.
pub fn lacks(what: &str) -> bool {
    names_fault(what)
}

/// Ends the process at once if the injected fault names this place.
pub fn die_at(place: &str) {
    if names_fault(place) {
        tracing::error!(place, "the daemon dies, as a test wants it");
        std::process::abort();
    }
}

/// Panics if the injected panic is `SUBJECT:VERB`, for example `data/a:open`; the subject is a volume's identity where its
/// name is not known (`fence`, `retire`, `reopen`, `deactivate`).
pub fn panic_at(subject: &str, verb: &str) {
    assert!(!is_injected(subject, verb), "an injected bug: {verb} of {subject}");
}

fn is_injected(subject: &str, verb: &str) -> bool {
    let named = injected().and_then(|injected| injected.panic.as_ref());
    named.is_some_and(|named| named == format!("{subject}:{verb}").as_str())
}

const VERBS: [&str; 5] = ["read", "write", "zero", "discard", "flush"];

/// `device` of `subject`, which panics at a request of the kind that the injected panic names.
pub fn with_injected_bug(device: Device, subject: &str) -> Device {
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

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        MapAnswer::in_front(&self.device, extent, intent).ready()
    }
}
