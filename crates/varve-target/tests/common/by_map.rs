//! A device whose clients move the bytes themselves: it asks where they lie, and reads and overwrites them there under the guard.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use varve_block::{
    BlockDevice, Buffer, Bytes, Checked, Clock, Completion, Device, Durability, Extent, Io, IoError,
    Location, MapAnswer, MapGuard, MapIntent, MapPiece, Outcome, Shape,
};
use varve_sim::World;
use varve_target::{fan_out, read_pieces};

/// What was moved past the device that was asked, over all histories of this process.
static READ: AtomicU64 = AtomicU64::new(0);
static OVERWRITTEN: AtomicU64 = AtomicU64::new(0);
/// Bytes for which requests were sent.
static SENT: AtomicU64 = AtomicU64::new(0);

/// Bytes that were read and overwritten where they lie, and those for which requests were sent.
pub(crate) fn moved() -> [u64; 3] {
    [&READ, &OVERWRITTEN, &SENT].map(|bytes| bytes.load(Ordering::Relaxed))
}

/// How the bytes are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moves {
    /// Under the guard.
    Guarded,
    /// A while after the guard was released: a fault.
    Unguarded,
}

struct ByMap {
    device: Device,
    clock: Clock,
    moves: Moves,
}

/// How long the fault lets others go on before the bytes are moved.
const LATE: Duration = Duration::from_millis(3);

/// `device`, of which every byte that is somewhere is moved there.
pub(crate) fn by_map(device: Device, world: &World, moves: Moves) -> Device {
    Device::new(ByMap { device, clock: world.clock(), moves })
}

fn count(bytes: &AtomicU64, length: u64) {
    bytes.fetch_add(length, Ordering::Relaxed);
}

impl ByMap {
    /// Where all of `extent` is, as far down as one answer tells of all of it; none if a request is to be sent. A request that
    /// was moved in several answers would be several requests if a switch is turned between them.
    async fn ask(&self, extent: Extent, intent: MapIntent) -> Result<Option<MapAnswer>, IoError> {
        let mut answer = self.device.map(extent, intent).await?;
        if answer.is_sent() || answer.length() < extent.length {
            return Ok(None);
        }
        while let [MapPiece { location: Location::On { device, offset }, .. }] = answer.pieces.as_slice() {
            let below = device.map(Extent::new(*offset, extent.length), intent).await?;
            if below.is_sent() || below.length() < extent.length {
                break;
            }
            answer = MapAnswer { pieces: below.pieces, guard: answer.guard.and(below.guard) };
        }
        if self.moves == Moves::Unguarded {
            answer.guard = MapGuard::none();
            self.clock.sleep(LATE).await;
        }
        Ok(Some(answer))
    }

    async fn read(&self, offset: u64, buffer: Buffer) -> Outcome {
        let extent = Extent::new(offset, buffer.len() as u64);
        let Some(answer) = self.ask(extent, MapIntent::Read).await? else {
            count(&SENT, extent.length);
            return self.device.read(offset, buffer).await;
        };
        count(&READ, extent.length);
        read_pieces(&answer.pieces, buffer).await
    }

    async fn write(&self, offset: u64, data: Bytes) -> Outcome {
        let extent = Extent::new(offset, data.len() as u64);
        let Some(answer) = self.ask(extent, MapIntent::Overwrite).await? else {
            count(&SENT, extent.length);
            return self.device.write(offset, data, Durability::Volatile).await;
        };
        count(&OVERWRITTEN, extent.length);
        let (mut writes, mut left) = (Vec::new(), data);
        for piece in &answer.pieces {
            let (part, rest) = left.split_at(usize::try_from(piece.length).expect("small"));
            let Location::On { device, offset } = &piece.location else { panic!("MAP3: it is led on") };
            writes
                .push((device, Io::Write { offset: *offset, data: part, durability: Durability::Volatile }));
            left = rest;
        }
        fan_out(writes).await
    }
}

impl BlockDevice for ByMap {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Read { offset, buffer } => Completion::pending(self.read(offset, buffer)),
            Io::Write { offset, data, durability: Durability::Volatile } => {
                Completion::pending(self.write(offset, data))
            }
            other => self.device.submit(other),
        }
    }
}
