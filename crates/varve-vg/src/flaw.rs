//! Mistakes that the simulation makes on purpose, to prove that its oracle would notice them. Outside tests there are
//! none.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Acknowledges a commit without a flush.
    SkipFlush,
    /// Writes the new version where the newest one lies.
    OverwriteNewest,
    /// Believes whichever disk comes first, however old its version.
    BelieveStale,
    /// Goes on without recording which disks are missing.
    ForgetMissing,
}

#[cfg(not(test))]
pub(crate) const fn has(_: Flaw) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Flaw>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(crate) fn has(flaw: Flaw) -> bool {
    ACTIVE.get() == Some(flaw)
}

/// Makes `flaw` on this thread from now on.
#[cfg(test)]
pub(crate) fn make(flaw: Option<Flaw>) {
    ACTIVE.set(flaw);
}
