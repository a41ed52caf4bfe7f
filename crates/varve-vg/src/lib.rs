//! Physical volumes, groups and logical volumes: who owns which extent, committed atomically.

pub mod allocate;
pub mod model;
pub mod names;
pub mod plan;
pub mod size;
