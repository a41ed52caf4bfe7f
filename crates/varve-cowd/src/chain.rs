//! Where the bytes of a chain of images lie: on which device of the mapper, at which byte.

use std::rc::Rc;
use varve_block::{Device, IoError};
use varve_target::qcow2::{Image, Mapping};

/// Where a run of bytes is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// In the first image, at this byte of its file, and nothing else refers to it: it may be overwritten.
    Own(u64),
    /// On a device, at this byte.
    Device(u32, u64),
    /// Nowhere: it is zeros.
    Zero,
    /// In a compressed cluster.
    Compressed,
}

/// A run of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// The first byte.
    pub(crate) at: u64,
    /// Bytes.
    pub(crate) length: u64,
    /// Where they lie.
    pub(crate) source: Source,
}

/// An image or a raw file, with its device number.
pub(crate) struct Layer {
    /// None of a raw file.
    pub(crate) image: Option<Rc<Image>>,
    /// Bytes of the disk that it holds.
    pub(crate) size: u64,
    /// Number of the device on which its file is known to the engine.
    pub(crate) number: u32,
}

/// An image that is written, and what is below it.
pub(crate) struct Chain {
    /// The image that is written.
    pub(crate) image: Rc<Image>,
    /// Its disk, with what is below it.
    pub(crate) device: Device,
    /// The image itself first.
    pub(crate) layers: Vec<Layer>,
}

impl Chain {
    /// Where byte `at` is, and as many as follow it there up to `length`: in the first layer that decides it.
    pub(crate) async fn run_at(&self, at: u64, mut length: u64) -> Result<Run, IoError> {
        assert!(length > 0, "a run has a byte at least");
        for (depth, layer) in self.layers.iter().enumerate() {
            if at >= layer.size {
                return Ok(Run { at, length, source: Source::Zero });
            }
            length = length.min(layer.size - at);
            let Some(image) = &layer.image else {
                return Ok(Run { at, length, source: Source::Device(layer.number, at) });
            };
            let here = image.lookup(at, length).await?;
            length = here.length;
            let source = match here.mapping {
                Mapping::Data { offset, copied: true } if depth == 0 => Source::Own(offset),
                Mapping::Data { offset, .. } => Source::Device(layer.number, offset),
                Mapping::Zero => Source::Zero,
                Mapping::Compressed { .. } => Source::Compressed,
                Mapping::Unallocated => continue,
            };
            return Ok(Run { at, length, source });
        }
        Ok(Run { at, length, source: Source::Zero })
    }

    /// All runs between two bytes.
    pub(crate) async fn runs(&self, start: u64, end: u64) -> Result<Vec<Run>, IoError> {
        let mut runs: Vec<Run> = Vec::new();
        let mut at = start;
        while at < end {
            let run = self.run_at(at, end - at).await?;
            at += run.length;
            match runs.last_mut() {
                Some(last) if continues(last, run.source) => last.length += run.length,
                _ => runs.push(run),
            }
        }
        Ok(runs)
    }
}

fn continues(last: &Run, source: Source) -> bool {
    match (last.source, source) {
        (Source::Own(start), Source::Own(here)) => start + last.length == here,
        (Source::Device(number, start), Source::Device(other, here)) => {
            number == other && start + last.length == here
        }
        (last, here) => last == here,
    }
}
