//! The command and the daemon together: real processes, file-backed disks, every verb.

mod caches;
mod clearing;
mod client;
mod consent;
mod containment;
mod dumps;
mod harness;
mod images;
mod layouts;
mod mending;
mod moves;
mod origins;
mod pool_jobs;
mod pools;
mod replacing;
mod restarts;
mod restores;
mod rollbacks;
mod rules;
mod scrubs;
mod service;
mod sets;
mod snapshots;
mod stalling;
mod stops;
mod verbs;
