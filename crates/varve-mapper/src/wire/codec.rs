//! The bytes of messages. All numbers are little-endian.
//!
//! Invariants:
//! - WIRE1. A message that was encoded is decoded to the same message.
//! - WIRE2. Bytes that no message has are an error: an unknown kind, a reserved byte that is not zero, a length that does
//!   not fit the kind.

use super::{
    Access, BODY_LENGTH_MAX, DEVICES_MAX, EXTENTS_MAX, Extent, GivenDevice, HEADER_LENGTH, Hello, Intent,
    MAGIC, Message, NO_DEVICE, Place, Status, ToEngine, ToMapper, VERSION, Welcome, WireError,
};

const HELLO: u16 = 1;
const HELD: u16 = 2;
const MAP: u16 = 3;
const FLUSH: u16 = 4;
const TRIM: u16 = 5;
const INVALIDATED: u16 = 6;
const DURABLE: u16 = 7;
const FAILED: u16 = 8;
const WELCOME: u16 = 65;
const DEVICE: u16 = 66;
const MAPPED: u16 = 67;
const INVALIDATE: u16 = 68;
const FLUSHED: u16 = 69;
const TRIMMED: u16 = 70;

impl Access {
    const fn byte(self) -> u8 {
        self.read as u8 | (self.write as u8) << 1
    }

    const fn of(byte: u8) -> Option<Self> {
        match byte {
            1..=3 => Some(Self { read: byte & 1 != 0, write: byte & 2 != 0 }),
            _ => None,
        }
    }
}

/// Kind, bytes of the body and number of a message, if the header is one.
pub(crate) fn decode_header(header: &[u8; HEADER_LENGTH]) -> Result<(u16, usize, u64), WireError> {
    let mut fields = Fields { kind: 0, rest: header };
    let (kind, reserved) = (fields.u16()?, fields.u16()?);
    let (length, id) = (fields.u32()? as usize, fields.u64()?);
    if reserved != 0 {
        return Err(WireError::Field { kind, field: "reserved" });
    }
    if length > BODY_LENGTH_MAX {
        return Err(WireError::Length { kind, length });
    }
    Ok((kind, length, id))
}

impl Message for ToMapper {
    fn encode(&self, id: u64, bytes: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => framed(HELLO, id, bytes, |body| encode_hello(hello, body)),
            Self::Held(extents) => framed(HELD, id, bytes, |body| encode_extents(extents, body)),
            Self::Map { offset, length, intent } => {
                let intent = u8::from(*intent == Intent::Write);
                framed(MAP, id, bytes, |body| encode_range(*offset, *length, intent, body));
            }
            Self::Flush => framed(FLUSH, id, bytes, |_| ()),
            Self::Trim { offset, length } => {
                framed(TRIM, id, bytes, |body| encode_range(*offset, *length, 0, body));
            }
            Self::Invalidated => framed(INVALIDATED, id, bytes, |_| ()),
            Self::Durable { offset, length } => {
                framed(DURABLE, id, bytes, |body| encode_range(*offset, *length, 0, body));
            }
            Self::Failed { offset, length } => {
                framed(FAILED, id, bytes, |body| encode_range(*offset, *length, 0, body));
            }
        }
    }

    fn decode(kind: u16, body: &[u8]) -> Result<Self, WireError> {
        let mut fields = Fields { kind, rest: body };
        let message = match kind {
            HELLO => Self::Hello(fields.hello()?),
            HELD => Self::Held(fields.extents()?),
            MAP => {
                let (offset, length, intent) = fields.range()?;
                let intent = match intent {
                    0 => Intent::Read,
                    1 => Intent::Write,
                    _ => return Err(fields.bad("intent")),
                };
                Self::Map { offset, length, intent }
            }
            FLUSH => Self::Flush,
            INVALIDATED => Self::Invalidated,
            TRIM | DURABLE | FAILED => match (kind, fields.range()?) {
                (TRIM, (offset, length, 0)) => Self::Trim { offset, length },
                (DURABLE, (offset, length, 0)) => Self::Durable { offset, length },
                (_, (offset, length, 0)) => Self::Failed { offset, length },
                _ => return Err(fields.bad("reserved")),
            },
            kind => return Err(WireError::Kind(kind)),
        };
        fields.end(body.len())?;
        Ok(message)
    }
}

impl Message for ToEngine {
    fn encode(&self, id: u64, bytes: &mut Vec<u8>) {
        match self {
            Self::Welcome(welcome) => framed(WELCOME, id, bytes, |body| {
                body.extend(VERSION.to_le_bytes());
                let flags = u16::from(welcome.is_persistent) | u16::from(welcome.keeps_answers) << 1;
                body.extend(flags.to_le_bytes());
                body.extend(welcome.trim_unit.to_le_bytes());
            }),
            Self::Device { number, is_writable } => framed(DEVICE, id, bytes, |body| {
                body.extend(number.to_le_bytes());
                body.extend([u8::from(*is_writable), 0, 0, 0]);
            }),
            Self::Mapped(extents) => framed(MAPPED, id, bytes, |body| encode_extents(extents, body)),
            Self::Invalidate { offset, length, access } => {
                framed(INVALIDATE, id, bytes, |body| encode_range(*offset, *length, access.byte(), body));
            }
            Self::Flushed(status) => framed(FLUSHED, id, bytes, |body| encode_status(*status, body)),
            Self::Trimmed(status) => framed(TRIMMED, id, bytes, |body| encode_status(*status, body)),
        }
    }

    fn decode(kind: u16, body: &[u8]) -> Result<Self, WireError> {
        let mut fields = Fields { kind, rest: body };
        let message = match kind {
            WELCOME => {
                if fields.u16()? != VERSION {
                    return Err(fields.bad("version"));
                }
                let (flags, trim_unit) = (fields.u16()?, fields.u32()?);
                if flags > 3 {
                    return Err(fields.bad("flags"));
                }
                if trim_unit != 0 && !trim_unit.is_power_of_two() {
                    return Err(fields.bad("trim unit"));
                }
                let (is_persistent, keeps_answers) = (flags & 1 != 0, flags & 2 != 0);
                Self::Welcome(Welcome { is_persistent, keeps_answers, trim_unit })
            }
            DEVICE => {
                let number = fields.u32()?;
                let is_writable = fields.flag("writable")?;
                fields.zeros(3)?;
                Self::Device { number, is_writable }
            }
            MAPPED => Self::Mapped(fields.extents()?),
            INVALIDATE => {
                let (offset, length, access) = fields.range()?;
                let access = Access::of(access).ok_or(fields.bad("access"))?;
                Self::Invalidate { offset, length, access }
            }
            FLUSHED => Self::Flushed(fields.status()?),
            TRIMMED => Self::Trimmed(fields.status()?),
            kind => return Err(WireError::Kind(kind)),
        };
        fields.end(body.len())?;
        Ok(message)
    }
}

/// Appends a header, and the body that `encode` appends.
fn framed(kind: u16, id: u64, bytes: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    bytes.extend(kind.to_le_bytes());
    bytes.extend([0; 6]);
    bytes.extend(id.to_le_bytes());
    encode(bytes);
    let length = bytes.len() - start - HEADER_LENGTH;
    assert!(length <= BODY_LENGTH_MAX, "WIRE1: a body of {length} bytes");
    let length = u32::try_from(length).expect("a body is small").to_le_bytes();
    bytes[start + 4..start + 8].copy_from_slice(&length);
}

fn encode_hello(hello: &Hello, body: &mut Vec<u8>) {
    body.extend(MAGIC);
    body.extend(VERSION.to_le_bytes());
    body.extend([0; 2]);
    body.extend(hello.block_size.to_le_bytes());
    body.extend(hello.size.to_le_bytes());
    body.extend(hello.held.to_le_bytes());
    let count = u32::try_from(hello.devices.len()).expect("few devices");
    body.extend(count.to_le_bytes());
    encode_name(&hello.volume, body);
    for device in &hello.devices {
        body.extend(device.size.to_le_bytes());
        body.push(u8::from(device.is_writable));
        encode_name(&device.name, body);
    }
}

fn encode_name(name: &str, body: &mut Vec<u8>) {
    let length = u8::try_from(name.len()).expect("WIRE1: a name of at most 255 bytes");
    body.push(length);
    body.extend(name.as_bytes());
}

fn encode_range(offset: u64, length: u64, what: u8, body: &mut Vec<u8>) {
    body.extend(offset.to_le_bytes());
    body.extend(length.to_le_bytes());
    body.extend([what, 0, 0, 0, 0, 0, 0, 0]);
}

fn encode_status(status: Status, body: &mut Vec<u8>) {
    let number: u64 = match status {
        Status::Done => 0,
        Status::Failed => 1,
    };
    body.extend(number.to_le_bytes());
}

fn encode_extents(extents: &[Extent], body: &mut Vec<u8>) {
    assert!(extents.len() <= EXTENTS_MAX, "WIRE1: {} extents in one message", extents.len());
    body.extend(u64::try_from(extents.len()).expect("few extents").to_le_bytes());
    extents.iter().for_each(|extent| encode_extent(extent, body));
}

fn encode_extent(extent: &Extent, body: &mut Vec<u8>) {
    let none = (NO_DEVICE, 0);
    let (state, to, from): (u8, _, _) = match extent.place {
        Place::Data { device, offset } => (0, (device, offset), none),
        Place::Zero => (1, none, none),
        Place::Error => (2, none, none),
        Place::Copy { device, offset, from } => (3, (device, offset), from.unwrap_or(none)),
    };
    body.extend(extent.offset.to_le_bytes());
    body.extend(extent.length.to_le_bytes());
    body.extend([state, extent.access.byte()]);
    let flags = u16::from(extent.once) | u16::from(extent.notify) << 1;
    body.extend(flags.to_le_bytes());
    body.extend(extent.expiry_ms.to_le_bytes());
    body.extend(to.1.to_le_bytes());
    body.extend(from.1.to_le_bytes());
    body.extend(to.0.to_le_bytes());
    body.extend(from.0.to_le_bytes());
}

/// What is left of a message.
struct Fields<'a> {
    kind: u16,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn bad(&self, field: &'static str) -> WireError {
        WireError::Field { kind: self.kind, field }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let split = self.rest.split_at_checked(length);
        let (first, rest) = split.ok_or(WireError::Length { kind: self.kind, length: self.rest.len() })?;
        self.rest = rest;
        Ok(first)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        Ok(self.take(N)?.try_into().expect("as long as was asked for"))
    }

    fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    fn zeros(&mut self, length: usize) -> Result<(), WireError> {
        let zero = self.take(length)?.iter().all(|byte| *byte == 0);
        if zero { Ok(()) } else { Err(self.bad("reserved")) }
    }

    fn flag(&mut self, field: &'static str) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.bad(field)),
        }
    }

    fn end(&self, length: usize) -> Result<(), WireError> {
        let kind = self.kind;
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Length { kind, length }) }
    }

    fn name(&mut self) -> Result<String, WireError> {
        let length = usize::from(self.u8()?);
        let name = self.take(length)?;
        std::str::from_utf8(name).map(str::to_owned).map_err(|_| self.bad("name"))
    }

    fn hello(&mut self) -> Result<Hello, WireError> {
        if self.array()? != MAGIC {
            return Err(self.bad("magic"));
        }
        if self.u16()? != VERSION {
            return Err(self.bad("version"));
        }
        self.zeros(2)?;
        let block_size = self.u32()?;
        if !block_size.is_power_of_two() {
            return Err(self.bad("block size"));
        }
        let (size, held, count) = (self.u64()?, self.u32()?, self.u32()?);
        if count > DEVICES_MAX {
            return Err(self.bad("devices"));
        }
        let volume = self.name()?;
        let mut devices = Vec::new();
        for _ in 0..count {
            let (size, is_writable) = (self.u64()?, self.flag("writable")?);
            devices.push(GivenDevice { size, is_writable, name: self.name()? });
        }
        Ok(Hello { volume, size, block_size, held, devices })
    }

    fn range(&mut self) -> Result<(u64, u64, u8), WireError> {
        let range = (self.u64()?, self.u64()?, self.u8()?);
        self.zeros(7)?;
        Ok(range)
    }

    fn status(&mut self) -> Result<Status, WireError> {
        match self.u64()? {
            0 => Ok(Status::Done),
            1 => Ok(Status::Failed),
            _ => Err(self.bad("status")),
        }
    }

    fn extents(&mut self) -> Result<Vec<Extent>, WireError> {
        let count = usize::try_from(self.u64()?).ok().filter(|count| *count <= EXTENTS_MAX);
        let count = count.ok_or(self.bad("number of extents"))?;
        (0..count).map(|_| self.extent()).collect()
    }

    fn extent(&mut self) -> Result<Extent, WireError> {
        let (offset, length) = (self.u64()?, self.u64()?);
        let (state, access) = (self.u8()?, self.u8()?);
        let access = Access::of(access).ok_or(self.bad("access"))?;
        let (flags, expiry_ms) = (self.u16()?, self.u32()?);
        if flags > 3 {
            return Err(self.bad("flags"));
        }
        let (to, from) = (self.u64()?, self.u64()?);
        let (to, from) = ((self.u32()?, to), (self.u32()?, from));
        let none = (NO_DEVICE, 0);
        let place = match state {
            0 if from == none => Place::Data { device: to.0, offset: to.1 },
            1 if to == none && from == none => Place::Zero,
            2 if to == none && from == none => Place::Error,
            3 => {
                let from = (from != none).then_some(from);
                Place::Copy { device: to.0, offset: to.1, from }
            }
            _ => return Err(self.bad("state")),
        };
        let (once, notify) = (flags & 1 != 0, flags & 2 != 0);
        Ok(Extent { offset, length, place, access, once, notify, expiry_ms })
    }
}
