//! Thin pools: what they promise, on simulated disks that fail.

#[path = "../common/by_map.rs"]
mod by_map;
#[path = "../common/faults.rs"]
mod faults;

mod books;
mod cases;
mod common;
mod complaints;
mod contradictions;
mod cost;
mod counts;
mod diff;
mod fields;
mod guards;
mod histories;
mod metadata;
mod names;
mod offline;
mod online;
mod recovery;
mod requests;
mod scale;
mod space_reuse;
mod trims;
mod trouble;
mod views;
mod waiting;
