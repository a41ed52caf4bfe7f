//! Dates as text.

use crate::date::{format_date, parse_date};
use serde::{Deserialize, Deserializer, Serializer, de::Error};
use varve_block::UnixTime;

pub(super) fn serialize<S: Serializer>(date: &UnixTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_date(*date))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UnixTime, D::Error> {
    let text = String::deserialize(deserializer)?;
    let expected = "a date like 2026-11-21T11:46:28Z";
    parse_date(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is not {expected}")))
}

/// Dates that may not be known: these are not written.
pub(super) mod if_known {
    use serde::{Deserializer, Serializer};
    use varve_block::UnixTime;

    pub(in super::super) fn serialize<S: Serializer>(
        date: &Option<UnixTime>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match date {
            Some(date) => super::serialize(date, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<UnixTime>, D::Error> {
        super::deserialize(deserializer).map(Some)
    }
}
