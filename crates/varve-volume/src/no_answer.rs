//! What a shard that was sent work may say instead of an answer.

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The shard has ended.
    Gone,
    /// A volume that the work used has failed.
    Failed,
}
