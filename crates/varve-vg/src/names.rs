//! What commands call things: `VG`, `VG/LV`, `VG/LV@SNAP`, and ranges `VG/LV@A..@B`.

use std::fmt;
use std::str::FromStr;
use varve_format::{NameError, check_name};

/// A volume or one of its snapshots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeName {
    /// The group.
    pub group: String,
    /// The volume in it.
    pub volume: String,
    /// The snapshot of it, if one is meant.
    pub snapshot: Option<String>,
}

/// Snapshots of one volume: `VG/LV@A` alone, or `VG/LV@A..@B`, the first to the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRange {
    /// The group.
    pub group: String,
    /// The volume in it.
    pub volume: String,
    /// The first snapshot.
    pub first: String,
    /// The last; the first itself if there is one only.
    pub last: String,
}

/// Why a name is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamesError {
    /// A part of it may not be a name.
    #[error("{part:?} in {text:?}: {error}")]
    Part {
        /// All of it.
        text: String,
        /// The part.
        part: String,
        /// What is wrong with it.
        error: NameError,
    },
    /// It is not what the command needs.
    #[error("{text:?} is not the name of a {wanted}")]
    Form {
        /// All of it.
        text: String,
        /// What is needed, and how it is written.
        wanted: &'static str,
    },
}

const VOLUME: &str = "volume: write VG/LV, or VG/LV@SNAP for a snapshot";
const SNAPSHOT: &str = "snapshot: write VG/LV@SNAP, or VG/LV@FIRST..@LAST";

/// Checks the name of a group.
pub fn parse_group(text: &str) -> Result<String, NamesError> {
    part(text, text)
}

impl VolumeName {
    /// A volume, where a snapshot makes no sense.
    pub fn parse_volume(text: &str) -> Result<VolumeName, NamesError> {
        let name: VolumeName = text.parse()?;
        match name.snapshot {
            None => Ok(name),
            Some(_) => Err(NamesError::Form { text: text.into(), wanted: "volume: write VG/LV" }),
        }
    }

    /// The volume that a snapshot is of; a volume's own name.
    pub fn origin(&self) -> VolumeName {
        VolumeName { snapshot: None, ..self.clone() }
    }
}

impl FromStr for VolumeName {
    type Err = NamesError;
    fn from_str(text: &str) -> Result<Self, NamesError> {
        let form = || NamesError::Form { text: text.into(), wanted: VOLUME };
        let (group, rest) = text.split_once('/').ok_or_else(form)?;
        let (volume, snapshot) = match rest.split_once('@') {
            Some((volume, snapshot)) => (volume, Some(snapshot)),
            None => (rest, None),
        };
        let snapshot = snapshot.map(|snapshot| part(text, snapshot)).transpose()?;
        Ok(Self { group: part(text, group)?, volume: part(text, volume)?, snapshot })
    }
}

impl FromStr for SnapshotRange {
    type Err = NamesError;
    fn from_str(text: &str) -> Result<Self, NamesError> {
        let (first, last) = match text.split_once("..@") {
            Some((first, last)) => (first, Some(part(text, last)?)),
            None => (text, None),
        };
        let form = || NamesError::Form { text: text.into(), wanted: SNAPSHOT };
        let VolumeName { group, volume, snapshot } = first.parse().map_err(|error| match error {
            NamesError::Form { .. } => form(),
            part @ NamesError::Part { .. } => part,
        })?;
        let first = snapshot.ok_or_else(form)?;
        let last = last.unwrap_or_else(|| first.clone());
        Ok(Self { group, volume, first, last })
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.volume)?;
        match &self.snapshot {
            Some(snapshot) => write!(f, "@{snapshot}"),
            None => Ok(()),
        }
    }
}

fn part(text: &str, part: &str) -> Result<String, NamesError> {
    match check_name(part) {
        Ok(()) => Ok(part.to_owned()),
        Err(error) => Err(NamesError::Part { text: text.into(), part: part.into(), error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_the_contract() {
        let name: VolumeName = "data/vm1@mon".parse().expect("a snapshot");
        assert_eq!(
            (name.group.as_str(), name.volume.as_str(), name.snapshot.as_deref()),
            ("data", "vm1", Some("mon"))
        );
        assert_eq!(VolumeName::parse_volume("data/vm1").map(|name| name.to_string()), Ok("data/vm1".into()));
        let range: SnapshotRange = "data/vm1@a..@b".parse().expect("a range");
        assert_eq!((range.first.as_str(), range.last.as_str()), ("a", "b"));
        let single: SnapshotRange = "data/vm1@a..b".parse().expect("points are part of names");
        assert_eq!((single.first.as_str(), single.last.as_str()), ("a..b", "a..b"));
        assert_eq!(parse_group("data"), Ok("data".into()));
    }

    #[test]
    fn what_is_no_name_is_refused_by_kind() {
        for text in ["data", "", "data@x"] {
            assert!(matches!(text.parse::<VolumeName>(), Err(NamesError::Form { .. })), "{text}");
        }
        for text in
            ["/vm1", "data/", "data/vm1@", "data/vm1@a@b", "a/b/c", "data/-x", "data/vm 1", "../etc/passwd"]
        {
            assert!(matches!(text.parse::<VolumeName>(), Err(NamesError::Part { .. })), "{text}");
        }
        for text in ["data/vm1", "data"] {
            assert!(matches!(text.parse::<SnapshotRange>(), Err(NamesError::Form { .. })), "{text}");
        }
        assert!(matches!("data/vm1@a..@".parse::<SnapshotRange>(), Err(NamesError::Part { .. })));
        assert!(matches!(VolumeName::parse_volume("data/vm1@a"), Err(NamesError::Form { .. })));
        assert!(matches!(parse_group(&"x".repeat(200)), Err(NamesError::Part { .. })));
    }

    proptest! {
        #[test]
        fn names_survive_the_round_trip(text in "[a-z0-9_][a-z0-9_.+-]{0,20}/[A-Z0-9_][a-z0-9_.+-]{0,20}(@[a-z][a-z.]{0,9})?") {
            prop_assert_eq!(text.parse::<VolumeName>().map(|name| name.to_string()), Ok(text));
        }
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*") {
            let _ = text.parse::<VolumeName>();
            let _ = text.parse::<SnapshotRange>();
        }
    }
}
