//! Error codes: a stable number each, an exit code, and the text of `varve explain`.
//!
//! Invariants:
//! - CODE1. A number is used once and never changes its meaning.
//! - CODE2. The number's hundreds are the noun: 00 the program, 01 physical volumes, 02 groups, 03 volumes, 04 snapshots,
//!   05 exports, 06 space, 07 jobs, 08 data, 09 offline tools.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

pub use crate::catalogue::Code;

/// How a command ends, as scripts see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// It did what was asked.
    Ok = 0,
    /// It failed for a reason of its own.
    Failed = 1,
    /// The command was not understood, or is not built yet.
    Usage = 2,
    /// What was named does not exist.
    NotFound = 3,
    /// What should be made exists.
    Exists = 4,
    /// In use, or something depends on it.
    Busy = 5,
    /// There is not enough space.
    NoSpace = 6,
    /// Something on disk is damaged.
    NeedsRepair = 7,
    /// A question was answered with no, or could not be asked.
    Declined = 8,
    /// A part was done.
    Partial = 9,
}

/// What `varve explain` tells about a code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Explanation {
    /// The code.
    pub code: Code,
    /// Exit code of a command that ends with it.
    pub exit: u8,
    /// The error in a few words.
    pub title: String,
    /// What it means and what to do.
    pub text: String,
}

impl Code {
    /// The code with this text form (`V0123`, any case, the zeros may be missing), if there is one.
    pub fn parse(text: &str) -> Option<Code> {
        let digits = text.strip_prefix(['V', 'v']).unwrap_or(text);
        if digits.is_empty() || digits.len() > 4 {
            return None;
        }
        let number: u16 = digits.parse().ok()?;
        Code::ALL.iter().copied().find(|code| code.number() == number)
    }

    /// Everything that is known about the code.
    pub fn explain(self) -> Explanation {
        let (title, text) = (self.title().to_owned(), self.text().to_owned());
        Explanation { code: self, exit: self.exit() as u8, title, text }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "V{:04}", self.number())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Code {
    /// A code that this version does not know reads as [`Code::Failed`].
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(Code::parse(&text).unwrap_or(Code::Failed))
    }
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for Code {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .pattern(Some("^V[0-9]{4}$"))
            .description(Some("An error code; `varve explain CODE` tells what it means."))
            .build()
            .into()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for Code {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_are_unique_and_every_code_is_explained() {
        let numbers: HashSet<u16> = Code::ALL.iter().map(|code| code.number()).collect();
        assert_eq!(numbers.len(), Code::ALL.len(), "CODE1");
        for code in Code::ALL {
            assert!(code.number() < 1000, "CODE2: {code}");
            assert!(code.text().len() > 60, "{code} deserves a sentence");
            assert!(!code.title().ends_with('.'), "{code}: a title is no sentence");
            assert_ne!(code.exit(), Exit::Ok, "{code}");
        }
    }

    #[test]
    fn text_forms_are_read_as_people_type_them() {
        assert_eq!(Code::parse("V0002"), Some(Code::Usage));
        assert_eq!(Code::parse("v2"), Some(Code::Usage));
        assert_eq!(Code::parse("0002"), Some(Code::Usage));
        for wrong in ["", "V", "V9999", "V00002", "-2", "two"] {
            assert_eq!(Code::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn an_unknown_code_of_a_newer_daemon_is_still_an_error() {
        let code: Code = serde_json::from_str("\"V0999\"").expect("a string");
        assert_eq!(code, Code::Failed);
    }
}
