//! Which requests are in order, given what was agreed.

use super::Offer;
use super::step::Contexts;
use crate::transmission::{Framing, Request};
use crate::wire::{BlockSizes, Command, ErrorCode, ExportFlags, PAYLOAD_LENGTH_MAX, command_flag};

/// What was agreed about one export on one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Bytes of the export.
    pub size: u64,
    /// What it can do, as offered to the client.
    pub flags: ExportFlags,
    /// Which requests it likes, as offered to the client.
    pub block_sizes: BlockSizes,
    /// The headers.
    pub framing: Framing,
    /// What a block status says.
    pub contexts: Contexts,
}

impl Terms {
    /// Whether `request` may be carried out; else the error to answer with, after its payload was skipped.
    /// [`Command::Disconnect`] has no answer and passes.
    pub fn check(&self, request: &Request) -> Result<(), ErrorCode> {
        let changes = matches!(request.command, Command::Write | Command::WriteZeroes | Command::Trim);
        if changes && self.flags.has(ExportFlags::READ_ONLY) {
            return Err(ErrorCode::Permission);
        }
        let known = match request.command {
            Command::Disconnect => return Ok(()),
            Command::Other(_) => return Err(ErrorCode::Invalid),
            _ => self.knows(request.command),
        };
        if !known || request.flags & !self.allowed(request.command) != 0 {
            return Err(ErrorCode::Invalid);
        }
        self.check_range(request)
    }

    /// Whether what a client knows of an export is true of one that is offered so now: it is no smaller, can as much, and takes as small and
    /// as large requests.
    pub fn are_kept_by(&self, offer: &Offer) -> bool {
        let can = offer.flags.with(ExportFlags::DF).with(ExportFlags::HAS_FLAGS);
        let is_writable = self.flags.has(ExportFlags::READ_ONLY) || !offer.flags.has(ExportFlags::READ_ONLY);
        let abilities = ExportFlags(self.flags.0 & !ExportFlags::READ_ONLY.0);
        let sizes = (self.block_sizes, offer.block_sizes);
        offer.size >= self.size
            && is_writable
            && can.has(abilities)
            && sizes.1.minimum <= sizes.0.minimum
            && sizes.1.maximum >= sizes.0.maximum
            && (!self.contexts.dirty || offer.changed_since.is_some())
    }

    fn knows(&self, command: Command) -> bool {
        match command {
            Command::Flush => self.flags.has(ExportFlags::FLUSH),
            Command::Trim => self.flags.has(ExportFlags::TRIM),
            Command::WriteZeroes => self.flags.has(ExportFlags::WRITE_ZEROES),
            Command::Cache => self.flags.has(ExportFlags::CACHE),
            Command::BlockStatus => self.contexts.has_any(),
            _ => true,
        }
    }

    /// Flags that the command may have. FUA goes with everything and means nothing where nothing is changed.
    fn allowed(&self, command: Command) -> u16 {
        let fua = if self.flags.has(ExportFlags::FUA) { command_flag::FUA } else { 0 };
        let own = match command {
            Command::Read if self.flags.has(ExportFlags::DF) => command_flag::DF,
            Command::Write if self.framing == Framing::Extended => command_flag::PAYLOAD_LEN,
            Command::WriteZeroes if self.flags.has(ExportFlags::FAST_ZERO) => {
                command_flag::NO_HOLE | command_flag::FAST_ZERO
            }
            Command::WriteZeroes => command_flag::NO_HOLE,
            Command::BlockStatus => command_flag::REQ_ONE,
            _ => 0,
        };
        fua | own
    }

    fn check_range(&self, request: &Request) -> Result<(), ErrorCode> {
        let Request { command, offset, length, .. } = *request;
        if command == Command::Flush {
            return if offset == 0 && length == 0 { Ok(()) } else { Err(ErrorCode::Invalid) };
        }
        let carries_data = matches!(command, Command::Read | Command::Write);
        if carries_data && length > u64::from(self.block_sizes.maximum.min(PAYLOAD_LENGTH_MAX)) {
            return Err(ErrorCode::Invalid);
        }
        if command == Command::BlockStatus && length == 0 {
            return Err(ErrorCode::Invalid);
        }
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            let grows = matches!(command, Command::Write | Command::WriteZeroes);
            return Err(if grows { ErrorCode::NoSpace } else { ErrorCode::Invalid });
        }
        if (offset | length) & u64::from(self.block_sizes.minimum - 1) != 0 {
            return Err(ErrorCode::Invalid);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(framing: Framing) -> Terms {
        let flags = ExportFlags::FLUSH.with(ExportFlags::FUA).with(ExportFlags::WRITE_ZEROES);
        let flags = flags.with(ExportFlags::TRIM).with(ExportFlags::DF);
        Terms {
            size: 8 << 32,
            flags,
            block_sizes: BlockSizes::default(),
            framing,
            contexts: Contexts { allocation: true, dirty: false },
        }
    }

    fn request(command: Command, flags: u16, offset: u64, length: u64) -> Request {
        Request { flags, command, cookie: 7, offset, length }
    }

    #[test]
    fn ranges_are_judged_without_overflow() {
        let terms = terms(Framing::Extended);
        let size = terms.size;
        let check = |command, offset, length| terms.check(&request(command, 0, offset, length));
        assert_eq!(check(Command::Read, size - 1, 1), Ok(()));
        assert_eq!(check(Command::Read, size, 1), Err(ErrorCode::Invalid));
        assert_eq!(check(Command::Read, u64::MAX, 1), Err(ErrorCode::Invalid));
        assert_eq!(check(Command::Write, u64::MAX - 1, 512), Err(ErrorCode::NoSpace));
        assert_eq!(check(Command::WriteZeroes, 1, u64::MAX), Err(ErrorCode::NoSpace));
        assert_eq!(check(Command::WriteZeroes, 0, size), Ok(()));
        assert_eq!(check(Command::Trim, 0, u64::MAX), Err(ErrorCode::Invalid));
        assert_eq!(check(Command::BlockStatus, 0, size), Ok(()));
        assert_eq!(check(Command::BlockStatus, 0, 0), Err(ErrorCode::Invalid));
        assert_eq!(check(Command::Read, 0, (32 << 20) + 1), Err(ErrorCode::Invalid));
        assert_eq!(check(Command::Read, 0, 32 << 20), Ok(()));
    }

    #[test]
    fn an_export_keeps_what_a_client_knows_of_it_if_it_is_no_smaller_and_can_as_much() {
        let terms = terms(Framing::Structured);
        let offer = Offer {
            size: terms.size,
            flags: ExportFlags::FLUSH
                .with(ExportFlags::FUA)
                .with(ExportFlags::WRITE_ZEROES)
                .with(ExportFlags::TRIM),
            block_sizes: terms.block_sizes,
            name: "data/a".to_owned(),
            description: String::new(),
            changed_since: None,
        };
        let is_kept = |change: fn(&mut Offer)| {
            let mut changed = offer.clone();
            change(&mut changed);
            terms.are_kept_by(&changed)
        };
        assert!(is_kept(|_| {}) && is_kept(|offer| offer.size += 512));
        assert!(is_kept(|offer| offer.flags = offer.flags.with(ExportFlags::CACHE)));
        assert!(!is_kept(|offer| offer.size -= 512));
        assert!(!is_kept(|offer| offer.flags = offer.flags.with(ExportFlags::READ_ONLY)));
        assert!(!is_kept(|offer| offer.flags = ExportFlags::FLUSH));
        assert!(!is_kept(|offer| offer.block_sizes.minimum = 512));
        assert!(!is_kept(|offer| offer.block_sizes.maximum /= 2));
        let contexts = Contexts { allocation: true, dirty: true };
        let of_changes = Terms { contexts, ..terms };
        assert!(!of_changes.are_kept_by(&offer), "what was changed is not known any more");
    }

    #[test]
    fn flags_and_commands_that_were_not_offered_are_refused() {
        let mut terms = terms(Framing::Structured);
        let invalid = Err(ErrorCode::Invalid);
        assert_eq!(terms.check(&request(Command::Cache, 0, 0, 1)), invalid);
        assert_eq!(terms.check(&request(Command::WriteZeroes, command_flag::FAST_ZERO, 0, 1)), invalid);
        assert_eq!(terms.check(&request(Command::Write, command_flag::PAYLOAD_LEN, 0, 1)), invalid);
        assert_eq!(terms.check(&request(Command::Read, command_flag::DF | command_flag::FUA, 0, 1)), Ok(()));
        assert_eq!(terms.check(&request(Command::Flush, 0, 0, 1)), invalid);
        assert_eq!(terms.check(&request(Command::Other(99), 0, 0, 1)), invalid);
        terms.flags = terms.flags.with(ExportFlags::READ_ONLY);
        assert_eq!(terms.check(&request(Command::Trim, 0, 0, 1)), Err(ErrorCode::Permission));
        terms.block_sizes.minimum = 512;
        assert_eq!(terms.check(&request(Command::Read, 0, 512, 511)), invalid);
    }
}
