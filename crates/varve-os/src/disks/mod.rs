//! Disks as devices: files, what goes to the kernel for them, and what makes them durable.

pub(super) mod attempt;
pub(super) mod disk;
pub(super) mod disk_file;
pub(super) mod flushes;
pub(super) mod lane;
pub(super) mod medium;
pub(super) mod operation;
pub(super) mod syncs;
#[cfg(test)]
pub(super) mod tap;
pub(super) mod throttle;
