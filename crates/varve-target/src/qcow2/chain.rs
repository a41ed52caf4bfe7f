//! What lies below an image, as one device: the layer that decides a run of bytes is looked for once, however many there are.
//!
//! Invariants:
//! - QCHAIN1. Nothing in a chain is written, so what was found stays so.
//! - QCHAIN2. At most [`RUNS_MAX`] runs are remembered.

use super::Image;
use super::mapping::Mapping;
use super::read::gather;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::ready;
use std::rc::Rc;
use varve_block::{
    Access, Allocation, Arena, BlockDevice, Buffer, Checked, Completion, Device, Extent, Io, IoError,
    LocalFuture, MIB, Outcome, Shape, StatusFuture, StatusRun, widen,
};

/// The most runs that are remembered.
pub const RUNS_MAX: usize = 1 << 16;
/// A run is looked for in so many bytes at most.
const RUN_LENGTH_MAX: u64 = 64 * MIB;

/// An image that is read only as a part of a chain.
#[derive(Clone)]
pub enum Layer {
    /// A qcow2 image, opened without what lies below it.
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
}

/// The device of `layers`, the uppermost first: each lies over the next one. None if there are none.
pub fn chain(layers: Vec<Layer>, arena: &Arena) -> Option<Device> {
    let top = layers.first()?;
    if let (Layer::Raw(device), 1) = (top, layers.len()) {
        return Some(device.clone());
    }
    let shape = Shape { access: Access::ReadOnly, ..Shape::new(top.size(), BLOCK_SIZE) };
    let raw = |layer| match layer {
        Layer::Raw(device) => Layer::Raw(widen(device, arena.clone())),
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

/// A run of bytes that one layer decides.
#[derive(Clone, Copy, Debug)]
struct Run {
    length: u64,
    /// None if it is zeros, because a layer says so or there is none so large.
    layer: Option<usize>,
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
        let rest = |start: u64, run: Run| Run { length: start + run.length - at, ..run };
        if let Some((start, run)) = covering(&self.young, at) {
            return Some(rest(start, run));
        }
        let (start, run) = covering(&self.old, at)?;
        self.insert(start, run);
        Some(rest(start, run))
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
                return Ok(Run { length, layer: None });
            }
            length = length.min(size - at);
            let Layer::Image(image) = layer else {
                return Ok(Run { length, layer: Some(number) });
            };
            let here = image.lookup(at, length).await?;
            length = here.length;
            match here.mapping {
                Mapping::Data { .. } | Mapping::Compressed { .. } => {
                    return Ok(Run { length, layer: Some(number) });
                }
                Mapping::Zero => return Ok(Run { length, layer: None }),
                Mapping::Unallocated => {}
            }
        }
        Ok(Run { length, layer: None })
    }

    async fn read(&self, offset: u64, buffer: Buffer) -> Outcome {
        let locate = async |at, length| self.run_at(at, length).await.map(|run| (run, run.length));
        gather(offset, buffer, locate, |at, run, part| self.read_run(at, run, part)).await
    }

    fn read_run(&self, at: u64, run: Run, mut buffer: Buffer) -> LocalFuture<'_, Outcome> {
        assert!(run.length == buffer.len() as u64, "QCHAIN1: what one layer decides is read there");
        match run.layer.map(|number| &self.layers[number]) {
            Some(Layer::Image(image)) => Box::pin(image.read(at, buffer)),
            Some(Layer::Raw(device)) => device.read(at, buffer).boxed(),
            None => {
                buffer.fill(0);
                Box::pin(ready(Ok(buffer)))
            }
        }
    }
}

impl BlockDevice for Chain {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Read { offset, buffer } => Completion::pending(self.read(offset, buffer)),
            Io::Flush => Completion::done(),
            Io::Write { .. } | Io::Zero { .. } | Io::Discard { .. } => Completion::failed(IoError::ReadOnly),
        }
    }

    fn status(&self, extent: Extent) -> StatusFuture<'_> {
        Box::pin(async move {
            let run = self.run_at(extent.offset, extent.length).await?;
            match run.layer.map(|number| &self.layers[number]) {
                Some(Layer::Raw(device)) => device.status(Extent::new(extent.offset, run.length)).await,
                Some(Layer::Image(_)) => {
                    Ok(vec![StatusRun { length: run.length, allocation: Allocation::Data }])
                }
                None => Ok(vec![StatusRun { length: run.length, allocation: Allocation::Hole }]),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_remembered_from_any_byte_of_theirs_until_others_were_used() {
        let mut found = Found::default();
        let layer = Some(3);
        found.insert(100, Run { length: 50, layer });
        let rest = |found: &mut Found, at| found.get(at).map(|run| (run.length, run.layer));
        assert_eq!(rest(&mut found, 120), Some((30, layer)));
        assert_eq!((rest(&mut found, 99), rest(&mut found, 150)), (None, None));
        let others = |found: &mut Found, first: u64| {
            (0..RUNS_MAX as u64 / 2).for_each(|at| found.insert(first + at, Run { length: 1, layer: None }));
        };
        others(&mut found, 1000);
        assert_eq!(rest(&mut found, 149), Some((1, layer)), "used lately");
        others(&mut found, 1 << 20);
        assert_eq!(rest(&mut found, 100), Some((50, layer)), "used before");
        others(&mut found, 1 << 30);
        others(&mut found, 1 << 40);
        assert_eq!(rest(&mut found, 100), None);
    }
}
