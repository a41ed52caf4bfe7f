//! Exports, as they are shown.

use crate::traffic::Traffic;
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

/// Permissions of a file, shown in octal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String))]
#[serde(try_from = "String", into = "String")]
pub struct FileMode(u32);

impl FileMode {
    /// Its owner alone may read and write.
    pub const OWNER: Self = Self(0o600);

    /// These permissions; what is no permission is left out.
    pub const fn of(bits: u32) -> Self {
        Self(bits & 0o777)
    }

    /// Its bits.
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl std::str::FromStr for FileMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_octal =
            (1..=4).contains(&text.len()) && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
        match u32::from_str_radix(text, 8) {
            Ok(bits) if is_octal && bits <= 0o777 => Ok(Self(bits)),
            _ => Err(format!("{text} is no mode of three octal digits")),
        }
    }
}

impl std::fmt::Display for FileMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl From<FileMode> for String {
    fn from(mode: FileMode) -> Self {
        mode.to_string()
    }
}

impl TryFrom<String> for FileMode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Which users of its host may use the socket or file of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExportAccess {
    /// Its permissions, as `0660`; its owner's alone if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
    /// Its group, as it was given: a name or a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl ExportAccess {
    /// Whether it is as the system makes it, for its owner.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The TLS that the clients of an export have to begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExportTls {
    /// The folder of the server's credentials.
    pub folder: String,
    /// Until when its certificate is valid, if it is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<u64>,
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
    /// Who may use its socket or file.
    #[serde(default, skip_serializing_if = "ExportAccess::is_default")]
    pub access: ExportAccess,
    /// How its clients and the daemon know each other, if they have to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ExportTls>,
    /// The snapshot since which its clients may ask what was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Whether it serves.
    pub state: ExportState,
    /// Why not, or what a client of it has to know.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_written_in_octal_digits_and_read_back() {
        let read = |text: &str| text.parse::<FileMode>().map(|mode| (mode.bits(), mode.to_string()));
        assert_eq!(read("660"), Ok((0o660, "0660".to_owned())));
        assert_eq!(read("0600"), Ok((0o600, "0600".to_owned())));
        for wrong in ["", "1777", "8", "+660", "00660", "rw", "0x1b0", "-1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let access = ExportAccess { mode: "0660".parse().ok(), group: None };
        let text = serde_json::to_string(&access).expect("plain data");
        assert_eq!(text, r#"{"mode":"0660"}"#);
        assert_eq!(serde_json::from_str::<ExportAccess>(&text).ok(), Some(access));
        assert!(serde_json::from_str::<ExportAccess>(r#"{"mode":"9"}"#).is_err());
    }
}
