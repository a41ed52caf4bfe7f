//! Exports, as they are shown.

use crate::nouns::Traffic;
use crate::words::{Door, ExportState};
use serde::{Deserialize, Serialize};

/// How fast the clients of an export may be, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExportLimits {
    /// Requests in a second that read, write, zero or discard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Bytes in a second that are read or written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<u64>,
}

impl ExportLimits {
    /// Whether there are no limits.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// A door onto a volume or snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Export {
    /// The daemon's name for it.
    pub id: String,
    /// `VG/LV` or `VG/LV@SNAP`.
    pub volume: String,
    /// The protocol.
    pub door: Door,
    /// Where it listens, as it was given: `unix:PATH`, `tcp:HOST:PORT`, or a file.
    pub address: String,
    /// What a client of the protocol connects to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// The file or device to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The block device of this kernel to which the path leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Whether clients may not write.
    pub read_only: bool,
    /// How fast clients may be.
    #[serde(default, skip_serializing_if = "ExportLimits::is_none")]
    pub limits: ExportLimits,
    /// Whether it serves.
    pub state: ExportState,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Connections, or openings of its file, now.
    pub connections: u64,
    /// Who they are, as far as this host knows: processes, addresses, loop devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<String>,
    /// What went through it.
    pub traffic: Traffic,
}
