//! Images as commands open them: files that are not written meanwhile, on a shard's rings.

use super::super::disks::unusable;
use super::failure::failed;
use crate::grammar::Sharing;
use std::path::Path;
use std::sync::Arc;
use varve_api::{Code, Failure};
use varve_block::Device;
use varve_image::{ChainError, Layer, Selected};
use varve_os::{CacheMode, DiskFile, DiskOptions, ShardContext};
use varve_target::Padded;

/// Opens a file to read, so that it is not written meanwhile.
pub(super) fn open_file(path: &Path) -> Result<Arc<DiskFile>, Failure> {
    open_shared(path, Sharing::default())
}

/// Opens a file to read, which is not written meanwhile unless that is to be borne.
pub(super) fn open_shared(path: &Path, sharing: Sharing) -> Result<Arc<DiskFile>, Failure> {
    let (cache, unlocked) = (CacheMode::Buffered, sharing.force_share);
    let options = DiskOptions { read_only: true, cache, unlocked, ..DiskOptions::default() };
    let file = DiskFile::open(path, options).map_err(|error| unusable(&error))?;
    if !unlocked {
        file.keep_unwritten().map_err(|error| unusable(&error))?;
    }
    Ok(file)
}

/// The bytes of a file, in sectors; zeros follow its end.
pub(super) fn device_of(context: &ShardContext, file: &Arc<DiskFile>) -> Result<Device, Failure> {
    let tail = file.tail().map_err(|error| unusable(&error))?.into();
    Ok(Device::new(Padded::new(context.disk(file), tail, 512)))
}

/// Opens a file that no other program uses.
pub(super) fn open_to_write(path: &Path) -> Result<Arc<DiskFile>, Failure> {
    open_exclusive(path, DiskOptions::default())
}

/// Makes a sparse file of `size` bytes, which no other program writes.
pub(super) fn new_file(path: &Path, size: u64) -> Result<Arc<DiskFile>, Failure> {
    open_exclusive(path, DiskOptions::create(size))
}

fn open_exclusive(path: &Path, options: DiskOptions) -> Result<Arc<DiskFile>, Failure> {
    let options = DiskOptions { cache: CacheMode::Buffered, ..options };
    let file = DiskFile::open(path, options).map_err(|error| unusable(&error))?;
    file.keep_for_writing().map_err(|error| unusable(&error))?;
    Ok(file)
}

/// Opens `selected` and what is below it: the image itself first.
pub(super) async fn open_chain(context: &ShardContext, selected: Selected) -> Result<Vec<Layer>, Failure> {
    open_shared_chain(context, selected, Sharing::default()).await
}

/// The same, of files that may be written meanwhile if that is to be borne.
pub(super) async fn open_shared_chain(
    context: &ShardContext,
    selected: Selected,
    sharing: Sharing,
) -> Result<Vec<Layer>, Failure> {
    let mut open = |path: &Path| {
        let file = open_shared(path, sharing)?;
        Ok((device_of(context, &file)?, file.length()))
    };
    varve_image::open_chain(&mut open, &context.arena(), selected).await.map_err(refused)
}

/// What an image says is below it.
pub(super) async fn backing_of(
    context: &ShardContext,
    selected: &Selected,
    device: &Device,
) -> Result<Option<Selected>, Failure> {
    varve_image::backing_of(&context.arena(), selected, device).await.map_err(refused)
}

fn refused(error: ChainError<Failure>) -> Failure {
    match error {
        ChainError::File(failure) => failure,
        ChainError::Image { path, error } => failed(&path, &error),
        ChainError::Backing { path, error } => {
            let message = format!("{}: {error}", path.display());
            Failure::new(Code::FileUnusable, message).help(error.remedy(&path))
        }
        ChainError::Endless(_) => Failure::new(Code::FileUnusable, error.to_string()),
    }
}
