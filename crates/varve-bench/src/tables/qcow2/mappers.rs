//! Volumes whose mapping a program decides: requests of ranges that are known beside a linear volume, and questions beside a round
//! trip of two processes.

use crate::prelude::*;
use crate::programs::answerer::{Answerer, MESSAGE};

use varve_block::{LocalFuture, Stream, Transfer};
use varve_sim::{Direction, Load, Order, Random, measure as run};
use varve_target::Linear;
use varve_target::delegate::{Connector, Delegate, DelegateOptions, Link, LinkError, Received};

/// Bytes of the volume.
const SIZE: u64 = 128 * MIB;
/// Bytes of a request.
const BLOCK: u64 = 4 * KIB;
/// Pieces in which a measurement is made, so that what is compared takes turns in short order.
const SLICES: u64 = 8;
/// Throughput of known ranges over that of a linear volume, at least.
const WARM_GOAL: Goal = Goal::AtLeast(0.97);
/// Time of a question over that of a round trip, at most.
const MISS_GOAL: Goal = Goal::AtMost(1.3);

/// Measures both.
pub(in crate::tables) fn measure(options: &Options, part: &mut Part) -> Outcome<()> {
    let place = Place::new(options.directory(Medium::Memory), 2 * SIZE)?;
    let file = open(&place.file("disk", SIZE)?, Medium::Memory)?;
    let echo = place.path().join("echo.sock");
    let _echo = Answerer::start(&["echo", &echo.to_string_lossy()], &echo)?;
    let shard = Shard::start()?;
    let questions: u64 = if options.is_quick() { 200 } else { 8000 };
    for number in 0..options.runs() {
        // A mapper serves one engine, and the last round's keeps its connection.
        let mapper = place.path().join(format!("mapper{number}.sock"));
        let _mapper = Answerer::start(&["mapper", &mapper.to_string_lossy()], &mapper)?;
        let (file, mapper, echo) = (Arc::clone(&file), mapper.clone(), echo.clone());
        let mut seen = std::mem::take(part);
        *part = shard.run(async move |context: ShardContext| {
            round(&context, (&file, &mapper, &echo), questions, &mut seen).await.map(|()| seen)
        })?;
    }
    Ok(())
}

async fn round(
    context: &ShardContext,
    (file, mapper, echo): (&Arc<DiskFile>, &Path, &Path),
    questions: u64,
    part: &mut Part,
) -> Outcome<()> {
    let (clock, arena) = (context.clock(), context.arena());
    let disk = context.disk(file);
    let linear = Device::new(Linear::new(vec![(SIZE, disk.clone(), 0)]));
    let delegate = delegated(context, disk, mapper);
    let device = Device::new(delegate.clone());
    let Questions { trip, miss, cold } = questions_of(context, echo, [&device, &linear], questions).await?;
    part.note("a round trip of 64 bytes to another process", "us", trip);
    let name = "a read of 4 KiB whose place is asked for, beyond the read, over a round trip";
    part.record(name, "x", MISS_GOAL, miss / trip);
    let name =
        "a read of 4 KiB of a linear volume after a round trip, beyond one after another, over a round trip";
    part.note(name, "x", cold / trip);
    // One answer for all of it.
    device.read(0, arena.take(4096)).await?;
    warm(&device, &arena).await?;
    for depth in [1, 32] {
        for direction in [Direction::Read, Direction::Write] {
            let count = SIZE / BLOCK / SLICES;
            let load =
                Load { direction, order: Order::Random { unit: BLOCK }, request_bytes: BLOCK, depth, count };
            // Of the mapped volume and of the linear one; each is the first in every other slice.
            let mut times = [0.0; 2];
            for slice in 0..SLICES {
                for (index, device) in turns(&[(0, &device), (1, &linear)], slice as usize) {
                    let measured = run(device, &clock, &arena, &load, &mut Random::new(slice + 7)).await;
                    times[index] += 1.0 / measured?.bytes_per_second();
                }
            }
            let verb = if direction == Direction::Read { "reads" } else { "writes" };
            let name = format!("random {verb} of 4 KiB QD{depth} of known ranges, mapped / linear");
            part.record(name, "x", WARM_GOAL, times[1] / times[0]);
        }
    }
    Ok(())
}

/// A volume that the mapper at `socket` maps to `disk`.
fn delegated(context: &ShardContext, disk: Device, socket: &Path) -> Delegate {
    let options = DelegateOptions {
        name: "bench/volume".to_owned(),
        size: SIZE,
        block_size: disk.shape().block_size.max(512),
        devices: vec![("bench/disk".to_owned(), disk)],
        answer_wait: Duration::from_secs(30),
        entries_max: 1 << 20,
    };
    let delegate = Delegate::new(options, &context.clock(), &context.arena());
    let connector = Unix { context: context.clone(), socket: socket.to_owned() };
    let running = delegate.clone();
    context.spawner().spawn(async move { running.run(&connector).await });
    delegate
}

/// Has every range of the volume known, in long runs.
async fn warm(device: &Device, arena: &Arena) -> Outcome<()> {
    let piece = MIB as usize;
    for at in (0..SIZE).step_by(piece) {
        let buffer = device.read(at, arena.take(piece)).await?;
        let data = buffer.freeze();
        device.write(at, data, Durability::Volatile).await?;
    }
    Ok(())
}

/// Microseconds.
struct Questions {
    /// Until a message has come back from another process.
    trip: f64,
    /// Of a read whose place must be asked for, beyond the same read where it need not.
    miss: f64,
    /// Of a read where it need not that follows a round trip, beyond one that follows another: the caches are those of the other process.
    cold: f64,
}

/// Of reads of the first of `devices` places must be asked for, and of the second not. They take turns.
async fn questions_of(
    context: &ShardContext,
    echo: &Path,
    devices: [&Device; 2],
    count: u64,
) -> Outcome<Questions> {
    let arena = context.arena();
    let echo = context.connect_unix(echo).await?;
    for device in devices {
        // The connection, and the first touch of memory.
        read(device, &arena, SIZE - BLOCK).await?;
    }
    let count = count / SLICES;
    let (mut trips, mut times, mut both) = (0.0, [0.0; 2], 0.0);
    for slice in 0..SLICES {
        // Never one that follows the last, of which more would be asked at once.
        let places =
            (slice * count..(slice + 1) * count).map(|number| number * 7919 % (SIZE / BLOCK - 1) * BLOCK);
        trips += round_trips(&echo, &arena, count).await?;
        for (time, device) in times.iter_mut().zip(devices) {
            let watch = Watch::start();
            for at in places.clone() {
                read(device, &arena, at).await?;
            }
            *time += watch.seconds();
        }
        for at in places {
            both += round_trips(&echo, &arena, 1).await?;
            let watch = Watch::start();
            read(devices[1], &arena, at).await?;
            both += watch.seconds();
        }
    }
    let us_of_each = |seconds: f64| seconds * 1e6 / (count * SLICES) as f64;
    Ok(Questions {
        trip: us_of_each(trips),
        miss: us_of_each(times[0] - times[1]),
        cold: us_of_each(both - trips - times[1]),
    })
}

async fn read(device: &Device, arena: &Arena, at: u64) -> Outcome<()> {
    let read = device.read(at, arena.take(BLOCK as usize)).await;
    read.map(drop).map_err(Failed::from)
}

/// Seconds until so many messages have come back, one after the other.
async fn round_trips(stream: &Stream, arena: &Arena, count: u64) -> Outcome<f64> {
    let message = arena.take_zeroed(MESSAGE).freeze();
    let mut buffer = arena.take(MESSAGE);
    let watch = Watch::start();
    for _ in 0..count {
        stream.send(vec![message.clone()]).await.map_err(|error| format!("{error:?}"))?;
        let (received, back) = stream.receive(buffer, 0, MESSAGE).await;
        received.map_err(|error| format!("{error:?}"))?;
        buffer = back;
    }
    Ok(watch.seconds())
}

/// Connects to a mapper on a Unix socket.
struct Unix {
    context: ShardContext,
    socket: PathBuf,
}

impl Connector for Unix {
    fn connect(&self) -> LocalFuture<'_, Result<Box<dyn Link>, LinkError>> {
        Box::pin(async move {
            let stream = self.context.connect_unix(&self.socket).await.map_err(|_| LinkError)?;
            let link: Box<dyn Link> = Box::new(UnixLink { stream, arena: self.context.arena() });
            Ok(link)
        })
    }
}

struct UnixLink {
    stream: Stream,
    arena: Arena,
}

impl Link for UnixLink {
    fn send(&self, bytes: Vec<u8>) {
        // One question is under way at a time: there is room for it.
        let sent = match self.stream.send(vec![self.arena.copy(&bytes)]) {
            Transfer::Ready(Some(result)) => result.is_ok(),
            _ => false,
        };
        if !sent {
            self.stream.close();
        }
    }

    fn receive(&self) -> LocalFuture<'_, Result<Received, LinkError>> {
        Box::pin(async move {
            let (received, buffer) = self.stream.receive(self.arena.take(64 << 10), 0, 1).await;
            let count = received.map_err(|_| LinkError)?;
            Ok(Received { bytes: buffer[..count].to_vec(), devices: Vec::new() })
        })
    }
}
