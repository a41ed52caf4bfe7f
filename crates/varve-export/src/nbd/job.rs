//! One request on its way: the translation to the device's language, and of its answer back.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use varve_block::{
    Allocation, Arena, Buffer, Bytes, Completion, Device, Durability, Extent, Io, IoError, LocalFuture,
    Outcome, ZeroOptions,
};
use varve_nbd::transmission::coalesce;
use varve_nbd::wire::{STATE_HOLE, STATE_ZERO, command_flag};
use varve_nbd::{Command, ErrorCode, Request, Run};

/// Bytes that one request to cache fetches, at most: it is only a hint.
const CACHE_BYTES_MAX: u64 = 32 << 20;
/// Bytes that are fetched at once for it.
const CACHE_PIECE: u64 = 256 << 10;
/// Bytes of a read that are asked of the device at once.
const READ_PIECE: u64 = 1 << 20;
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
    Runs(Vec<Run>),
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
}

impl Future for Job<'_> {
    type Output = (Request, Answer);
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let job = self.get_mut();
        let answer = match &mut job.work {
            Work::Single(completion) => Pin::new(completion).poll(context).map(answer),
            Work::Several(future) => future.as_mut().poll(context),
        };
        answer.map(|answer| (job.request, answer))
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
pub(super) const fn error_code(error: IoError) -> ErrorCode {
    match error {
        IoError::NoSpace => ErrorCode::NoSpace,
        IoError::ReadOnly => ErrorCode::Permission,
        IoError::Unsupported => ErrorCode::NotSupported,
        IoError::Gone | IoError::Fenced => ErrorCode::Shutdown,
        IoError::Medium | IoError::Corrupt => ErrorCode::Io,
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

/// Starts `request`, which passed the terms' check (E4); `payload` is what a write stores.
pub(super) fn start<'d>(
    device: &'d Device,
    arena: &'d Arena,
    request: Request,
    payload: Option<Bytes>,
) -> Job<'d> {
    let extent = Extent::new(request.offset, request.length);
    let durability = if request.has(command_flag::FUA) { Durability::Durable } else { Durability::Volatile };
    let work = match request.command {
        Command::Read if extent.length > READ_PIECE => {
            Work::Several(Box::pin(read_in_pieces(device, extent, arena.take(index(extent.length)))))
        }
        Command::Read => Work::Single(device.read(extent.offset, arena.take(index(extent.length)))),
        Command::Write => {
            let data = payload.expect("a write comes with its data");
            Work::Single(device.write(extent.offset, data, durability))
        }
        Command::WriteZeroes => {
            let options = ZeroOptions {
                durability,
                unmap: !request.has(command_flag::NO_HOLE),
                fast: request.has(command_flag::FAST_ZERO),
            };
            Work::Single(device.zero(extent, options))
        }
        Command::Trim if durability == Durability::Durable => {
            Work::Several(Box::pin(discard_durably(device, extent)))
        }
        Command::Trim => Work::Single(device.discard(extent)),
        Command::Cache => Work::Several(Box::pin(fetch(device, arena, extent))),
        Command::BlockStatus => {
            let only_one = request.has(command_flag::REQ_ONE);
            Work::Several(Box::pin(status(device, extent, only_one)))
        }
        Command::Flush => Work::Single(device.flush()),
        Command::Disconnect | Command::Other(_) => Work::Single(Completion::failed(IoError::Unsupported)),
    };
    Job { request, work }
}

fn index(length: u64) -> usize {
    usize::try_from(length).expect("the terms bound a request's data")
}

/// Reads one piece after the other, so that the requests of others get in between.
async fn read_in_pieces(device: &Device, extent: Extent, mut rest: Buffer) -> Answer {
    let mut filled = Buffer::empty();
    for (start, piece) in Extent::new(0, extent.length).pieces(READ_PIECE) {
        let mut buffer = rest;
        rest = buffer.split_off(index(piece.length));
        match device.read(extent.offset + start * READ_PIECE, buffer).await {
            Ok(read) => filled.join(read),
            Err(error) => return Answer::Failed(error_code(error)),
        }
        yield_now().await;
    }
    Answer::Data(filled)
}

/// Ends this poll of a request that may never wait (E5).
async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn discard_durably(device: &Device, extent: Extent) -> Answer {
    match device.discard(extent).await {
        Ok(_) => answer(device.flush().await),
        Err(error) => Answer::Failed(error_code(error)),
    }
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

async fn status(device: &Device, extent: Extent, only_one: bool) -> Answer {
    let mut runs: Vec<Run> = Vec::new();
    let mut at = extent.offset;
    for _ in 0..STATUS_ROUNDS_MAX {
        let found = match device.status(Extent::between(at, extent.end())).await {
            Ok(found) => found,
            Err(_) if !runs.is_empty() => break,
            Err(error) => return Answer::Failed(error_code(error)),
        };
        let covered: u64 = found.iter().map(|run| run.length).sum();
        runs.extend(found.iter().map(|run| Run { length: run.length, state: state(run.allocation) }));
        runs = coalesce(runs, extent.length, false);
        at = at.saturating_add(covered).min(extent.end());
        if covered == 0 || at == extent.end() || runs.len() > STATUS_RUNS || only_one && runs.len() > 1 {
            break;
        }
    }
    runs.truncate(STATUS_RUNS);
    Answer::Runs(coalesce(runs, extent.length, only_one))
}

const fn state(allocation: Allocation) -> u32 {
    match allocation {
        Allocation::Data => 0,
        Allocation::Zero => STATE_ZERO,
        Allocation::Hole => STATE_HOLE | STATE_ZERO,
    }
}
