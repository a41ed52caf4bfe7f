//! Arrays: what they promise, on simulated disks that fail.

mod cases;
mod checksums;
mod cost;
mod defects;
mod departures;
mod election_model;
mod histories;
mod log_disk;
mod losses;
mod lost;
mod model;
mod older;
mod resync;
mod rig;
mod scrub;
mod slow;
mod stamp_model;
mod text_model;
