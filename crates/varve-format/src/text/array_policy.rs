//! What the arrays of a volume or pool do about members that are slow, how fast they are made equal, and when regions are clean again.

use serde::{Deserialize, Serialize};
use varve_block::MIB;

/// What the arrays of a volume or pool, those of its exception stores included, declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayPolicyEntry {
    /// How long a request on a member may take, in milliseconds.
    pub slow_after_ms: u64,
    /// Bytes of the array that are made equal or caught up in a second while clients are served, at least.
    pub resync_rate_min: u64,
    /// Bytes in a second at most, always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync_rate_max: Option<u64>,
    /// How long a region is idle before it is clean again, in milliseconds.
    #[serde(default = "release_after_ms", skip_serializing_if = "is_usual")]
    pub release_after_ms: u64,
}

/// The usual one.
fn release_after_ms() -> u64 {
    1000
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_usual(ms: &u64) -> bool {
    *ms == release_after_ms()
}

impl Default for ArrayPolicyEntry {
    fn default() -> Self {
        let release_after_ms = release_after_ms();
        Self { slow_after_ms: 30_000, resync_rate_min: 8 * MIB, resync_rate_max: None, release_after_ms }
    }
}

impl ArrayPolicyEntry {
    /// What is wrong with it, if it breaks TEXT19.
    pub fn problem(&self) -> Option<&'static str> {
        let rates = self.resync_rate_min..=self.resync_rate_max.unwrap_or(i64::MAX.unsigned_abs());
        if !(1000..=3_600_000).contains(&self.slow_after_ms) {
            Some("an array waits for a request on a member for 1 second to 1 hour")
        } else if self.release_after_ms > 3_600_000 {
            Some("a region of an array is clean again after an hour without writes, at the latest")
        } else if rates.is_empty() || *rates.start() == 0 || i64::try_from(*rates.end()).is_err() {
            Some(
                "an array is made equal at a rate of 1 byte in a second or more, and no more at least than at most",
            )
        } else {
            None
        }
    }
}
