//! The NBD door: serves one connection, from the first byte of its handshake to the last request's answer.
//!
//! One connection is one future. It *selects, then applies*: each time it is woken it takes the answers that are
//! there, then the requests that are there, and sends all replies at once. Nothing is awaited half way, so all
//! state is plain and changes only between two polls. What makes it fast is that little happens for a request: a
//! receive brings many requests, a device that answers without waiting costs no allocation for the waiting, and a
//! wake-up makes one send.
//!
//! Invariants:
//! - NBD1. A request that was submitted to the device runs to its end before [`Door::serve`] returns, whatever the
//!   client does.
//! - NBD2. What a client can make the door keep is bounded by [`Limits`] and the [`Budget`] that all doors share: a request has its
//!   bytes before a buffer is taken, and until then the data of a write stay in the socket. Tasks that wait for bytes get them in turn,
//!   and a client that has begun a message and does not go on is left ([`Limits::progress`]), so none starves.
//! - NBD6. A connection that has no request and no reply under way keeps a buffer of [`LANDING_BYTES`], and nothing of the budget.
//! - NBD3. Every request gets exactly one reply, except those that a disconnect or a broken connection cuts off.
//! - NBD4. No request reaches the device that is outside of it or was not offered.
//! - NBD5. One poll of a connection does a bounded amount of work, and ends so that other tasks have their turn.

mod activity;
mod catalog;
mod connection;
mod detachment;
mod dirty;
mod door;
mod handshake;
mod job;
mod limits;
mod receive_buffer;
mod send_queue;
mod shutdown;
mod stall;
mod tls;
mod wakers;

pub use crate::budget::Budget;
pub use activity::Activity;
pub use catalog::{Catalog, Counters, Export};
pub use detachment::{ConnectionState, DetachedConnection, Detachment};
pub use dirty::DirtyBitmap;
pub use door::{Door, SessionEnd};
pub use limits::{Admission, Limits, Refusal};
pub use receive_buffer::LANDING_BYTES;
pub use shutdown::Shutdown;
pub use tls::{TlsCredentials, TlsError, TlsFiles, TlsServer};
pub use varve_nbd::server::{CloseReason, Contexts, Listed, Terms};
pub use varve_nbd::{BlockSizes, ExportFlags, Framing};

pub(crate) use job::error_code;

use connection::Connection;
use detachment::Ended;
use handshake::Chosen;
use varve_block::{Buffer, Stream};

impl Door {
    /// Serves one connection to its end, then closes it. `Ok` if it ended in order: by the client's wish, by its
    /// closing between two requests, or because the door or the export was shut.
    pub async fn serve(&self, stream: Stream) -> Result<(), SessionEnd> {
        let _open = (self.tls.is_none() && stream.is_passable()).then(|| self.detachment.enter());
        match handshake::run(self, &stream).await {
            Ok(Some(chosen)) => self.transmit(&stream, chosen).await,
            ended => {
                stream.close();
                ended.map(drop)
            }
        }
    }

    /// Goes on with a connection that an earlier process has detached, as [`Door::serve`] does after the handshake; calls `begun` when it
    /// is served.
    pub async fn adopt(
        &self,
        stream: Stream,
        mut connection: ConnectionState,
        begun: impl FnOnce(),
    ) -> Result<(), SessionEnd> {
        let _open = stream.is_passable().then(|| self.detachment.enter());
        match handshake::adopt(self, &stream, &mut connection).await {
            Ok(Some(chosen)) => {
                begun();
                self.transmit(&stream, chosen).await
            }
            Ok(None) if self.detachment.is_wanted() && self.detachment.put(&stream, connection) => Ok(()),
            ended => {
                stream.close();
                ended.map(drop)
            }
        }
    }

    /// Serves requests to the end of the connection, or until it is detached.
    async fn transmit(&self, stream: &Stream, mut chosen: Chosen) -> Result<(), SessionEnd> {
        let early = std::mem::replace(&mut chosen.early, Buffer::empty());
        let connection = Connection::new(self, &chosen.stream, &chosen, &early);
        drop(early);
        let result = match connection.await {
            Ok(Ended::Closed) => Ok(()),
            Ok(Ended::Detached { unread, skip }) => {
                let (export, terms) = (chosen.export.name.clone(), chosen.terms);
                if self.detachment.put(&chosen.stream, ConnectionState { export, terms, unread, skip }) {
                    return Ok(()); // NBDDETACH2
                }
                tracing::warn!(peer = stream.peer(), "an NBD connection cannot be passed on, and is closed");
                Ok(())
            }
            Err(end) => Err(end),
        };
        chosen.stream.close();
        stream.close();
        result
    }
}

#[cfg(test)]
mod tests;
