//! The command and the daemon together: real processes, file-backed disks, every verb.

mod harness;
mod mending;
mod restarts;
mod rules;
mod service;
mod verbs;
