//! The options of a delegated volume, and what it reports.

use std::time::Duration;
use varve_block::Device;

/// What a delegated volume is.
pub struct DelegateOptions {
    /// Its name, which the mapper receives.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Smallest unit of a request, a power of two; no device that the mapper names has a larger one.
    pub block_size: u32,
    /// Devices that the mapper may name, and what they are called.
    pub devices: Vec<(String, Device)>,
    /// How long a request waits for an answer (DELEGATE7).
    pub answer_wait: Duration,
    /// Most ranges that are kept.
    pub entries_max: usize,
}

/// Faults that can be built in on purpose.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InjectedBug {
    /// The mapper is asked to flush while what its answers had copied is not (breaks DELEGATE3).
    FlushMappingFirst,
    /// An invalidation is acknowledged at once (breaks DELEGATE4).
    AcknowledgeAtOnce,
    /// A mapper that reconnects is sent no answers (breaks DELEGATE6).
    ForgetHeld,
    /// What is copied is not waited for (breaks DELEGATE2).
    ShareEarly,
}

/// How a delegated volume and its mapper are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DelegateStatus {
    /// Whether there is a connection, and the mapper has answered the hello.
    pub is_connected: bool,
    /// Ranges that are kept.
    pub entries: usize,
    /// Of these, ranges that the mapper has not made durable.
    pub unflushed: usize,
    /// Requests that had to ask.
    pub misses: u64,
    /// Extents of answers that were refused, because they name what they must not.
    pub refused: u64,
    /// Requests that failed since no answer came in time.
    pub timeouts: u64,
    /// For how long it has answered nothing of what it was asked.
    pub silence: Duration,
    /// Whether a request failed for that.
    pub has_failed: bool,
}
