//! Images as commands open them: files that are not written meanwhile, on a shard's rings.

use super::super::disks::unusable;
use super::failure::failed;
use std::path::Path;
use std::sync::Arc;
use varve_api::{Code, Failure};
use varve_block::Device;
use varve_image::{ChainError, Layer, Selected};
use varve_os::{CacheMode, DiskFile, DiskOptions, ShardContext};
use varve_target::Padded;

/// Opens a file to read, so that it is not written meanwhile.
pub(super) fn open_file(path: &Path) -> Result<Arc<DiskFile>, Failure> {
    let options = DiskOptions { read_only: true, cache: CacheMode::Buffered, ..DiskOptions::default() };
    let file = DiskFile::open(path, options).map_err(|error| unusable(&error))?;
    file.keep_unwritten().map_err(|error| unusable(&error))?;
    Ok(file)
}

/// The bytes of a file, in sectors; zeros follow its end.
pub(super) fn device_of(context: &ShardContext, file: &Arc<DiskFile>) -> Result<Device, Failure> {
    let tail = file.tail().map_err(|error| unusable(&error))?.into();
    Ok(Device::new(Padded::new(context.disk(file), tail, 512)))
}

/// Opens `selected` and what lies below it: the image itself first.
pub(super) async fn open_chain(context: &ShardContext, selected: Selected) -> Result<Vec<Layer>, Failure> {
    let mut open = |path: &Path| {
        let file = open_file(path)?;
        Ok((device_of(context, &file)?, file.length()))
    };
    varve_image::open_chain(&mut open, &context.arena(), selected).await.map_err(refused)
}

/// What an image says lies below it.
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
        ChainError::Endless(_) | ChainError::Backing { .. } => {
            Failure::new(Code::FileUnusable, error.to_string())
        }
    }
}
