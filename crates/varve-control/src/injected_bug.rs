//! Bugs that a simulation puts into the control on purpose, to prove that its oracle would notice them. Outside tests there
//! are none.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedBug {
    /// A job is not written down.
    ForgetJob,
    /// The group's text hears of a new snapshot store some time after that is in use.
    CommitLater,
    /// A disk of one group may become that of another.
    ShareDisk,
    /// A mapped volume keeps a device that was opened anew.
    KeepDevice,
    /// A member of an array on a disk of which part was cut off lacks no more than what was written meanwhile.
    KeepCutOff,
    /// A volume that was taken out of use is not closed, and keeps its disks.
    KeepFenced,
    /// What a look at the files below has found is dropped.
    ForgetLooks,
    /// Sets of snapshots are undone in groups whose locks are not held (breaks SETS5).
    UndoUnlocked,
    /// A schedule takes the snapshots for its own that are called like those.
    OwnByName,
    /// A run of a schedule that was missed is made up for as often as it was missed.
    CatchUpAll,
}

#[cfg(not(test))]
pub(crate) const fn has(_: InjectedBug) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<InjectedBug>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(crate) fn has(bug: InjectedBug) -> bool {
    ACTIVE.get() == Some(bug)
}

/// Puts `bug` in on this thread from now on.
#[cfg(test)]
pub(crate) fn inject(bug: Option<InjectedBug>) {
    ACTIVE.set(bug);
}
