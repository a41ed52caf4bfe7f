//! What a handshake does next, and how an option is answered.

use crate::transmission::Framing;
use crate::wire;

/// What was agreed when the transmission begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreement {
    /// The headers.
    pub framing: Framing,
    /// What a block status says.
    pub contexts: Contexts,
}

/// Metadata contexts of an export.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Contexts {
    /// [`ALLOCATION_CONTEXT_ID`].
    pub allocation: bool,
    /// [`DIRTY_CONTEXT_ID`](super::DIRTY_CONTEXT_ID).
    pub dirty: bool,
}

impl Contexts {
    /// Whether there are any, so that block status may be asked.
    pub fn has_any(self) -> bool {
        self.allocation || self.dirty
    }
}

/// What the owner of a handshake does next; what was written to `output` is sent first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Feed more bytes.
    More,
    /// Look up the export of this name and call [`super::Handshake::answer`].
    Lookup(String),
    /// Call [`super::Handshake::answer_list`].
    List,
    /// Encrypt all that is sent and received from here on, then feed what the client says.
    StartTls,
    /// The transmission begins with the next byte, on the export that was looked up last.
    Ready(Agreement),
    /// Close the connection.
    Close(CloseReason),
}

/// Why a handshake ended without an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CloseReason {
    /// The client wanted it.
    #[error("the client ended the handshake")]
    Aborted,
    /// The client asked for an export that is not there, in the way that knows no answer to it.
    #[error("the client asked for an unknown export")]
    UnknownExport,
    /// The client asked for an export before it began encryption, which is required.
    #[error("the client did not ask for TLS")]
    Unencrypted,
    /// The owner refused the export, and the client asked in the way that knows no answer to that.
    #[error("the export was refused")]
    Refused,
    /// The client does not speak the protocol.
    #[error("the client does not speak the protocol: {0}")]
    Malformed(&'static str),
}

/// As much of `text` as the protocol allows in a string.
pub(super) fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(wire::NAME_LENGTH_MAX)]
}

pub(super) fn answer(output: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    output.extend_from_slice(&wire::OPTION_REPLY_MAGIC.to_be_bytes());
    output.extend_from_slice(&option.to_be_bytes());
    output.extend_from_slice(&kind.to_be_bytes());
    let length = u32::try_from(data.len()).expect("every reply is built from strings of at most 4096 bytes");
    output.extend_from_slice(&length.to_be_bytes());
    output.extend_from_slice(data);
}

pub(super) fn refuse(output: &mut Vec<u8>, option: u32, kind: u32, why: &str) {
    answer(output, option, kind, why.as_bytes());
}
