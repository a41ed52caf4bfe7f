//! Bugs that a simulation puts in on purpose, to prove that its oracle would notice them. Outside tests there are none.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedBug {
    /// Acknowledges a commit without a flush.
    SkipFlush,
    /// Writes the new version where the newest one is.
    OverwriteNewest,
    /// Believes whichever disk comes first, however old its version.
    BelieveStale,
    /// Decides by numbers between two lines of versions each of which has left the disks of the other out.
    NumbersDecide,
    /// Tells a disk that leaves its group nothing before the others have heard of it.
    LeaveLast,
    /// Writes new versions to no tail.
    SkipTail,
    /// Leaves the tail of a disk where its end was before.
    KeepOldTail,
    /// Goes on without recording which disks are missing.
    ForgetMissing,
}

#[cfg(not(any(test, feature = "injected-bugs")))]
pub(crate) const fn has(_: InjectedBug) -> bool {
    false
}

#[cfg(any(test, feature = "injected-bugs"))]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<InjectedBug>> = const { std::cell::Cell::new(None) };
}

#[cfg(any(test, feature = "injected-bugs"))]
pub(crate) fn has(bug: InjectedBug) -> bool {
    ACTIVE.get() == Some(bug)
}

/// Puts `bug` in on this thread from now on.
#[cfg(any(test, feature = "injected-bugs"))]
pub fn inject(bug: Option<InjectedBug>) {
    ACTIVE.set(bug);
}
