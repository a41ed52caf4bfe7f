//! How the text writes places: `pv0` a disk, `pv0:10+5` five extents of it from the tenth on, `pv0:0+5 pv1:0+5` a
//! striped segment, or one of an array.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a group calls one of its physical volumes: `pv` and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PvName(pub u32);

/// A run of extents of one physical volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Area {
    /// The physical volume.
    pub pv: PvName,
    /// The first extent.
    pub start: u64,
    /// Number of extents.
    pub count: u64,
}

/// A part of a volume: one area if linear, several side by side if striped, one for each member of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Segment {
    /// The areas, at least one.
    pub areas: Vec<Area>,
}

impl Segment {
    /// A segment of one area.
    pub fn linear(area: Area) -> Self {
        Self { areas: vec![area] }
    }
}

impl Area {
    /// The first extent after the area.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.count)
    }
}

impl fmt::Display for PvName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pv{}", self.0)
    }
}

impl FromStr for PvName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.strip_prefix("pv").and_then(|number| number.parse().ok()).map(PvName);
        let exact = name.filter(|name| name.to_string() == text);
        exact.ok_or_else(|| format!("{text:?} is not the name of a physical volume, like pv0"))
    }
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}+{}", self.pv, self.start, self.count)
    }
}

impl FromStr for Area {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = || {
            let (pv, run) = text.split_once(':')?;
            let (start, count) = run.split_once('+')?;
            Some(Area { pv: pv.parse().ok()?, start: start.parse().ok()?, count: count.parse().ok()? })
        };
        let exact = parsed().filter(|area| area.to_string() == text);
        exact.ok_or_else(|| format!("{text:?} is not an area, like pv0:10+5"))
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let areas: Vec<_> = self.areas.iter().map(Area::to_string).collect();
        f.write_str(&areas.join(" "))
    }
}

impl FromStr for Segment {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self { areas: text.split(' ').map(str::parse).collect::<Result<_, _>>()? })
    }
}

impl From<PvName> for String {
    fn from(name: PvName) -> String {
        name.to_string()
    }
}

impl TryFrom<String> for PvName {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Area> for String {
    fn from(area: Area) -> String {
        area.to_string()
    }
}

impl TryFrom<String> for Area {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Segment> for String {
    fn from(segment: Segment) -> String {
        segment.to_string()
    }
}

impl TryFrom<String> for Segment {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}
