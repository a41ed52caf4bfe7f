//! Bugs that a simulation puts into volumes on purpose, to prove that its oracle would notice them. Outside tests there
//! are none.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedBug {
    /// Doors hear nothing of writes that were lost.
    HideLoss,
    /// A member of an array that the others call away is believed.
    BelieveMember,
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
