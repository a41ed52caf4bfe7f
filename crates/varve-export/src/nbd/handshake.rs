//! The handshake over a stream: carries bytes between it and the protocol's state machine, and asks the catalog.

use super::catalog::OpenConnection;
use super::detachment::{ConnectionState, resumed};
use super::limits::Counted;
use super::receive_buffer::LANDING_BYTES;
use super::{Door, Export, Refusal, SessionEnd, tls};
use futures_util::future::{Either, select};
use std::pin::pin;
use std::time::Duration;
use varve_block::{Arena, Buffer, Stream, timeout};
use varve_nbd::server::{Agreement, Handshake, Step, Terms};
use varve_nbd::wire::GREETING_LENGTH;
use varve_nbd::{ExportFlags, Framing};

/// Bytes that are received at once. What is left of them at the end goes into the first buffer of the connection.
const RECEIVE_LENGTH: usize = 4096;
const _: () = assert!(RECEIVE_LENGTH <= LANDING_BYTES);
/// How long a handshake may go on when connections are to be detached: those that are served wait for it.
const DETACH_MAX: Duration = Duration::from_millis(200);
/// Replies are sent when there are this many bytes of them, at the latest.
const OUTPUT_LENGTH_MAX: usize = 64 << 10;

/// What the handshake led to.
pub(super) struct Chosen {
    pub(super) export: Export,
    pub(super) terms: Terms,
    /// What the client talks on: the connection, or TLS on it.
    pub(super) stream: Stream,
    /// What the client sent already of its first requests.
    pub(super) early: Buffer,
    /// Bytes of a payload that are skipped first.
    pub(super) skip: u64,
    _admitted: Counted,
    _open: OpenConnection,
}

/// An export that was looked up; one that is to be served next has let the client in.
struct Asked {
    export: Export,
    admitted: Option<(Counted, OpenConnection)>,
}

/// Goes on with a connection that an earlier process has passed here; its unread bytes are taken. `None`, and nothing is taken: the door
/// was shut meanwhile, or connections are to be detached.
pub(super) async fn adopt(
    door: &Door,
    stream: &Stream,
    connection: &mut ConnectionState,
) -> Result<Option<Chosen>, SessionEnd> {
    let looked_up =
        async { door.catalog.lookup(&connection.export).await.ok_or(SessionEnd::Changed).map(Some) };
    let Some(export) = in_time(door, looked_up).await? else { return Ok(None) };
    let (terms, skip) = (connection.terms, connection.skip);
    if !terms.are_kept_by(&export.offer()) {
        return Err(SessionEnd::Changed);
    }
    let (_admitted, _open) = (door.admission.adopt(), export.counters.open(stream.peer()));
    let unread = std::mem::take(&mut connection.unread);
    let (stream, early) = (resumed(Stream::clone(stream), unread), Buffer::empty());
    Ok(Some(Chosen { export, terms, stream, early, skip, _admitted, _open }))
}

/// `None`: the door was shut meanwhile.
pub(super) async fn run(door: &Door, stream: &Stream) -> Result<Option<Chosen>, SessionEnd> {
    let _counted = door.admission.begin().map_err(|refusal| {
        note_refused(door, stream, "", refusal);
        SessionEnd::Refused(refusal)
    })?;
    in_time(door, talk(door, stream)).await
}

/// `work`, unless it takes longer than a handshake may, or the door is shut or connections are detached meanwhile.
async fn in_time<T>(
    door: &Door,
    work: impl Future<Output = Result<Option<T>, SessionEnd>>,
) -> Result<Option<T>, SessionEnd> {
    let detached = async {
        loop {
            door.detachment.wait().await;
            door.clock.sleep(DETACH_MAX).await;
            if door.detachment.is_wanted() {
                return; // Else they go on by now.
            }
        }
    };
    let (work, shut) = (pin!(timeout(&door.clock, door.limits.handshake, work)), pin!(door.shutdown.wait()));
    match select(work, select(shut, pin!(detached))).await {
        Either::Left((Some(result), _)) => result,
        Either::Left((None, _)) => Err(SessionEnd::TimedOut),
        Either::Right(_) => Ok(None),
    }
}

async fn talk(door: &Door, below: &Stream) -> Result<Option<Chosen>, SessionEnd> {
    let mut stream = Stream::clone(below);
    let mut handshake = if door.tls.is_some() { Handshake::encrypted() } else { Handshake::new() };
    let greeting: [u8; GREETING_LENGTH] = Handshake::greeting();
    let mut output = greeting.to_vec();
    let mut buffer = door.arena.take(RECEIVE_LENGTH);
    let (mut start, mut filled) = (0, 0);
    let mut asked = None;
    loop {
        let (used, step) = handshake.feed(&buffer[start..filled], &mut output);
        start += used;
        let step = match step {
            Step::Lookup(name) => {
                let export = door.catalog.lookup(&name).await;
                let wants_export = handshake.wants_export();
                match export.map(|export| admit(door, &stream, export, wants_export)).transpose() {
                    Ok(found) => {
                        asked = found;
                        let offer = asked.as_ref().map(|asked: &Asked| asked.export.offer());
                        handshake.answer(offer.as_ref(), &mut output)
                    }
                    Err(refusal) => {
                        note_refused(door, &stream, &name, refusal);
                        handshake.refuse(&refusal.to_string(), &mut output)
                    }
                }
            }
            Step::List => handshake.answer_list(&door.catalog.list().await, &mut output),
            Step::More => {
                flush(&door.arena, &stream, &mut output).await?;
                let (result, received) = stream.receive(buffer, 0, 1).await;
                buffer = received;
                (start, filled) = (0, result.map_err(SessionEnd::of)?);
                continue;
            }
            step => step,
        };
        if output.len() > OUTPUT_LENGTH_MAX || step != Step::More {
            flush(&door.arena, &stream, &mut output).await?;
        }
        match step {
            Step::StartTls => {
                // SERVER5: what came in the clear, whoever put it there, is no part of what is encrypted.
                if start < filled {
                    return Err(SessionEnd::Malformed("bytes in the clear follow the wish for TLS"));
                }
                let tls = door.tls.as_ref().expect("TLS is begun where it is required");
                stream = tls::accept(below, tls, &door.arena).await?;
            }
            Step::Ready(agreement) => {
                let asked = asked.expect("a transmission begins on an export that was looked up");
                buffer.truncate(filled);
                return Ok(Some(chosen(stream, asked, agreement, buffer.split_off(start))));
            }
            Step::Close(reason) => return Err(SessionEnd::NoExport(reason)),
            _ => {}
        }
    }
}

fn chosen(stream: Stream, asked: Asked, agreement: Agreement, early: Buffer) -> Chosen {
    let export = asked.export;
    let offer = export.offer();
    let has_chunks = agreement.framing != Framing::Simple;
    let terms = Terms {
        size: offer.size,
        flags: offer.flags.with_if(has_chunks, ExportFlags::DF),
        block_sizes: offer.block_sizes,
        framing: agreement.framing,
        contexts: agreement.contexts,
    };
    let (admitted, open) =
        asked.admitted.expect("a transmission begins with the answer to who wants the export");
    Chosen { export, terms, stream, early, skip: 0, _admitted: admitted, _open: open }
}

/// Lets the client in to `export`, if it wants to be served next.
fn admit(door: &Door, stream: &Stream, export: Export, wants_export: bool) -> Result<Asked, Refusal> {
    if !wants_export {
        return Ok(Asked { export, admitted: None });
    }
    let admitted = door.admission.admit(export.counters.connections.get())?;
    let open = export.counters.open(stream.peer());
    Ok(Asked { export, admitted: Some((admitted, open)) })
}

/// A client can make refusals as fast as it likes: not each of them is a line in the log.
fn note_refused(door: &Door, stream: &Stream, export: &str, refusal: Refusal) {
    if let Some(refused) = door.admission.note_refused() {
        tracing::warn!(peer = stream.peer(), export, refused, "an NBD connection was refused: {refusal}");
    }
}

async fn flush(arena: &Arena, stream: &Stream, output: &mut Vec<u8>) -> Result<(), SessionEnd> {
    if output.is_empty() {
        return Ok(());
    }
    let bytes = arena.copy(output);
    output.clear();
    stream.send(vec![bytes]).await.map_err(SessionEnd::of)
}
