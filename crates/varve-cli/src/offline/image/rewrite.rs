//! `varve image commit` and `flatten`: what an image holds put into the image below it, or the other way round, so that one of them is
//! needed no more. Interrupted anywhere, the image shows what it did, and the command can be given again.

use super::super::disks::{on_shard, unusable};
use super::chain::{backing_of, device_of, open_chain, open_file, open_to_write};
use super::convert::PIECE;
use super::failure::failed;
use crate::answer::Answer;
use crate::grammar::Change;
use crate::progress::Bar;
use crate::units;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use varve_api::{Code, Failure, Plan};
use varve_block::{Access, Device, Durability, Extent, IoError, KIB, ZeroOptions};
use varve_image::{Format, Selected};
use varve_os::{DiskFile, ShardContext};
use varve_target::qcow2::{
    Image, ImageDevice, Mapping, NewImage, OpenError, Options, check_to_write, read_header, room,
};

/// What was copied.
#[derive(Serialize)]
struct Copied {
    written_bytes: u64,
}

/// An image that is written.
struct Writable {
    path: PathBuf,
    file: Arc<DiskFile>,
    /// None of a raw image.
    image: Option<Rc<Image>>,
    device: Device,
    /// Bytes that the file has at the end, if it is raw.
    length: u64,
}

impl Writable {
    /// Opens an image, backed by `below`, so that no other program uses it, and makes its disk at least as large as `size`.
    async fn open(
        context: &ShardContext,
        Selected { path, format, .. }: Selected,
        below: Option<Device>,
        size: u64,
    ) -> Result<Self, Failure> {
        let file = open_to_write(&path)?;
        let before = file.length();
        let length = before.max(size);
        let as_it_is = device_of(context, &file)?;
        let set_length = |bytes| file.set_length(bytes).map_err(|error| unusable(&error));
        if format == Format::Raw {
            set_length(length.next_multiple_of(4 * KIB))?; // Whole sectors, until the end.
            return Ok(Self { device: context.disk(&file), image: None, path, file, length });
        }
        let failed = |error| failed(&path, &error);
        check_to_write(as_it_is.clone(), context.arena(), before).await.map_err(failed)?;
        let mut header = read_header(as_it_is, context.arena()).await.map_err(failed)?;
        header.size = header.size.max(size);
        set_length(room(&header, before).max(before))?;
        let file_end = Some(before);
        let options = Options { access: Access::ReadWrite, backing: below, file_end, ..Options::default() };
        let mut image = Image::open(context.disk(&file), context.arena(), options).await.map_err(failed)?;
        let grown = image.grow(size).await.map_err(failed);
        let image = Rc::new(image);
        let device = Device::new(ImageDevice::new(Rc::clone(&image)));
        let opened = Self { path: path.clone(), file, image: Some(image), device, length };
        match grown {
            Ok(()) => Ok(opened),
            Err(failure) => opened.close().await.and(Err(failure)),
        }
    }

    /// Refuses what [`Writable::open`] refuses, and changes nothing.
    async fn check(context: &ShardContext, selected: &Selected, size: u64) -> Result<(), Failure> {
        let failed = |error| failed(&selected.path, &error);
        let file = open_to_write(&selected.path)?;
        if selected.format == Format::Raw {
            return Ok(());
        }
        let device = device_of(context, &file)?;
        check_to_write(device.clone(), context.arena(), file.length()).await.map_err(failed)?;
        let header = read_header(device, context.arena()).await.map_err(failed)?;
        if size > header.size {
            NewImage { cluster_size: header.cluster_size(), ..NewImage::new(size) }.room().map_err(failed)?;
        }
        Ok(())
    }

    /// Makes it durable, and lets its file end where it does.
    async fn close(&self) -> Result<(), Failure> {
        let failed = |error| failed(&self.path, &OpenError::Io(error));
        let length = match &self.image {
            None => {
                self.device.flush().await.map_err(failed)?;
                self.length
            }
            Some(image) => {
                image.close().await.map_err(failed)?;
                image.end().await.map_err(failed)?
            }
        };
        self.file.set_length(length).map_err(|error| unusable(&error))
    }
}

/// Writes what an image holds into the image below it. The image itself stays as it is.
pub(super) fn commit(path: &Path, change: Change, json: bool) -> Result<Answer, Failure> {
    let top = Selected::new(path.to_owned(), Format::Qcow2);
    let shown = path.display().to_string();
    let done = on_shard(async move |context| {
        let file = open_file(&top.path)?;
        let device = device_of(&context, &file)?;
        let Some(below) = backing_of(&context, &top, &device).await? else {
            return Err(over_nothing(&top.path));
        };
        let failed = |error| failed(&top.path, &error);
        let options = Options { file_end: Some(file.length()), ..Options::default() };
        let image = Image::open(device, context.arena(), options).await.map_err(failed)?;
        let (name, size) = (below.path.display().to_string(), image.size());
        let below_that = below_of(&context, &below).await?;
        if change.dry_run {
            Writable::check(&context, &below, size).await?;
            return Ok((None, name));
        }
        let target = Writable::open(&context, below, below_that, size).await?;
        let bar = (!json).then(|| Bar::new_of("commit", &top.path.display().to_string(), size));
        let written = put_down(&context, &top.path, &Rc::new(image), &target, bar.as_ref()).await?;
        target.close().await?;
        Ok((Some(written), name))
    })??;
    let (Some(written_bytes), below) = done else {
        let other = format!("would leave other images over {} of no use", done.1);
        return Ok(Answer::planned(&Plan::of_steps(vec![
            format!("would write what {shown} holds into {}", done.1),
            other,
        ])));
    };
    let text = format!(
        "committed {shown}: {} are in {below} now; {shown} is needed no more, and other images over {below} are not to be used",
        units::size(written_bytes)
    );
    Ok(Answer::new(&Copied { written_bytes }, text))
}

/// What is below an image, as a device.
async fn below_of(context: &ShardContext, selected: &Selected) -> Result<Option<Device>, Failure> {
    let device = device_of(context, &open_file(&selected.path)?)?;
    match backing_of(context, selected, &device).await? {
        None => Ok(None),
        Some(below) => Ok(Some(open_chain(context, below).await?[0].device.clone())),
    }
}

fn over_nothing(path: &Path) -> Failure {
    Failure::new(Code::Usage, format!("{} has no backing image", path.display()))
        .help(format!("varve image info {}", path.display()))
}

/// Writes what the image `source` itself holds, zeros included.
async fn put_down(
    context: &ShardContext,
    path: &Path,
    image: &Rc<Image>,
    target: &Writable,
    bar: Option<&Bar>,
) -> Result<u64, Failure> {
    let below = |error| failed(&target.path, &OpenError::Io(error));
    let source = Device::new(ImageDevice::new(Rc::clone(image)));
    let (size, mut at, mut written) = (image.size(), 0, 0);
    while at < size {
        let here = image.lookup(at, size - at).await.map_err(|error| failed(path, &OpenError::Io(error)))?;
        let extent = Extent::new(at, here.length);
        at = extent.end();
        match here.mapping {
            Mapping::Unallocated => {}
            Mapping::Zero => {
                let options = ZeroOptions { unmap: true, ..ZeroOptions::default() };
                target.device.zero(extent, options).await.map(drop).map_err(below)?;
            }
            Mapping::Data { .. } | Mapping::Compressed { .. } => {
                for (_, piece) in extent.pieces(PIECE) {
                    // Zeros, too: they stand over what is below.
                    let buffer =
                        context.arena().take(usize::try_from(piece.length).expect("a piece is in memory"));
                    let read = source.read(piece.offset, buffer).await;
                    let read = read.map_err(|error| failed(path, &OpenError::Io(error)))?;
                    let write = target.device.write(piece.offset, read.freeze(), Durability::Volatile);
                    write.await.map(drop).map_err(below)?;
                    written += piece.length;
                }
            }
        }
        bar.into_iter().for_each(|bar| bar.move_to(at));
    }
    Ok(written)
}

/// Copies what an image shows of those below it into it, so that it needs them no more.
pub(super) fn flatten(path: &Path, change: Change, json: bool) -> Result<Answer, Failure> {
    let top = Selected::new(path.to_owned(), Format::Qcow2);
    let written_bytes = on_shard(async move |context| {
        let Some(below) = below_of(&context, &top).await? else { return Err(over_nothing(&top.path)) };
        let path = top.path.clone();
        let header = read_header(device_of(&context, &open_file(&path)?)?, context.arena()).await;
        if header.map_err(|error| failed(&path, &error))?.snapshots > 0 {
            let message = format!("{} has internal snapshots, which need what lies below it", path.display());
            return Err(Failure::new(Code::Usage, message).help(
                "varve image convert --snapshot SNAPSHOT copies one; qemu-img snapshot -d removes it",
            ));
        }
        if change.dry_run {
            Writable::check(&context, &top, 0).await?;
            return Ok(None);
        }
        let target = Writable::open(&context, top, Some(below), 0).await?;
        let image = target.image.as_ref().expect("only a qcow2 image has a backing image");
        let bar = (!json).then(|| Bar::new_of("flatten", &path.display().to_string(), image.size()));
        let copied = pull_up(image, bar.as_ref()).await;
        let written = copied.map_err(|error| failed(&path, &OpenError::Io(error)))?;
        image.forget_backing().await.map_err(|error| failed(&path, &OpenError::Io(error)))?;
        target.close().await?;
        Ok(Some(written))
    })??;
    let Some(written_bytes) = written_bytes else {
        let shown = path.display();
        return Ok(Answer::planned(&Plan::of_steps(vec![format!(
            "would copy what {shown} shows of its backing image into it"
        )])));
    };
    let text = format!(
        "flattened {}: it has no backing image any more; {} were copied",
        path.display(),
        units::size(written_bytes)
    );
    Ok(Answer::new(&Copied { written_bytes }, text))
}

/// Copies what `image` does not hold itself.
async fn pull_up(image: &Image, bar: Option<&Bar>) -> Result<u64, IoError> {
    let (mut at, mut written) = (0, 0);
    while at < image.size() {
        let pulled = image.pull(at).await?;
        (at, written) = (at + pulled.length, written + pulled.copied);
        bar.into_iter().for_each(|bar| bar.move_to(at));
    }
    Ok(written)
}
