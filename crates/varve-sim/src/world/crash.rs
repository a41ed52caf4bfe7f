//! When a crash happens, and what it takes with it.

use varve_block::Moment;

/// When a crash happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashAt {
    /// Right after that many more disk events, at least one: a change or a flush submitted, or completed.
    Event(u64),
    /// At that virtual time, or at once if it has passed.
    Time(Moment),
}

/// What a crash takes with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashKind {
    /// The power fails: all tasks end, and the disks' caches are lost by the rule of [`crate::SimDisk`].
    Power,
    /// The process is killed: all tasks end; the disks keep their caches, and requests under way happen in part.
    Process,
}
