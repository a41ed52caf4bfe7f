//! The command and the daemon together: real processes, file-backed disks, every verb.

mod harness;
mod restarts;
mod rules;
mod verbs;
