//! What moves, copies, compares or clears what is on the disks, step by step.

pub mod clear;
pub mod image_jobs;
pub mod movable;
pub mod moves;
pub mod pool_check;
pub mod progress;
pub mod scrub;
pub mod split;
