//! Exception stores and their snapshots: what they promise, on simulated disks that fail.

#[path = "../common/by_map.rs"]
mod by_map;
#[path = "../common/faults.rs"]
mod faults;

mod cases;
mod contradictions;
mod cost;
mod full;
mod histories;
mod metadata;
mod rollback;
mod salvage;
mod trouble;
