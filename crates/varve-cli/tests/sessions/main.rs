//! The command and the daemon together: real processes, file-backed disks, every verb.

mod client;
mod harness;
mod restarts;
mod rules;
mod snapshots;
mod verbs;
