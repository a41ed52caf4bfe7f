//! What is below an image, as one device: the place of a run of bytes is looked for once, however many layers there are. A run
//! names the place in the layer's own device, so that a read of it is one lookup and one request, and the layer's tables are
//! not looked at again.
//!
//! Invariants:
//! - QCHAIN1. Nothing in a chain is written, so what was found stays so: a run need never be invalidated. A write to an image
//!   backed by the chain changes that image's own tables, which are looked at before the chain is.
//! - QCHAIN2. At most [`RUNS_MAX`] runs are remembered.
//! - QCHAIN3. A place is remembered only if all of the run is inside the layer's device.

use super::Image;
use super::read::gather;
use super::tables::mapping::Mapping;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use varve_block::{
    Access, Allocation, Arena, BlockDevice, Buffer, Checked, Completion, Device, Extent, Io, IoError, MIB,
    MapAnswer, MapFuture, MapGuard, MapIntent, MapPiece, Outcome, Shape, accept_unaligned,
};

/// The most runs that are remembered.
pub const RUNS_MAX: usize = 1 << 16;
/// A run is looked for in so many bytes at most.
const RUN_LENGTH_MAX: u64 = 64 * MIB;

/// An image that is read only as a part of a chain.
#[derive(Clone)]
pub enum Layer {
    /// A qcow2 image, opened read-only and without what is below it.
    Image(Rc<Image>),
    /// The bytes of a disk.
    Raw(Device),
}

impl Layer {
    fn size(&self) -> u64 {
        match self {
            Layer::Image(image) => image.size(),
            Layer::Raw(device) => device.shape().size,
        }
    }

    /// Where places of the layer lie.
    fn device(&self) -> &Device {
        match self {
            Layer::Image(image) => image.file.device(),
            Layer::Raw(device) => device,
        }
    }

    fn is_read_only(&self) -> bool {
        match self {
            Layer::Image(image) => image.access() == Access::ReadOnly,
            Layer::Raw(_) => true,
        }
    }
}

/// The device of `layers`, the uppermost first: each is backed by the next one. None if there are none.
pub fn chain(layers: Vec<Layer>, arena: &Arena) -> Option<Device> {
    let top = layers.first()?;
    assert!(layers.iter().all(Layer::is_read_only), "QCHAIN1: an image in a chain is open to write");
    if let (Layer::Raw(device), 1) = (top, layers.len()) {
        return Some(device.clone());
    }
    let shape = Shape { access: Access::ReadOnly, ..Shape::new(top.size(), BLOCK_SIZE) };
    let raw = |layer| match layer {
        Layer::Raw(device) => Layer::Raw(accept_unaligned(device, arena.clone())),
        image @ Layer::Image(_) => image,
    };
    let layers = layers.into_iter().map(raw).collect();
    Some(Device::new(Chain { layers, shape, found: RefCell::default() }))
}

/// Bytes of the device's blocks: sectors.
const BLOCK_SIZE: u32 = 512;

/// Some layers as one device.
struct Chain {
    layers: Vec<Layer>,
    shape: Shape,
    found: RefCell<Found>,
}

/// Where a run of bytes is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// Nowhere: it is zeros, because a layer says so or there is none so large.
    Zero,
    /// In the device of a layer, from `offset` on.
    Data { layer: u32, offset: u64 },
    /// Only the layer can tell: the run is compressed.
    Layer(u32),
}

/// A run of bytes that one layer decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    length: u64,
    place: Place,
}

impl Run {
    /// What is left of it `distance` bytes further on.
    fn further(self, distance: u64) -> Run {
        assert!(distance < self.length, "QCHAIN1: a run has a byte");
        let place = match self.place {
            Place::Data { layer, offset } => Place::Data { layer, offset: offset + distance },
            other => other,
        };
        Run { length: self.length - distance, place }
    }
}

/// Runs by their first bytes: those that were used lately, and those that were before.
#[derive(Default)]
struct Found {
    young: BTreeMap<u64, Run>,
    old: BTreeMap<u64, Run>,
}

impl Found {
    /// How the bytes from `at` on are decided, if that is remembered.
    fn get(&mut self, at: u64) -> Option<Run> {
        if let Some((start, run)) = covering(&self.young, at) {
            return Some(run.further(at - start));
        }
        let (start, run) = covering(&self.old, at)?;
        self.insert(start, run);
        Some(run.further(at - start))
    }

    fn insert(&mut self, start: u64, run: Run) {
        if self.young.len() >= RUNS_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(start, run);
        assert!(self.young.len() + self.old.len() <= RUNS_MAX, "QCHAIN2: few runs are remembered");
    }
}

/// The run that has byte `at`, and where it begins.
fn covering(runs: &BTreeMap<u64, Run>, at: u64) -> Option<(u64, Run)> {
    let (start, run) = runs.range(..=at).next_back()?;
    (start + run.length > at).then_some((*start, *run))
}

impl Chain {
    /// How the bytes from `at` on are decided, up to `length_max` of them.
    async fn run_at(&self, at: u64, length_max: u64) -> Result<Run, IoError> {
        let remembered = self.found.borrow_mut().get(at);
        let run = match remembered {
            Some(run) => run,
            None => {
                let run = self.find(at).await?;
                self.found.borrow_mut().insert(at, run);
                run
            }
        };
        assert!(run.length > 0, "QCHAIN1: a run has a byte");
        Ok(Run { length: run.length.min(length_max), ..run })
    }

    /// Looks for the first layer that decides byte `at`, and for how many bytes behind it that holds.
    async fn find(&self, at: u64) -> Result<Run, IoError> {
        let mut length = RUN_LENGTH_MAX.min(self.shape.size - at);
        for (number, layer) in self.layers.iter().enumerate() {
            let size = layer.size();
            if at >= size {
                return Ok(Run { length, place: Place::Zero });
            }
            length = length.min(size - at);
            let number = u32::try_from(number).expect("few layers");
            let Layer::Image(image) = layer else {
                return Ok(Run { length, place: Place::Data { layer: number, offset: at } });
            };
            let here = image.lookup(at, length).await?;
            length = here.length;
            let place = match here.mapping {
                Mapping::Unallocated => continue,
                Mapping::Zero => Place::Zero,
                Mapping::Data { offset, .. } => {
                    let run = Extent::new(offset, length);
                    assert!(image.file.has(run), "QCHAIN3: the run lies inside the file");
                    Place::Data { layer: number, offset }
                }
                Mapping::Compressed { .. } => Place::Layer(number),
            };
            return Ok(Run { length, place });
        }
        Ok(Run { length, place: Place::Zero })
    }

    /// The read, if it is known where all of it is, as one request to the device that has it.
    fn read_known(&self, offset: u64, buffer: Buffer) -> Result<Completion<'_>, Buffer> {
        match self.found.borrow_mut().get(offset) {
            Some(run) if run.length >= buffer.len() as u64 => Ok(self.read_run(offset, run.place, buffer)),
            _ => Err(buffer),
        }
    }

    async fn read(&self, offset: u64, buffer: Buffer) -> Outcome {
        let locate = async |at, length| self.run_at(at, length).await.map(|run| (run.place, run.length));
        gather(offset, buffer, locate, |at, place, part| self.read_run(at, place, part).boxed()).await
    }

    /// Fills `buffer` from `at` on, all of which is at `place`.
    fn read_run(&self, at: u64, place: Place, mut buffer: Buffer) -> Completion<'_> {
        match place {
            Place::Data { layer, offset } => self.layer(layer).device().read(offset, buffer),
            Place::Layer(number) => match self.layer(number) {
                Layer::Image(image) => Completion::pending(image.read(at, buffer)),
                Layer::Raw(device) => device.read(at, buffer),
            },
            Place::Zero => {
                buffer.fill(0);
                Completion::ready(Ok(buffer))
            }
        }
    }

    fn layer(&self, number: u32) -> &Layer {
        &self.layers[number as usize]
    }
}

impl BlockDevice for Chain {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Read { offset, buffer } => match self.read_known(offset, buffer) {
                Ok(completion) => completion,
                Err(buffer) => Completion::pending(self.read(offset, buffer)),
            },
            Io::Flush => Completion::done(),
            Io::Write { .. } | Io::Zero { .. } | Io::Discard { .. } => Completion::failed(IoError::ReadOnly),
        }
    }

    fn map(&self, extent: Extent, _intent: MapIntent) -> MapFuture<'_> {
        Box::pin(async move {
            let Run { length, place } = self.run_at(extent.offset, extent.length).await?;
            let piece = match place {
                Place::Data { layer, offset } => {
                    let piece = MapPiece::on(self.layer(layer).device(), offset, length);
                    match self.layer(layer) {
                        Layer::Raw(_) => piece,
                        Layer::Image(_) => piece.holding(Allocation::Data),
                    }
                }
                Place::Layer(_) => MapPiece::sent(length).holding(Allocation::Data),
                Place::Zero => MapPiece::hole(length),
            };
            Ok(MapAnswer::new(piece, MapGuard::none())) // QCHAIN1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_remembered_from_any_byte_of_theirs_until_others_were_used() {
        let mut found = Found::default();
        let place = Place::Data { layer: 3, offset: 7000 };
        found.insert(100, Run { length: 50, place });
        let rest = |found: &mut Found, at| found.get(at).map(|run| (run.length, run.place));
        let further = |distance: u64| Place::Data { layer: 3, offset: 7000 + distance };
        assert_eq!(rest(&mut found, 120), Some((30, further(20))));
        assert_eq!((rest(&mut found, 99), rest(&mut found, 150)), (None, None));
        let others = |found: &mut Found, first: u64| {
            let zero = Run { length: 1, place: Place::Zero };
            (0..RUNS_MAX as u64 / 2).for_each(|at| found.insert(first + at, zero));
        };
        others(&mut found, 1000);
        assert_eq!(rest(&mut found, 149), Some((1, further(49))), "used lately");
        others(&mut found, 1 << 20);
        assert_eq!(rest(&mut found, 100), Some((50, place)), "used before");
        others(&mut found, 1 << 30);
        others(&mut found, 1 << 40);
        assert_eq!(rest(&mut found, 100), None);
    }
}
