//! `varve image convert`: the content of an image in a new one; what is zeros takes no space there.

use super::super::consent;
use super::super::disks::on_shard;
use super::chain::open_chain;
use super::create::bytes;
use super::failure::failed;
use super::target::Target;
use crate::answer::Answer;
use crate::grammar::{ImageConvertOptions, ImageFormat};
use crate::progress::Bar;
use crate::units;
use serde::Serialize;
use std::rc::Rc;
use std::sync::Arc;
use varve_api::{Failure, Plan};
use varve_block::{Access, Allocation, Device, Durability, Extent, GIB, IoError, MIB, ZeroOptions, is_zero};
use varve_image::Selected;
use varve_os::{DiskFile, ShardContext};
use varve_target::qcow2::{Image, ImageDevice, NewImage, OpenError, Options, create};

/// Bytes copied at once.
pub(super) const PIECE: u64 = 2 * MIB;
/// Bytes of a device made zeros at once.
const EMPTIED: u64 = GIB;

/// What was copied.
#[derive(Serialize)]
struct Converted {
    virtual_bytes: u64,
    written_bytes: u64,
}

/// Copies an image into another one.
pub(super) fn convert(options: ImageConvertOptions, json: bool) -> Result<Answer, Failure> {
    let ImageConvertOptions { format, snapshot, destroy, target: path, .. } = options;
    let source = Selected { path: options.source, format: format.into(), snapshot };
    let cluster_size = bytes(&options.cluster_size)?;
    let size = size_of(&source)?;
    let (format, new) = (options.output_format, NewImage { cluster_size, ..NewImage::new(size) });
    let length = match format {
        ImageFormat::Raw => size,
        ImageFormat::Qcow2 => new.room().map_err(|error| failed(&path, &error))?,
    };
    let target = Target::at(&path, length)?;
    let copy_step =
        format!("would copy {}, {}, to {}", source.path.display(), units::size(size), path.display());
    let steps: Vec<String> = target.loss().into_iter().chain([copy_step]).collect();
    size_of(&source)?; // TARGET2: what would be replaced is locked now.
    if destroy.dry_run {
        return Ok(Answer::planned(&Plan::of_steps(steps)));
    }
    if target.loss().is_some() {
        let what = format!("image convert to {}", path.display());
        consent(&what, &Plan::of_steps(steps), destroy, json)?;
    }
    let file = target.open(length)?;
    let bar = (!json).then(|| Bar::new_of("convert", &source.path.display().to_string(), size));
    let (shown, emptied) = (path.clone(), target.is_device().then_some(length));
    let work = async move |context: ShardContext| {
        let layers = open_chain(&context, source).await?;
        let emptied = empty(&context, &file, emptied).await;
        let copied = match emptied {
            Ok(()) => copy(&context, &layers[0].device, &file, (format, &new), bar.as_ref()).await,
            Err(error) => Err(error.into()),
        };
        copied.map_err(|error| failed(&shown, &error))
    };
    let done = on_shard(work).and_then(|done| done);
    let (written_bytes, end) = done.inspect_err(|_| target.abandon())?;
    target.finish(end).inspect_err(|_| target.abandon())?;
    let text = format!(
        "converted {}: {}, {} of it data",
        path.display(),
        units::size(size),
        units::size(written_bytes)
    );
    Ok(Answer::new(&Converted { virtual_bytes: size, written_bytes }, text))
}

/// Bytes of the disk that an image holds, which can be read with all that is below it.
fn size_of(source: &Selected) -> Result<u64, Failure> {
    let source = source.clone();
    on_shard(async move |context| {
        open_chain(&context, source).await.map(|layers| layers[0].device.shape().size)
    })?
}

/// Makes zeros of the first `length` bytes of a device, if it is one.
async fn empty(context: &ShardContext, file: &Arc<DiskFile>, length: Option<u64>) -> Result<(), IoError> {
    let Some(length) = length else { return Ok(()) };
    let options = ZeroOptions { unmap: true, ..ZeroOptions::default() };
    let device = context.disk(file);
    for (_, piece) in Extent::new(0, length).pieces(EMPTIED) {
        device.zero(piece, options).await?;
    }
    Ok(())
}

/// Copies `source` into `file`; how many bytes were written, and where the file ends.
async fn copy(
    context: &ShardContext,
    source: &Device,
    file: &Arc<DiskFile>,
    (format, new): (ImageFormat, &NewImage),
    bar: Option<&Bar>,
) -> Result<(u64, u64), OpenError> {
    let device = context.disk(file);
    if format == ImageFormat::Raw {
        let written = copy_data(context, source, &device, bar).await?;
        device.flush().await?;
        return Ok((written, device.shape().size));
    }
    let end = create(device.clone(), context.arena(), new).await?;
    let options = Options { access: Access::ReadWrite, file_end: Some(end), ..Options::default() };
    let image = Rc::new(Image::open(device, context.arena(), options).await?);
    let target = Device::new(ImageDevice::new(Rc::clone(&image)));
    let written = copy_data(context, source, &target, bar).await?;
    image.close().await?;
    Ok((written, image.end().await?))
}

async fn copy_data(
    context: &ShardContext,
    source: &Device,
    target: &Device,
    bar: Option<&Bar>,
) -> Result<u64, IoError> {
    let size = source.shape().size;
    let (mut at, mut written) = (0, 0);
    while at < size {
        let status = source.status(Extent::new(at, size - at)).await?;
        for run in status {
            let extent = Extent::new(at, run.length);
            at = extent.end();
            if run.allocation == Allocation::Data {
                for (_, piece) in extent.pieces(PIECE) {
                    written += copy_piece(context, source, target, piece).await?;
                    bar.into_iter().for_each(|bar| bar.move_to(piece.end()));
                }
            }
            bar.into_iter().for_each(|bar| bar.move_to(at));
        }
    }
    Ok(written)
}

/// Copies what of a piece is not zeros; how many bytes that were.
pub(super) async fn copy_piece(
    context: &ShardContext,
    source: &Device,
    target: &Device,
    piece: Extent,
) -> Result<u64, IoError> {
    let index = |length: u64| usize::try_from(length).expect("a piece is in memory");
    let read = source.read(piece.offset, context.arena().take(index(piece.length))).await?;
    let (data, mut written) = (read.freeze(), 0);
    // Runs of 4 KiB that are not zeros, as long as they follow each other.
    let mut start = None;
    let parts = data.len().div_ceil(PART);
    for part in 0..=parts {
        let end = (part * PART).min(data.len());
        let zero = part == parts || is_zero(&data[end..data.len().min(end + PART)]);
        match (start, zero) {
            (None, false) => start = Some(end),
            (Some(first), true) => {
                let run = data.slice(first, end - first);
                written += run.len() as u64;
                target.write(piece.offset + first as u64, run, Durability::Volatile).await?;
                start = None;
            }
            _ => {}
        }
    }
    Ok(written)
}

/// Bytes of the unit that is left out if it is zeros.
const PART: usize = 4096;
