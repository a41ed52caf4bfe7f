//! The data of the options that ask about an export.

use super::step::{Step, refuse};
use crate::reader::{Reader, text};
use crate::wire::{self, info, option, reply};

/// What the handshake has asked its owner.
#[derive(Debug)]
pub(super) enum Question {
    ExportName { name: String },
    Info { go: bool, name: String, wanted: Wanted },
    Meta { set: bool, name: String, queries: Queries },
    List,
}

impl Question {
    pub(super) fn name(&self) -> &str {
        match self {
            Question::ExportName { name } | Question::Info { name, .. } | Question::Meta { name, .. } => name,
            Question::List => "",
        }
    }

    /// The option that asked, if a refusal can be sent to it.
    pub(super) fn option(&self) -> Option<u32> {
        Some(match self {
            Question::ExportName { .. } | Question::List => return None,
            Question::Info { go: true, .. } => option::GO,
            Question::Info { go: false, .. } => option::INFO,
            Question::Meta { set: true, .. } => option::SET_META_CONTEXT,
            Question::Meta { set: false, .. } => option::LIST_META_CONTEXT,
        })
    }
}

/// Metadata contexts that a client names.
#[derive(Debug)]
pub(super) struct Queries {
    set: bool,
    named: Vec<String>,
}

impl Queries {
    /// Whether `context` is meant. A list may be asked for by what names begin with up to a colon; by nothing it is that of all.
    pub(super) fn mean(&self, context: &str) -> bool {
        let is_meant = |query: &String| {
            query == context || (!self.set && query.ends_with(':') && context.starts_with(query.as_str()))
        };
        (!self.set && self.named.is_empty()) || self.named.iter().any(is_meant)
    }
}

/// Facts that are sent only on request.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Wanted {
    pub(super) name: bool,
    pub(super) description: bool,
}

/// Why an option is refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    kind: u32,
    why: &'static str,
}

impl Refusal {
    const INVALID: Self = Self { kind: reply::ERR_INVALID, why: "the option's data make no sense" };
    const TOO_BIG: Self = Self { kind: reply::ERR_TOO_BIG, why: "a string is longer than 4096 bytes" };

    pub(super) fn send(self, option: u32, output: &mut Vec<u8>) -> Option<Step> {
        refuse(output, option, self.kind, self.why);
        None
    }
}

fn string(reader: &mut Reader<'_>) -> Result<String, Refusal> {
    let bytes = reader.counted().ok_or(Refusal::INVALID)?;
    if bytes.len() > wire::NAME_LENGTH_MAX {
        return Err(Refusal::TOO_BIG);
    }
    text(bytes).map(str::to_owned).ok_or(Refusal::INVALID)
}

pub(super) fn parse_info(option: u32, data: &[u8]) -> Result<Question, Refusal> {
    let mut reader = Reader::new(data);
    let name = string(&mut reader)?;
    let count = reader.u16().ok_or(Refusal::INVALID)?;
    let mut wanted = Wanted::default();
    for _ in 0..count {
        match reader.u16().ok_or(Refusal::INVALID)? {
            info::NAME => wanted.name = true,
            info::DESCRIPTION => wanted.description = true,
            _ => {}
        }
    }
    if !reader.is_empty() {
        return Err(Refusal::INVALID);
    }
    Ok(Question::Info { go: option == option::GO, name, wanted })
}

pub(super) fn parse_meta(set: bool, data: &[u8]) -> Result<Question, Refusal> {
    let mut reader = Reader::new(data);
    let name = string(&mut reader)?;
    let count = reader.u32().ok_or(Refusal::INVALID)?;
    let mut named = Vec::new();
    for _ in 0..count {
        named.push(string(&mut reader)?);
    }
    if !reader.is_empty() {
        return Err(Refusal::INVALID);
    }
    Ok(Question::Meta { set, name, queries: Queries { set, named } })
}
