//! The handshake over a stream: carries bytes between it and the protocol's state machine, and asks the catalog.

use super::{Door, Export, SessionEnd};
use futures_util::future::{Either, select};
use std::pin::pin;
use varve_block::{Arena, Buffer, Stream, StreamError, timeout};
use varve_nbd::server::{Handshake, Step, Terms};
use varve_nbd::wire::GREETING_LENGTH;

/// Bytes that are received at once.
const RECEIVE_LENGTH: usize = 4096;
/// Replies are sent when there are this many bytes of them, at the latest.
const OUTPUT_LENGTH_MAX: usize = 64 << 10;

/// What the handshake led to.
pub(super) struct Chosen {
    pub(super) export: Export,
    pub(super) terms: Terms,
    /// What the client sent already of its first requests.
    pub(super) early: Buffer,
}

/// `None`: the door was shut meanwhile.
pub(super) async fn run(door: &Door, stream: &Stream) -> Result<Option<Chosen>, SessionEnd> {
    let talk = pin!(timeout(&door.clock, door.limits.handshake, talk(door, stream)));
    let shut = pin!(door.shutdown.wait());
    match select(talk, shut).await {
        Either::Left((Some(result), _)) => result,
        Either::Left((None, _)) => Err(SessionEnd::TimedOut),
        Either::Right(((), _)) => Ok(None),
    }
}

async fn talk(door: &Door, stream: &Stream) -> Result<Option<Chosen>, SessionEnd> {
    let mut handshake = Handshake::new();
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
                asked = door.catalog.lookup(&name).await;
                let offer = asked.as_ref().map(Export::offer);
                handshake.answer(offer.as_ref(), &mut output)
            }
            Step::List => handshake.answer_list(&door.catalog.list().await, &mut output),
            Step::More => {
                flush(&door.arena, stream, &mut output).await?;
                let (result, received) = stream.receive(buffer, 0, 1).await;
                buffer = received;
                (start, filled) = (0, result.map_err(ended)?);
                continue;
            }
            step => step,
        };
        if output.len() > OUTPUT_LENGTH_MAX || step != Step::More {
            flush(&door.arena, stream, &mut output).await?;
        }
        match step {
            Step::Ready(agreement) => {
                let export = asked.expect("a transmission begins on an export that was looked up");
                let offer = export.offer();
                let terms = Terms {
                    size: offer.size,
                    flags: offer
                        .flags
                        .with_if(agreement.framing != varve_nbd::Framing::Simple, varve_nbd::ExportFlags::DF),
                    block_sizes: offer.block_sizes,
                    framing: agreement.framing,
                    allocation: agreement.allocation,
                };
                buffer.truncate(filled);
                let early = buffer.split_off(start);
                return Ok(Some(Chosen { export, terms, early }));
            }
            Step::Close(farewell) => return Err(SessionEnd::NoExport(farewell)),
            _ => {}
        }
    }
}

async fn flush(arena: &Arena, stream: &Stream, output: &mut Vec<u8>) -> Result<(), SessionEnd> {
    if output.is_empty() {
        return Ok(());
    }
    let bytes = arena.copy(output);
    output.clear();
    stream.send(vec![bytes]).await.map_err(ended)
}

fn ended(error: StreamError) -> SessionEnd {
    match error {
        StreamError::Closed => SessionEnd::Truncated,
        StreamError::Broken => SessionEnd::Broken,
    }
}
