//! What the connections of one listening socket share, and how one of them may end.

use super::{
    Activity, Admission, Budget, Catalog, CloseReason, Detachment, Limits, Refusal, Shutdown, TlsServer,
};
use std::rc::Rc;
use varve_block::{Arena, Clock, StreamError};

/// Why a connection ended out of order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionEnd {
    /// The handshake led to no export.
    NoExport(CloseReason),
    /// The connection was refused.
    Refused(Refusal),
    /// The handshake took too long.
    TimedOut,
    /// The client and the door did not agree on TLS.
    NoTls,
    /// The client began a message, or to fetch a reply, and did not go on.
    Stalled,
    /// The client does not speak the protocol.
    Malformed(&'static str),
    /// The client left in the middle of a message.
    Truncated,
    /// The connection broke.
    Broken,
    /// It was passed here by an earlier process, and its export is not there as the client knows it.
    Changed,
}

impl SessionEnd {
    /// The end of a connection amid a message.
    pub(super) fn of(error: StreamError) -> Self {
        match error {
            StreamError::Closed => SessionEnd::Truncated,
            StreamError::Broken => SessionEnd::Broken,
        }
    }
}

impl std::fmt::Display for SessionEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SessionEnd::NoExport(reason) => write!(f, "no export was chosen: {reason}"),
            SessionEnd::Refused(refusal) => write!(f, "it was refused: {refusal}"),
            SessionEnd::NoTls => f.write_str("TLS was not agreed"),
            SessionEnd::Stalled => f.write_str("the client began a message and did not go on"),
            SessionEnd::TimedOut => f.write_str("the handshake took too long"),
            SessionEnd::Malformed(why) => write!(f, "the client does not speak the protocol: {why}"),
            SessionEnd::Truncated => f.write_str("the client left in the middle of a message"),
            SessionEnd::Broken => f.write_str("the connection broke"),
            SessionEnd::Changed => f.write_str("the export is not there any more as the client knows it"),
        }
    }
}

impl std::error::Error for SessionEnd {}

/// Everything that the connections of one listening socket share on one thread. Cloning shares it.
#[derive(Clone)]
pub struct Door {
    /// Which exports there are.
    pub catalog: Rc<dyn Catalog>,
    /// What one connection may keep.
    pub limits: Limits,
    /// What the clients of all doors together may keep.
    pub budget: Budget,
    /// How many connections there may be.
    pub admission: Admission,
    /// What clients have to begin TLS with, if they have to.
    pub tls: Option<TlsServer>,
    /// Which exports of this thread are active.
    pub activity: Activity,
    /// Where buffers come from.
    pub arena: Arena,
    /// Time, for the limits of handshake and drain.
    pub clock: Clock,
    /// Ends every connection.
    pub shutdown: Shutdown,
    /// Takes connections out for another process to go on with.
    pub detachment: Detachment,
}
