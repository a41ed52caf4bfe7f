//! Physical volumes, groups and logical volumes: what owns which extent, committed atomically.
//!
//! From pure to impure: [`names`] and [`size`] are what users write; [`model`] is a group in memory; [`plan`] makes a
//! new group from an old one and a change, with [`allocate`]; [`table`] says where a volume is; [`election`]
//! finds the version that counts when disks disagree. [`create`], [`scan`], [`open`] and [`activate`] do I/O on disks that they
//! are given.

pub mod activate;
pub mod allocate;
pub mod disks;
pub mod election;
mod history;
pub mod injected_bug;
pub mod model;
pub mod names;
pub mod open;
pub mod plan;
pub mod rebuild;
pub mod scan;
#[cfg(test)]
mod simulation;
pub mod size;
pub mod table;
pub mod tree;

pub use activate::ActiveVolume;
pub use disks::disk::{Disk, ReadProblem};
pub use disks::free_disk::FreeDisk;
pub use disks::tail::TAIL_SIZE;
pub use history::Version;
pub use model::Group;
pub use open::{Absent, CommitError, Note, OpenGroup};
pub use plan::{Change, Plan, PlanError, Stamp, StoreKind, plan, plan_group};
pub use scan::{DiskProblem, GroupProblem, RefusedGroup, Survey, scan};
