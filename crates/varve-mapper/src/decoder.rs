//! Cuts a stream of bytes into messages.

use crate::wire::{HEADER_LENGTH, Message, Numbered, WireError, decode_header};

/// Bytes that came and are not a message yet. After an error the stream is of no more use.
#[derive(Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// Bytes at the start that were messages.
    used: usize,
}

impl Decoder {
    /// Adds bytes that came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.used));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, if all of it has come.
    pub fn take<T: Message>(&mut self) -> Result<Option<Numbered<T>>, WireError> {
        let rest = &self.bytes[self.used..];
        let Some((header, rest)) = rest.split_first_chunk::<HEADER_LENGTH>() else { return Ok(None) };
        let (kind, length, id) = decode_header(header)?;
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let message = T::decode(kind, body)?;
        self.used += HEADER_LENGTH + length;
        Ok(Some(Numbered { id, message }))
    }
}
