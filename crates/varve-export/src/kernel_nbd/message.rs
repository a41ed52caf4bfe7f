//! Generic netlink as far as the kernel's NBD client needs it: messages to the kernel, and what it answers.
//!
//! A message is a header of 16 bytes, a header of the family of 4, and attributes, each with a header of 4 bytes and padded to
//! 4; all numbers are those of the machine. Sources: `linux/netlink.h`, `linux/genetlink.h`, `linux/nbd-netlink.h`.
//!
//! Invariants:
//! - NETLINK1. A message and each attribute say their own length, and begin at a multiple of 4.
//! - NETLINK2. What the kernel answers is read within its length; what is cut short ends the reading.

use rustix::io::Errno;

/// The family whose messages are about families.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// An answer that says whether the request was carried out.
const ERROR: u16 = 2;
/// A request, whose end is to be answered.
const REQUEST_WITH_ANSWER: u16 = 1 | 4;
/// An attribute consists of attributes.
const NESTED: u16 = 1 << 15;
const HEADER: usize = 16;
const FAMILY_HEADER: usize = 4;

const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;

const INDEX: u16 = 1;
const SIZE: u16 = 2;
const BLOCK_SIZE: u16 = 3;
const TIMEOUT: u16 = 4;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const DEAD_CONNECTION_TIMEOUT: u16 = 8;
const IDENTITY: u16 = 10;
const SOCKET: u16 = 1;
const DESCRIPTOR: u16 = 1;

/// What a device is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    /// Bytes.
    pub(super) size: u64,
    /// Bytes of a logical sector.
    pub(super) block_size: u64,
    /// What the server can do.
    pub(super) flags: u16,
    /// Seconds after which a request is sent again, over another connection.
    pub(super) timeout: u64,
    /// Seconds for which requests wait for a connection when there is none.
    pub(super) dead_connection_timeout: u64,
}

/// Attributes one after the other.
#[derive(Default)]
struct Attributes(Vec<u8>);

impl Attributes {
    fn with(mut self, kind: u16, content: &[u8]) -> Self {
        let length = u16::try_from(content.len() + 4).expect("attributes are short (NETLINK1)");
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(content);
        self.0.resize(self.0.len().next_multiple_of(4), 0); // NETLINK1
        self
    }

    fn text(self, kind: u16, text: &str) -> Self {
        self.with(kind, &[text.as_bytes(), &[0]].concat())
    }

    fn number(self, kind: u16, value: u64) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    fn sockets(self, descriptors: &[i32]) -> Self {
        let each = |list: Self, descriptor: &i32| {
            list.with(SOCKET | NESTED, &Self::default().with(DESCRIPTOR, &descriptor.to_ne_bytes()).0)
        };
        let list = descriptors.iter().fold(Self::default(), each);
        self.with(SOCKETS | NESTED, &list.0)
    }

    /// As a message.
    fn of(self, family: u16, command: u8) -> Vec<u8> {
        let length = u32::try_from(HEADER + FAMILY_HEADER + self.0.len()).expect("it is short (NETLINK1)");
        let mut message = Vec::new();
        message.extend(length.to_ne_bytes());
        message.extend(family.to_ne_bytes());
        message.extend(REQUEST_WITH_ANSWER.to_ne_bytes());
        message.extend([0; 8]); // It is the first, and the kernel knows from whom.
        message.extend([command, 1, 0, 0]);
        message.extend(self.0);
        message
    }
}

/// Asks for the number of the family of the NBD client.
pub(super) fn family() -> Vec<u8> {
    Attributes::default().text(FAMILY_NAME, "nbd").of(CONTROL, GET_FAMILY)
}

/// Makes the device `index` one that asks these sockets, and is known by `identity`.
pub(super) fn connect(
    family: u16,
    index: u32,
    parameters: &Parameters,
    sockets: &[i32],
    identity: &str,
) -> Vec<u8> {
    Attributes::default()
        .with(INDEX, &index.to_ne_bytes())
        .number(SIZE, parameters.size)
        .number(BLOCK_SIZE, parameters.block_size)
        .number(TIMEOUT, parameters.timeout)
        .number(SERVER_FLAGS, parameters.flags.into())
        .number(DEAD_CONNECTION_TIMEOUT, parameters.dead_connection_timeout)
        .sockets(sockets)
        .text(IDENTITY, identity)
        .of(family, CONNECT)
}

/// Gives the device another socket in the place of one that has ended.
pub(super) fn replace_socket(family: u16, index: u32, socket: i32, identity: &str) -> Vec<u8> {
    let attributes = Attributes::default().with(INDEX, &index.to_ne_bytes()).sockets(&[socket]);
    attributes.text(IDENTITY, identity).of(family, RECONFIGURE)
}

/// Gives the device another size.
pub(super) fn resize(family: u16, index: u32, parameters: &Parameters, identity: &str) -> Vec<u8> {
    Attributes::default()
        .with(INDEX, &index.to_ne_bytes())
        .number(SIZE, parameters.size)
        .number(BLOCK_SIZE, parameters.block_size)
        .text(IDENTITY, identity)
        .of(family, RECONFIGURE)
}

/// Disconnects the device.
pub(super) fn disconnect(family: u16, index: u32) -> Vec<u8> {
    Attributes::default().with(INDEX, &index.to_ne_bytes()).of(family, DISCONNECT)
}

/// What was received answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The request has ended.
    Ended(Result<(), Errno>),
    /// The number of a family.
    Family(u16),
    /// Something else.
    Other,
}

/// What the messages in `bytes` answer (NETLINK2).
pub(super) fn answers(mut bytes: &[u8]) -> Vec<Answer> {
    let mut found = Vec::new();
    while let (Some(length), Some(kind)) = (number(bytes, 0), half(bytes, 4)) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(content) = bytes.get(HEADER..length) else { break };
        found.push(match kind {
            ERROR => Answer::Ended(outcome(content)),
            CONTROL => family_id(content.get(FAMILY_HEADER..).unwrap_or_default())
                .map_or(Answer::Other, Answer::Family),
            _ => Answer::Other,
        });
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

fn outcome(content: &[u8]) -> Result<(), Errno> {
    let code = number(content, 0).map_or(-libc::EPROTO, u32::cast_signed);
    if code == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(code.saturating_neg())) }
}

fn family_id(mut attributes: &[u8]) -> Option<u16> {
    loop {
        let length = usize::from(half(attributes, 0)?);
        let content = attributes.get(4..length)?;
        if half(attributes, 2)? == FAMILY_ID {
            return half(content, 0);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(all(test, target_endian = "little"))]
mod tests;
