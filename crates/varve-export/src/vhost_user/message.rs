//! Messages of the vhost-user protocol between a virtual machine and this door: bytes in, structures out; no I/O.
//!
//! Invariant VMSG1: a message is read whole or refused: each has the length that its kind has, and lists have the length that they state.

/// Bytes of a header.
pub(super) const HEADER: usize = 12;
/// Bytes behind a header at most: a list of regions, or the configuration of a device.
pub(super) const BODY_MAX: usize = 4096;
/// Descriptors that come with one message at most: one for each region of a list.
pub(super) const DESCRIPTORS_MAX: usize = 8;
/// Bytes of a region of memory.
const REGION: usize = 32;

const VERSION: u32 = 1;
const IS_REPLY: u32 = 1 << 2;
const NEEDS_REPLY: u32 = 1 << 3;
/// In the number of a queue: no descriptor comes with it.
const NO_DESCRIPTOR: u64 = 1 << 8;
/// The message that tells a virtual machine that its disk has another configuration.
const CONFIG_CHANGED: u32 = 2;

/// What both sides can do beyond the basic protocol.
pub(super) mod protocol {
    /// Several queues.
    pub(crate) const MULTIPLE_QUEUES: u64 = 1 << 0;
    /// An answer to any message.
    pub(crate) const REPLY_ACK: u64 = 1 << 3;
    /// A channel for messages from here.
    pub(crate) const BACKEND_CHANNEL: u64 = 1 << 5;
    /// The configuration of the device.
    pub(crate) const CONFIG: u64 = 1 << 9;
    /// Memory that says what is in flight, and outlives this process.
    pub(crate) const IN_FLIGHT: u64 = 1 << 12;
    /// A reset.
    pub(crate) const RESET_DEVICE: u64 = 1 << 13;
    /// Regions of memory one at a time.
    pub(crate) const MEMORY_SLOTS: u64 = 1 << 15;
    /// All of them.
    pub(crate) const ALL: u64 =
        MULTIPLE_QUEUES | REPLY_ACK | BACKEND_CHANNEL | CONFIG | IN_FLIGHT | RESET_DEVICE | MEMORY_SLOTS;
}

/// What stands in front of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    /// Its kind.
    pub(super) kind: u32,
    /// Whether its sender waits for an answer, if both sides agreed on such.
    pub(super) needs_reply: bool,
    /// Bytes behind the header.
    pub(super) length: usize,
}

/// A region of the machine's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RegionAt {
    /// Where the guest sees it.
    pub(super) guest: u64,
    /// Bytes.
    pub(super) size: u64,
    /// Where the machine's process sees it.
    pub(super) user: u64,
    /// Where it begins in its file.
    pub(super) offset: u64,
}

/// Where the parts of a queue are, as the machine's process sees them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct QueueAddresses {
    pub(super) descriptors: u64,
    pub(super) used: u64,
    pub(super) available: u64,
}

/// The memory that says what is in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InFlightArea {
    pub(super) size: u64,
    pub(super) offset: u64,
    pub(super) queues: u16,
    pub(super) queue_size: u16,
}

/// A message of a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Message {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemory(Vec<RegionAt>),
    SetQueueSize {
        queue: u32,
        size: u32,
    },
    SetQueueAddresses {
        queue: u32,
        addresses: QueueAddresses,
    },
    SetQueueBase {
        queue: u32,
        base: u32,
    },
    GetQueueBase {
        queue: u32,
    },
    /// With the descriptor that tells of requests, or none.
    SetKick {
        queue: u32,
        has_descriptor: bool,
    },
    /// With the descriptor that tells of answers, or none.
    SetCall {
        queue: u32,
        has_descriptor: bool,
    },
    /// With the descriptor that tells of an error, or none.
    SetError {
        queue: u32,
        has_descriptor: bool,
    },
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueCount,
    EnableQueue {
        queue: u32,
        enable: bool,
    },
    /// With a socket for messages from here.
    SetBackendChannel,
    GetConfig {
        offset: u32,
        length: u32,
        flags: u32,
    },
    SetConfig,
    /// How long the message was: the answer is as long.
    GetInFlight {
        area: InFlightArea,
        length: usize,
    },
    SetInFlight(InFlightArea),
    ResetDevice,
    GetMemorySlots,
    AddRegion(RegionAt),
    RemoveRegion(RegionAt),
    /// One that this door has not offered.
    Other(u32),
}

/// Reads what it was given, in little-endian parts.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn region(&mut self) -> Option<RegionAt> {
        Some(RegionAt { guest: self.u64()?, size: self.u64()?, user: self.u64()?, offset: self.u64()? })
    }

    fn in_flight(&mut self) -> Option<InFlightArea> {
        let (size, offset) = (self.u64()?, self.u64()?);
        let area = InFlightArea { size, offset, queues: self.u16()?, queue_size: self.u16()? };
        self.0 = &[]; // Some senders fill up to a multiple of eight bytes.
        Some(area)
    }
}

impl Header {
    /// Reads it; none if it is not of this protocol.
    pub(super) fn decode(bytes: [u8; HEADER]) -> Option<Self> {
        let mut reader = Reader(&bytes);
        let (kind, flags, length) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let length = usize::try_from(length).ok().filter(|length| *length <= BODY_MAX)?;
        let is_message = flags & 3 == VERSION && flags & IS_REPLY == 0;
        is_message.then_some(Self { kind, needs_reply: flags & NEEDS_REPLY != 0, length })
    }
}

impl Message {
    /// Reads what is behind a header (VMSG1).
    pub(super) fn decode(kind: u32, body: &[u8]) -> Option<Self> {
        let mut reader = Reader(body);
        let message = match kind {
            1 => Message::GetFeatures,
            2 => Message::SetFeatures(reader.u64()?),
            3 => Message::SetOwner,
            4 => Message::ResetOwner,
            5 => Message::SetMemory(regions(&mut reader)?),
            8 => Message::SetQueueSize { queue: reader.u32()?, size: reader.u32()? },
            9 => queue_addresses(&mut reader)?,
            10 => Message::SetQueueBase { queue: reader.u32()?, base: reader.u32()? },
            11 => {
                let queue = reader.u32()?;
                reader.u32()?;
                Message::GetQueueBase { queue }
            }
            12..=14 => queue_descriptor(kind, reader.u64()?)?,
            15 => Message::GetProtocolFeatures,
            16 => Message::SetProtocolFeatures(reader.u64()?),
            17 => Message::GetQueueCount,
            18 => {
                let (queue, enable) = (reader.u32()?, reader.u32()?);
                Message::EnableQueue { queue, enable: enable != 0 }
            }
            21 => Message::SetBackendChannel,
            24 => {
                let (offset, length, flags) = (reader.u32()?, reader.u32()?, reader.u32()?);
                reader.0 = reader.0.get(usize::try_from(length).ok()?..)?;
                Message::GetConfig { offset, length, flags }
            }
            25 => {
                reader.0 = &[];
                Message::SetConfig
            }
            31 => Message::GetInFlight { area: reader.in_flight()?, length: body.len() },
            32 => Message::SetInFlight(reader.in_flight()?),
            34 => Message::ResetDevice,
            36 => Message::GetMemorySlots,
            37 | 38 => {
                reader.u64()?;
                let region = reader.region()?;
                if kind == 37 { Message::AddRegion(region) } else { Message::RemoveRegion(region) }
            }
            other => {
                reader.0 = &[];
                Message::Other(other)
            }
        };
        reader.0.is_empty().then_some(message)
    }
}

fn regions(reader: &mut Reader<'_>) -> Option<Vec<RegionAt>> {
    let (count, _padding) = (reader.u32()?, reader.u32()?);
    let count = usize::try_from(count).ok().filter(|count| *count <= DESCRIPTORS_MAX)?;
    (reader.0.len() == count * REGION).then_some(())?;
    (0..count).map(|_| reader.region()).collect()
}

fn queue_addresses(reader: &mut Reader<'_>) -> Option<Message> {
    let (queue, _flags) = (reader.u32()?, reader.u32()?);
    let (descriptors, used) = (reader.u64()?, reader.u64()?);
    let addresses = QueueAddresses { descriptors, used, available: reader.u64()? };
    let _log = reader.u64()?;
    Some(Message::SetQueueAddresses { queue, addresses })
}

fn queue_descriptor(kind: u32, word: u64) -> Option<Message> {
    let queue = u32::try_from(word & 0xff).ok()?;
    let has_descriptor = word & NO_DESCRIPTOR == 0;
    Some(match kind {
        12 => Message::SetKick { queue, has_descriptor },
        13 => Message::SetCall { queue, has_descriptor },
        _ => Message::SetError { queue, has_descriptor },
    })
}

/// The answer to a message of a kind.
pub(super) fn reply(kind: u32, body: &[u8]) -> Vec<u8> {
    framed(kind, VERSION | IS_REPLY, body)
}

/// The message from here that tells that the configuration is another one.
pub(super) fn config_changed() -> Vec<u8> {
    framed(CONFIG_CHANGED, VERSION, &[])
}

fn framed(kind: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("an answer is short (VMSG1)");
    let header = [kind, flags, length].map(u32::to_le_bytes).concat();
    [&header, body].concat()
}

/// The body of an answer: where a queue goes on.
pub(super) fn queue_base(queue: u32, base: u16) -> Vec<u8> {
    [queue, base.into()].map(u32::to_le_bytes).concat()
}

/// The body of an answer: a part of the configuration.
pub(super) fn config(offset: u32, flags: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("the configuration is short (VMSG1)");
    [&[offset, length, flags].map(u32::to_le_bytes).concat(), content].concat()
}

/// The body of an answer: the memory that says what is in flight, in `length` bytes.
pub(super) fn in_flight(area: InFlightArea, length: usize) -> Vec<u8> {
    let mut body = [area.size, area.offset].map(u64::to_le_bytes).concat();
    body.extend([area.queues, area.queue_size].map(u16::to_le_bytes).concat());
    body.resize(length, 0);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_length_of_its_kind() {
        let region = RegionAt { guest: 1, size: 2, user: 3, offset: 4 };
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let list = [words(&[1]), words(&[1, 2, 3, 4])].concat();
        for (kind, body, wanted) in [
            (1, vec![], Message::GetFeatures),
            (2, words(&[5]), Message::SetFeatures(5)),
            (5, list, Message::SetMemory(vec![region])),
            (8, words(&[(256 << 32) | 1]), Message::SetQueueSize { queue: 1, size: 256 }),
            (12, words(&[3]), Message::SetKick { queue: 3, has_descriptor: true }),
            (13, words(&[0x103]), Message::SetCall { queue: 3, has_descriptor: false }),
            (37, words(&[0, 1, 2, 3, 4]), Message::AddRegion(region)),
        ] {
            assert_eq!(Message::decode(kind, &body), Some(wanted), "VMSG1");
            assert_eq!(Message::decode(kind, &[&body[..], &[0]].concat()), None, "VMSG1: {kind}: too long");
            let shorter = body.len().checked_sub(1).and_then(|end| Message::decode(kind, &body[..end]));
            assert_eq!(shorter, None, "VMSG1: {kind}: too short");
        }
        assert_eq!(Message::decode(5, &words(&[2, 1, 2, 3, 4])), None, "VMSG1: fewer regions than stated");
        assert_eq!(Message::decode(5, &words(&[u64::from(u32::MAX)])), None, "VMSG1");
    }

    #[test]
    fn a_header_is_of_this_version_and_its_body_is_short() {
        let header = |kind: u32, flags: u32, length: u32| {
            let bytes = [kind, flags, length].map(u32::to_le_bytes).concat();
            Header::decode(bytes.try_into().expect("twelve bytes"))
        };
        assert_eq!(header(2, 9, 8), Some(Header { kind: 2, needs_reply: true, length: 8 }));
        for (flags, length) in [(0, 8), (2, 8), (5, 8), (1, u32::MAX)] {
            assert_eq!(header(2, flags, length), None, "VMSG1: flags {flags}, length {length}");
        }
    }

    #[test]
    fn answers_are_as_the_protocol_has_them() {
        assert_eq!(
            reply(11, &queue_base(1, 7)),
            [11, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0]
        );
        let area = InFlightArea { size: 64, offset: 0, queues: 1, queue_size: 2 };
        let body = in_flight(area, 24);
        assert_eq!(Message::decode(32, &body), Some(Message::SetInFlight(area)));
        assert_eq!(config_changed(), [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    }
}
