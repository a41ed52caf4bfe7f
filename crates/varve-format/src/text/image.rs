//! A disk image in a group's text: where it is, and what it was like when a volume was first made over it.

use crate::date::{format_exact_date, parse_exact_date};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use uuid::Uuid;

/// A file or a disk that backs volumes of the group's pools. It must not change as long as it backs one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageEntry {
    /// What pools call it.
    pub id: Uuid,
    /// Where it is; absolute.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// How it is read.
    #[serde(default, skip_serializing_if = "ImageFormat::is_raw")]
    pub format: ImageFormat,
    /// The internal snapshot that backs volumes instead of the image itself, by id or name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// When it was last written, in nanoseconds since 1970; unknown for a block device.
    #[serde(default, rename = "modified", with = "exact_date", skip_serializing_if = "Option::is_none")]
    pub modified_ns: Option<u64>,
}

/// How an image is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageFormat {
    /// Its bytes are the disk's.
    #[default]
    Raw,
    /// As QEMU's format says.
    Qcow2,
}

impl ImageFormat {
    /// The format of that name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "raw" => Some(ImageFormat::Raw),
            "qcow2" => Some(ImageFormat::Qcow2),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ImageFormat::Raw => "raw",
            ImageFormat::Qcow2 => "qcow2",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    pub(super) fn is_raw(&self) -> bool {
        *self == ImageFormat::Raw
    }
}

/// Longest name of a snapshot in an image, in bytes.
const SNAPSHOT_NAME_MAX: usize = 1024;

/// Whether this can be the name of a snapshot in an image (TEXT14).
pub(super) fn is_snapshot_name(name: &str) -> bool {
    (1..=SNAPSHOT_NAME_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// Whether this can be the path of an image (TEXT14, TEXT21).
pub(super) fn is_image_path(path: &str) -> bool {
    path.starts_with('/') && !path.chars().any(char::is_control)
}

impl ImageEntry {
    /// The backing of volumes, as shown to users: its path, and the snapshot in it.
    pub fn shown(&self) -> String {
        match &self.snapshot {
            Some(snapshot) => format!("{}, snapshot {snapshot}", self.path),
            None => self.path.clone(),
        }
    }

    /// When it was last written, in the form that the text has and that `touch -d` takes.
    pub fn modified(&self) -> Option<String> {
        self.modified_ns.map(format_exact_date)
    }
}

/// Dates with nanoseconds as text.
mod exact_date {
    use super::{Deserialize, Deserializer, Error, Serializer, format_exact_date, parse_exact_date};

    pub(super) fn serialize<S: Serializer>(date: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        match date {
            Some(date) => serializer.serialize_str(&format_exact_date(*date)),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let expected = "a date like 2026-11-21T11:46:28.123456789Z";
        let parsed =
            parse_exact_date(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is not {expected}")));
        parsed.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_dates_survive_and_others_are_refused() {
        let exact = 1_795_300_465_000_000_004;
        assert_eq!(format_exact_date(exact), "2026-11-21T22:34:25.000000004Z");
        for date in [0, 1, exact, u64::MAX] {
            assert_eq!(parse_exact_date(&format_exact_date(date)), Some(date));
        }
        for text in ["", "2026-11-21T22:34:25Z", "2026-11-21T22:34:25.4Z", "2026-11-21T22:34:25.+00000004Z"] {
            assert_eq!(parse_exact_date(text), None, "{text}");
        }
    }
}
