//! What every measurement needs.

pub(crate) use crate::failed::{Failed, Of, Outcome};
pub(crate) use crate::machine::file_system;
pub(crate) use crate::options::{Medium, Options};
pub(crate) use crate::programs::place::{Noise, Place};
pub(crate) use crate::programs::shard::{Shard, Surroundings, open};
pub(crate) use crate::programs::watch::{Watch, pause, turns};
pub(crate) use crate::report::goal::Goal;
pub(crate) use crate::report::sheet::Sheet;
pub(crate) use crate::report::stats::percentile;
pub(crate) use crate::results::Part;
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::rc::Rc;
pub(crate) use std::sync::Arc;
pub(crate) use std::time::Duration;
pub(crate) use varve_block::{Arena, Clock, Device, Durability, Extent, GIB, KIB, MIB};
pub(crate) use varve_os::{DiskFile, ShardContext};
