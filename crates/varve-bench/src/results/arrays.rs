//! Arrays beside one raw member, raw.

use crate::machine::Machine;
use serde::{Deserialize, Serialize};

/// Arrays on members that are made slow, and what they cost the processor on members that do nothing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ArrayPart {
    /// What the members are, in a sentence.
    pub(crate) description: String,
    /// Where it was measured.
    pub(crate) machine: Machine,
    /// The loads.
    pub(crate) rows: Vec<ArrayRow>,
    /// What the processor does.
    pub(crate) processor: Vec<ProcessorRow>,
}

/// One load on one kind of array.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ArrayRow {
    /// The array and its state.
    pub(crate) array: String,
    /// The load.
    pub(crate) load: String,
    /// The ratio that is wanted, at least.
    #[serde(default)]
    pub(crate) goal: Option<f64>,
    /// The array's speed over that of a raw member in virtual time, where the throttle is all that takes any.
    #[serde(default)]
    pub(crate) exact: Option<f64>,
    /// Bytes a second of the array, one a round.
    pub(crate) array_speed: Vec<f64>,
    /// Bytes a second of one raw member under the same load, one a round.
    pub(crate) raw_speed: Vec<f64>,
}

/// What a GiB costs the processor.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ProcessorRow {
    /// What is done with it.
    pub(crate) name: String,
    /// Seconds a GiB, one a round.
    pub(crate) seconds: Vec<f64>,
}
