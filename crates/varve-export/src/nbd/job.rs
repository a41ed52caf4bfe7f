//! One request on its way: the translation to the device's language, and of its answer back.

use super::Export;
use super::activity::Pace;
use super::catalog::UnderWay;
use super::receive_buffer::Payload;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use varve_block::{
    Allocation, Arena, Buffer, Completion, Device, Durability, Extent, Io, IoError, LocalFuture, Outcome,
    ZeroOptions, yield_now,
};
use varve_nbd::server::{ALLOCATION_CONTEXT_ID, Contexts, DIRTY_CONTEXT_ID};
use varve_nbd::transmission::coalesce;
use varve_nbd::wire::{STATE_HOLE, STATE_ZERO, command_flag};
use varve_nbd::{Command, ErrorCode, Request, Run};

/// What a small request is charged in flight at the device, in bytes.
const FLIGHT_MIN: u64 = 32 << 10;
/// What a request is charged at most that moves no data but may take its time.
const FLIGHT_CHANGE: u64 = 1 << 20;
/// Bytes that one request to cache fetches, at most: it is only a hint.
const CACHE_BYTES_MAX: u64 = 32 << 20;
/// Bytes that are fetched at once for it.
const CACHE_PIECE: u64 = 256 << 10;
/// Memory of a block status until it is sent: its runs, and what they are encoded to.
const STATUS_MEMORY: u64 = 32 << 10;
/// Memory comes in pages.
const PAGE: u64 = 4096;
/// Questions that are put to the device for one block status, at most.
const STATUS_ROUNDS_MAX: usize = 64;
/// Runs after which it is answered.
const STATUS_RUNS: usize = 1024;

/// What goes back to the client.
pub(super) enum Answer {
    Done,
    Data(Buffer),
    /// What a long read brought, in order.
    Pieces(Vec<Buffer>),
    /// The runs of each context that was agreed.
    Runs(Vec<(u32, Vec<Run>)>),
    Failed(ErrorCode),
}

/// What a request became.
pub(super) enum Work<'d> {
    Single(Completion<'d>),
    Several(LocalFuture<'d, Answer>),
}

/// A request and what it became. Needs polling; then it gives the request with its answer.
pub(super) struct Job<'d> {
    pub(super) request: Request,
    pub(super) work: Work<'d>,
    /// Counts it.
    pub(super) under_way: Option<UnderWay<'d>>,
}

impl<'d> Future for Job<'d> {
    type Output = (Request, Answer, Option<UnderWay<'d>>);
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let job = self.get_mut();
        let answer = match &mut job.work {
            Work::Single(completion) => Pin::new(completion).poll(context).map(answer),
            Work::Several(future) => future.as_mut().poll(context),
        };
        answer.map(|answer| (job.request, answer, job.under_way.take()))
    }
}

fn answer(outcome: Outcome) -> Answer {
    match outcome {
        Ok(buffer) if buffer.is_empty() => Answer::Done,
        Ok(buffer) => Answer::Data(buffer),
        Err(error) => Answer::Failed(error_code(error)),
    }
}

/// The one place where an error of the engine becomes one of the protocol.
pub(crate) const fn error_code(error: IoError) -> ErrorCode {
    match error {
        IoError::NoSpace => ErrorCode::NoSpace,
        IoError::ReadOnly => ErrorCode::Permission,
        IoError::Unsupported => ErrorCode::NotSupported,
        IoError::Gone | IoError::Fenced => ErrorCode::Shutdown,
        // Of what is full below itself an engine is out of use: a client that waits for room would wait for ever.
        IoError::Medium | IoError::HostFull | IoError::Corrupt => ErrorCode::Io,
    }
}

/// Bytes of memory that a request keeps: what the arena hands out for it.
pub(super) fn cost(request: &Request) -> u64 {
    match request.command {
        Command::Read | Command::Write => request.length.next_power_of_two().max(PAGE),
        Command::Cache => CACHE_PIECE,
        Command::BlockStatus => STATUS_MEMORY,
        _ => 0,
    }
}

/// What a request is charged in flight at the device, in bytes.
pub(super) fn in_flight(request: &Request) -> u64 {
    match request.command {
        Command::Trim | Command::WriteZeroes => request.length.clamp(FLIGHT_MIN, FLIGHT_CHANGE),
        _ => cost(request).max(FLIGHT_MIN),
    }
}

/// Starts `request`, which passed the terms' check (NBD4); `payload` is what a write stores.
pub(super) fn start<'d>(
    export: &'d Export,
    contexts: Contexts,
    arena: &'d Arena,
    (pace, request): (Pace<'d>, Request),
    payload: Option<Payload>,
) -> Job<'d> {
    let device = &export.device;
    let extent = Extent::new(request.offset, request.length);
    let durability = if request.has(command_flag::FUA) { Durability::Durable } else { Durability::Volatile };
    let work = match request.command {
        Command::Read if extent.length > pace.piece() => {
            Work::Several(Box::pin(read_in_pieces(device, arena, pace, extent)))
        }
        Command::Read => Work::Single(device.read(extent.offset, arena.take(index(extent.length)))),
        Command::Write => match payload.expect("a write comes with its data") {
            Payload::Single(data) if extent.length <= pace.piece() => {
                Work::Single(device.write(extent.offset, data, durability))
            }
            payload => {
                Work::Several(Box::pin(write_in_pieces(device, pace, extent.offset, payload, durability)))
            }
        },
        Command::WriteZeroes => {
            let options = ZeroOptions {
                durability,
                unmap: !request.has(command_flag::NO_HOLE),
                fast: request.has(command_flag::FAST_ZERO),
            };
            match extent.length > pace.change() {
                true => Work::Several(Box::pin(zero_in_pieces(device, pace, extent, options))),
                false => Work::Single(device.zero(extent, options)),
            }
        }
        Command::Trim if durability == Durability::Durable || extent.length > pace.change() => {
            Work::Several(Box::pin(discard_in_pieces(device, pace, extent, durability)))
        }
        Command::Trim => Work::Single(device.discard(extent)),
        Command::Cache => Work::Several(Box::pin(fetch(device, arena, extent))),
        Command::BlockStatus => {
            let only_one = request.has(command_flag::REQ_ONE);
            Work::Several(Box::pin(status(export, contexts, extent, only_one)))
        }
        Command::Flush => Work::Single(device.flush()),
        Command::Disconnect | Command::Other(_) => Work::Single(Completion::failed(IoError::Unsupported)),
    };
    Job { request, work, under_way: None }
}

fn index(length: u64) -> usize {
    usize::try_from(length).expect("the terms bound a request's data")
}

/// Reads one piece after the other, each into memory of its own, so that the requests of others get in between and no
/// long run of memory is needed.
async fn read_in_pieces(device: &Device, arena: &Arena, pace: Pace<'_>, mut extent: Extent) -> Answer {
    let mut filled = Vec::new();
    while !extent.is_empty() {
        let piece = next_piece(&mut extent, pace.piece());
        match device.read(piece.offset, arena.take(index(piece.length))).await {
            Ok(read) => filled.push(read),
            Err(error) => return Answer::Failed(error_code(error)),
        }
        yield_now().await;
    }
    Answer::Pieces(filled)
}

/// Writes a few pieces at a time. All that were begun have ended when it answers (NBD1).
async fn write_in_pieces(
    device: &Device,
    pace: Pace<'_>,
    mut offset: u64,
    payload: Payload,
    durability: Durability,
) -> Answer {
    let runs = match payload {
        Payload::Single(data) => vec![data],
        Payload::Several(runs) => runs,
    };
    let (mut flight, mut failed) = (FuturesUnordered::new(), None);
    for mut rest in runs {
        while failed.is_none() && !rest.is_empty() {
            let length = rest.len().min(index(pace.piece()));
            let piece;
            (piece, rest) = rest.split_at(length);
            let length = piece.len() as u64;
            flight.push(device.write(offset, piece, Durability::Volatile));
            offset += length;
            while flight.len() >= pace.pieces_at_once() {
                failed = flight.next().await.and_then(Result::err).or(failed);
            }
            yield_now().await;
        }
    }
    while let Some(outcome) = flight.next().await {
        failed = outcome.err().or(failed);
    }
    match failed {
        Some(error) => Answer::Failed(error_code(error)),
        None => finish(device, durability).await,
    }
}

/// The answer to a change of several pieces, which are durable together if that was asked for.
async fn finish(device: &Device, durability: Durability) -> Answer {
    match durability {
        Durability::Volatile => Answer::Done,
        Durability::Durable => answer(device.flush().await),
    }
}

async fn zero_in_pieces(device: &Device, pace: Pace<'_>, mut extent: Extent, options: ZeroOptions) -> Answer {
    let volatile = ZeroOptions { durability: Durability::Volatile, ..options };
    while !extent.is_empty() {
        let piece = next_piece(&mut extent, pace.change());
        if let Err(error) = device.zero(piece, volatile).await {
            return Answer::Failed(error_code(error));
        }
        yield_now().await;
    }
    finish(device, options.durability).await
}

async fn discard_in_pieces(
    device: &Device,
    pace: Pace<'_>,
    mut extent: Extent,
    durability: Durability,
) -> Answer {
    while !extent.is_empty() {
        let piece = next_piece(&mut extent, pace.change());
        if let Err(error) = device.discard(piece).await {
            return Answer::Failed(error_code(error));
        }
        yield_now().await;
    }
    finish(device, durability).await
}

/// Cuts the next piece off `extent`: up to the next multiple of `unit`.
fn next_piece(extent: &mut Extent, unit: u64) -> Extent {
    let (_, piece) = extent.pieces(unit).next().expect("the extent is not empty");
    *extent = Extent::between(piece.end(), extent.end());
    piece
}

/// Reads, so that the layers below may keep it.
async fn fetch(device: &Device, arena: &Arena, extent: Extent) -> Answer {
    let wanted = Extent::new(extent.offset, extent.length.min(CACHE_BYTES_MAX));
    let mut buffer = arena.take(index(wanted.length.min(CACHE_PIECE)));
    for (_, piece) in wanted.pieces(CACHE_PIECE) {
        let rest = buffer.split_off(index(piece.length).min(buffer.len()));
        let io = Io::Read { offset: piece.offset, buffer };
        match device.submit(io).await {
            Ok(read) => buffer = read,
            Err(error) => return Answer::Failed(error_code(error)),
        }
        buffer.join(rest);
        yield_now().await;
    }
    Answer::Done
}

/// The runs of all contexts, which end at the same byte.
async fn status(export: &Export, contexts: Contexts, extent: Extent, only_one: bool) -> Answer {
    let both = usize::from(contexts.allocation) + usize::from(contexts.dirty);
    let runs_max = if only_one { 1 } else { STATUS_RUNS / both.max(1) };
    let covered = |runs: &[Run]| runs.iter().map(|run| run.length).sum::<u64>();
    let dirty = export.dirty.as_ref().filter(|_| contexts.dirty).map(|dirty| dirty.runs(extent, runs_max));
    let mut wanted = dirty.as_deref().map_or(extent.length, covered);
    let mut answers = Vec::new();
    if contexts.allocation {
        let extent = Extent::new(extent.offset, wanted);
        match allocated(&export.device, extent, runs_max).await {
            Ok(runs) => {
                wanted = covered(&runs);
                answers.push((ALLOCATION_CONTEXT_ID, runs));
            }
            Err(error) => return Answer::Failed(error_code(error)),
        }
    }
    answers.extend(dirty.map(|runs| (DIRTY_CONTEXT_ID, coalesce(runs, wanted, only_one))));
    Answer::Runs(answers)
}

async fn allocated(device: &Device, extent: Extent, runs_max: usize) -> Result<Vec<Run>, IoError> {
    let mut runs: Vec<Run> = Vec::new();
    let mut at = extent.offset;
    for _ in 0..STATUS_ROUNDS_MAX {
        let found = match device.status(Extent::between(at, extent.end())).await {
            Ok(found) => found,
            Err(_) if !runs.is_empty() => break,
            Err(error) => return Err(error),
        };
        let covered: u64 = found.iter().map(|run| run.length).sum();
        runs.extend(found.iter().map(|run| Run { length: run.length, state: state(run.allocation) }));
        runs = coalesce(runs, extent.length, false);
        at = at.saturating_add(covered).min(extent.end());
        if covered == 0 || at == extent.end() || runs.len() > runs_max {
            break;
        }
    }
    runs.truncate(runs_max);
    Ok(coalesce(runs, extent.length, false))
}

const fn state(allocation: Allocation) -> u32 {
    match allocation {
        Allocation::Data => 0,
        Allocation::Zero => STATE_ZERO,
        Allocation::Hole => STATE_HOLE | STATE_ZERO,
    }
}
