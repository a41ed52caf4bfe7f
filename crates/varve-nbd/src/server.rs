//! The server's side: the handshake as a state machine, and the judgement of requests.
//!
//! Fixed newstyle only. Encryption is the owner's: the handshake says when it begins, and what may be said before.
//!
//! Invariants:
//! - SERVER1. An option gets all its replies before the next one is looked at.
//! - SERVER2. Bytes after the option that begins the transmission stay with the owner.
//! - SERVER3. An option that is too long is refused when its header has come, and skipped without being kept; one longer
//!   than [`wire::OPTION_SKIP_MAX`] ends the handshake.
//! - SERVER5. Where encryption is required nothing of any export is said or done before it, and nothing that was said before holds after
//!   it. What follows the option that begins it stays with the owner, as in SERVER2.
//! - SERVER4. Options are bounded by their bytes, not by their number: a client sends some for each export of a long list. The owner
//!   bounds the time.

mod options;
mod step;
mod terms;

pub use step::{Agreement, CloseReason, Contexts, Step};
pub use terms::Terms;

use crate::reader::collect;
use crate::transmission::Framing;
use crate::wire::{self, BlockSizes, ExportFlags, option, reply};
use options::{Queries, Question, Wanted};
use step::{answer, refuse, shortened};

/// What an export is, for a client that asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Bytes.
    pub size: u64,
    /// What it can do. [`ExportFlags::HAS_FLAGS`] and [`ExportFlags::DF`] are seen to by the handshake.
    pub flags: ExportFlags,
    /// Which requests it likes.
    pub block_sizes: BlockSizes,
    /// Its own name, whatever it was asked for by.
    pub name: String,
    /// A line for users; may be empty.
    pub description: String,
    /// The name of the state since which it says what was changed, if it does.
    pub changed_since: Option<String>,
}

/// One export of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// A line for users; may be empty.
    pub description: String,
}

/// The number under which `base:allocation` is served.
pub const ALLOCATION_CONTEXT_ID: u32 = 1;
/// The number under which [`wire::DIRTY_CONTEXT`] is served.
pub const DIRTY_CONTEXT_ID: u32 = 2;

#[derive(Debug)]
enum Phase {
    ClientFlags,
    Header,
    Data { option: u32, length: usize },
    Skip { left: u64 },
    Asked(Question),
    Ended,
}

/// Whether a connection is encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Encryption {
    NotOffered,
    Required,
    Begun,
}

/// The server's side of one handshake.
#[derive(Debug)]
pub struct Handshake {
    phase: Phase,
    encryption: Encryption,
    /// The part of the present item that has come.
    pending: Vec<u8>,
    /// Bytes of the options until now (SERVER4).
    received: u64,
    fixed: bool,
    no_zeroes: bool,
    framing: Framing,
    /// The export for which contexts were chosen, and these.
    chosen: Option<(String, Contexts)>,
}

impl Default for Handshake {
    fn default() -> Self {
        Self::new()
    }
}

impl Handshake {
    /// A handshake whose client has said nothing yet.
    pub fn new() -> Self {
        Self::with(Encryption::NotOffered)
    }

    /// A handshake whose client has to begin encryption first (SERVER5).
    pub fn encrypted() -> Self {
        Self::with(Encryption::Required)
    }

    fn with(encryption: Encryption) -> Self {
        Self {
            phase: Phase::ClientFlags,
            encryption,
            pending: Vec::new(),
            received: 0,
            fixed: false,
            no_zeroes: false,
            framing: Framing::Simple,
            chosen: None,
        }
    }

    /// What the server says first.
    pub fn greeting() -> [u8; wire::GREETING_LENGTH] {
        let mut greeting = [0; wire::GREETING_LENGTH];
        greeting[..8].copy_from_slice(&wire::GREETING_MAGIC.to_be_bytes());
        greeting[8..16].copy_from_slice(&wire::OPTION_MAGIC.to_be_bytes());
        greeting[16..].copy_from_slice(&(wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES).to_be_bytes());
        greeting
    }

    /// Takes bytes of the client, as far as they go before the owner has to do something; says how many it took.
    /// What is to be sent is appended to `output`. Takes nothing while a question waits for its answer.
    pub fn feed(&mut self, input: &[u8], output: &mut Vec<u8>) -> (usize, Step) {
        let mut used = 0;
        loop {
            let (taken, step) = self.advance(&input[used..], output);
            used += taken;
            if let Some(step) = step {
                return (used, step);
            }
        }
    }

    /// One item of input. `None`: the next one can be looked at.
    fn advance(&mut self, input: &[u8], output: &mut Vec<u8>) -> (usize, Option<Step>) {
        let length = match self.phase {
            Phase::ClientFlags => 4,
            Phase::Header => wire::OPTION_HEADER_LENGTH,
            Phase::Data { length, .. } => length,
            Phase::Skip { left } => return self.skip(left, input),
            Phase::Asked(_) => return (0, Some(Step::More)),
            Phase::Ended => return (0, Some(Step::Close(CloseReason::Aborted))),
        };
        let (taken, full) = collect(&mut self.pending, input, length);
        if !full {
            return (taken, Some(Step::More));
        }
        let item = std::mem::take(&mut self.pending);
        let step = match self.phase {
            Phase::ClientFlags => self.client_flags(&item),
            Phase::Data { option, .. } => {
                self.phase = Phase::Header;
                self.option(option, &item, output)
            }
            _ => self.header(&item, output),
        };
        (taken, step)
    }

    /// Skips what is left of an option that is too long (SERVER3).
    fn skip(&mut self, left: u64, input: &[u8]) -> (usize, Option<Step>) {
        let taken = usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
        let left = left - taken as u64;
        if left > 0 {
            self.phase = Phase::Skip { left };
            return (taken, Some(Step::More));
        }
        self.phase = Phase::Header;
        (taken, None)
    }

    fn close(&mut self, reason: CloseReason) -> Option<Step> {
        self.phase = Phase::Ended;
        Some(Step::Close(reason))
    }

    fn client_flags(&mut self, item: &[u8]) -> Option<Step> {
        let flags = item.iter().fold(0, |flags, byte| flags << 8 | u32::from(*byte));
        let (fixed, no_zeroes) = (u32::from(wire::FLAG_FIXED_NEWSTYLE), u32::from(wire::FLAG_NO_ZEROES));
        if flags & !(fixed | no_zeroes) != 0 {
            return self.close(CloseReason::Malformed("unknown flags in the handshake"));
        }
        self.fixed = flags & fixed != 0;
        self.no_zeroes = flags & no_zeroes != 0;
        self.phase = Phase::Header;
        None
    }

    fn header(&mut self, item: &[u8], output: &mut Vec<u8>) -> Option<Step> {
        let mut reader = crate::reader::Reader::new(item);
        if reader.u64() != Some(wire::OPTION_MAGIC) {
            return self.close(CloseReason::Malformed("an option does not begin with its magic"));
        }
        let (Some(option), Some(length)) = (reader.u32(), reader.u32()) else {
            return self.close(CloseReason::Malformed("an option's header is short"));
        };
        if !self.fixed && option != option::EXPORT_NAME {
            return self.close(CloseReason::Malformed("an option from a client that does not know replies"));
        }
        self.phase = match usize::try_from(length) {
            Ok(length) if length <= wire::OPTION_LENGTH_MAX => Phase::Data { option, length },
            _ if option == option::EXPORT_NAME => {
                return self.close(CloseReason::Malformed("the name of an export is too long"));
            }
            _ => {
                // The option is refused when its header has come, and skipped (SERVER3).
                refuse(output, option, reply::ERR_TOO_BIG, "the option is too long");
                if length > wire::OPTION_SKIP_MAX {
                    return self.close(CloseReason::Malformed("an option is longer than any option can be"));
                }
                Phase::Skip { left: u64::from(length) }
            }
        };
        self.received += wire::OPTION_HEADER_LENGTH as u64 + u64::from(length);
        if self.received > wire::HANDSHAKE_LENGTH_MAX {
            return self.close(CloseReason::Malformed("the options are too long together")); // SERVER4
        }
        None
    }

    fn option(&mut self, option: u32, data: &[u8], output: &mut Vec<u8>) -> Option<Step> {
        match option {
            option::STARTTLS if self.encryption != Encryption::NotOffered => self.start_tls(data, output),
            option::EXPORT_NAME if self.encryption == Encryption::Required => {
                self.close(CloseReason::Unencrypted)
            }
            option::EXPORT_NAME => self.export_name(data),
            option::ABORT => {
                answer(output, option, reply::ACK, &[]);
                self.close(CloseReason::Aborted)
            }
            _ if self.encryption == Encryption::Required => {
                refuse(output, option, reply::ERR_TLS_REQD, "TLS has to be begun first");
                None
            }
            option::LIST if data.is_empty() => {
                self.phase = Phase::Asked(Question::List);
                Some(Step::List)
            }
            option::STRUCTURED_REPLY | option::EXTENDED_HEADERS if data.is_empty() => {
                self.choose_framing(option, output);
                None
            }
            option::LIST | option::STRUCTURED_REPLY | option::EXTENDED_HEADERS => {
                refuse(output, option, reply::ERR_INVALID, "the option has no data");
                None
            }
            option::INFO | option::GO => match options::parse_info(option, data) {
                Ok(question) => self.ask(question),
                Err(refusal) => refusal.send(option, output),
            },
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.meta_context(option == option::SET_META_CONTEXT, data, output)
            }
            _ => {
                refuse(output, option, reply::ERR_UNSUP, "the option is not supported");
                None
            }
        }
    }

    fn start_tls(&mut self, data: &[u8], output: &mut Vec<u8>) -> Option<Step> {
        let option = option::STARTTLS;
        if !data.is_empty() {
            refuse(output, option, reply::ERR_INVALID, "the option has no data");
            return None;
        }
        if self.encryption == Encryption::Begun {
            refuse(output, option, reply::ERR_INVALID, "TLS was begun already");
            return None;
        }
        answer(output, option, reply::ACK, &[]);
        let (encryption, fixed, no_zeroes) = (Encryption::Begun, self.fixed, self.no_zeroes);
        let (phase, received) = (Phase::Header, self.received);
        *self = Self { phase, received, fixed, no_zeroes, ..Self::with(encryption) }; // SERVER5
        Some(Step::StartTls)
    }

    fn ask(&mut self, question: Question) -> Option<Step> {
        let step = Step::Lookup(question.name().to_owned());
        self.phase = Phase::Asked(question);
        Some(step)
    }

    fn export_name(&mut self, data: &[u8]) -> Option<Step> {
        match crate::reader::text(data).filter(|name| name.len() <= wire::NAME_LENGTH_MAX) {
            Some(name) => self.ask(Question::ExportName { name: name.to_owned() }),
            None => self.close(CloseReason::Malformed("the name of an export is no name")),
        }
    }

    fn choose_framing(&mut self, option: u32, output: &mut Vec<u8>) {
        if option == option::EXTENDED_HEADERS {
            self.framing = Framing::Extended;
        } else if self.framing == Framing::Extended {
            refuse(output, option, reply::ERR_EXT_HEADER_REQD, "extended headers were agreed already");
            return;
        } else {
            self.framing = Framing::Structured;
        }
        answer(output, option, reply::ACK, &[]);
    }

    fn meta_context(&mut self, set: bool, data: &[u8], output: &mut Vec<u8>) -> Option<Step> {
        let option = if set { option::SET_META_CONTEXT } else { option::LIST_META_CONTEXT };
        if set {
            self.chosen = None;
        }
        if self.framing == Framing::Simple {
            refuse(output, option, reply::ERR_INVALID, "structured replies come first");
            return None;
        }
        match options::parse_meta(set, data) {
            Ok(question) => self.ask(question),
            Err(refusal) => refusal.send(option, output),
        }
    }

    /// Answers [`Step::Lookup`]; `None` if there is no such export. Panics if nothing was asked.
    pub fn answer(&mut self, offer: Option<&Offer>, output: &mut Vec<u8>) -> Step {
        let question = match std::mem::replace(&mut self.phase, Phase::Header) {
            Phase::Asked(question) => question,
            phase => panic!("SERVER1: no lookup was asked for in {phase:?}"),
        };
        let Some(offer) = offer else {
            return self.answer_unknown(&question, output);
        };
        match question {
            Question::ExportName { name } => {
                output.extend_from_slice(&offer.size.to_be_bytes());
                output.extend_from_slice(&self.flags(offer).0.to_be_bytes());
                let padding = if self.no_zeroes { 0 } else { wire::EXPORT_NAME_PADDING };
                output.resize(output.len() + padding, 0);
                self.begin(&name)
            }
            Question::Info { go, name, wanted } => {
                self.facts(if go { option::GO } else { option::INFO }, offer, wanted, output);
                if go { self.begin(&name) } else { Step::More }
            }
            Question::Meta { set, name, queries } => {
                let contexts = contexts(set, &queries, offer, output);
                if set {
                    self.chosen = Some((name, contexts));
                }
                Step::More
            }
            Question::List => panic!("SERVER1: a list was asked for, not a lookup"),
        }
    }

    fn answer_unknown(&mut self, question: &Question, output: &mut Vec<u8>) -> Step {
        let Some(option) = question.option() else {
            self.phase = Phase::Ended;
            return Step::Close(CloseReason::UnknownExport);
        };
        refuse(output, option, reply::ERR_UNKNOWN, "there is no such export");
        Step::More
    }

    /// Whether the export that was asked for by [`Step::Lookup`] is to be served as soon as it is offered.
    pub fn wants_export(&self) -> bool {
        matches!(self.phase, Phase::Asked(Question::ExportName { .. } | Question::Info { go: true, .. }))
    }

    /// Answers [`Step::Lookup`] with a refusal that says `why` in a sentence. Panics if nothing was asked.
    pub fn refuse(&mut self, why: &str, output: &mut Vec<u8>) -> Step {
        let question = match std::mem::replace(&mut self.phase, Phase::Header) {
            Phase::Asked(question) => question,
            phase => panic!("SERVER1: no lookup was asked for in {phase:?}"),
        };
        let Some(option) = question.option() else {
            self.phase = Phase::Ended;
            return Step::Close(CloseReason::Refused);
        };
        refuse(output, option, reply::ERR_POLICY, shortened(why));
        Step::More
    }

    /// Answers [`Step::List`]. Panics if nothing was asked.
    pub fn answer_list(&mut self, exports: &[Listed], output: &mut Vec<u8>) -> Step {
        let phase = std::mem::replace(&mut self.phase, Phase::Header);
        assert!(matches!(phase, Phase::Asked(Question::List)), "SERVER1: no list was asked for in {phase:?}");
        for export in exports {
            let mut data = Vec::with_capacity(4 + export.name.len() + export.description.len());
            let length = u32::try_from(export.name.len()).unwrap_or(u32::MAX);
            if export.name.len() > wire::NAME_LENGTH_MAX {
                continue;
            }
            data.extend_from_slice(&length.to_be_bytes());
            data.extend_from_slice(export.name.as_bytes());
            data.extend_from_slice(shortened(&export.description).as_bytes());
            answer(output, option::LIST, reply::SERVER, &data);
        }
        answer(output, option::LIST, reply::ACK, &[]);
        Step::More
    }

    fn begin(&mut self, name: &str) -> Step {
        self.phase = Phase::Ended;
        let chosen = self.chosen.take().filter(|(of, _)| self.framing != Framing::Simple && of == name);
        let contexts = chosen.map(|(_, contexts)| contexts).unwrap_or_default();
        Step::Ready(Agreement { framing: self.framing, contexts })
    }

    fn flags(&self, offer: &Offer) -> ExportFlags {
        let flags = offer.flags.without(ExportFlags::DF).with(ExportFlags::HAS_FLAGS);
        flags.with_if(self.framing != Framing::Simple, ExportFlags::DF)
    }

    fn facts(&self, option: u32, offer: &Offer, wanted: Wanted, output: &mut Vec<u8>) {
        let mut fact = |kind: u16, parts: &[&[u8]]| {
            let data = [&kind.to_be_bytes()[..], &parts.concat()].concat();
            answer(output, option, reply::INFO, &data);
        };
        let flags = self.flags(offer).0.to_be_bytes();
        fact(wire::info::EXPORT, &[&offer.size.to_be_bytes(), &flags]);
        if wanted.name {
            fact(wire::info::NAME, &[shortened(&offer.name).as_bytes()]);
        }
        if wanted.description {
            fact(wire::info::DESCRIPTION, &[shortened(&offer.description).as_bytes()]);
        }
        let sizes = offer.block_sizes;
        let (minimum, preferred) = (sizes.minimum.to_be_bytes(), sizes.preferred.to_be_bytes());
        fact(wire::info::BLOCK_SIZE, &[&minimum, &preferred, &sizes.maximum.to_be_bytes()]);
        answer(output, option, reply::ACK, &[]);
    }
}

/// Answers with the contexts of an export that are meant.
fn contexts(set: bool, queries: &Queries, offer: &Offer, output: &mut Vec<u8>) -> Contexts {
    let option = if set { option::SET_META_CONTEXT } else { option::LIST_META_CONTEXT };
    let mut agree = |id: u32, name: &str| {
        let is_meant = queries.mean(name);
        if is_meant {
            let id = if set { id } else { 0 };
            answer(output, option, reply::META_CONTEXT, &[&id.to_be_bytes()[..], name.as_bytes()].concat());
        }
        is_meant
    };
    let allocation = agree(ALLOCATION_CONTEXT_ID, wire::ALLOCATION_CONTEXT);
    let dirty = offer.changed_since.as_ref().map(|since| format!("{}{since}", wire::DIRTY_CONTEXT));
    let dirty = dirty.is_some_and(|name| agree(DIRTY_CONTEXT_ID, &name));
    answer(output, option, reply::ACK, &[]);
    Contexts { allocation, dirty }
}

#[cfg(test)]
mod tests;
