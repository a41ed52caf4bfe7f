//! Connections to programs of the real host that pass files: each file is looked at before it is used.
//!
//! Invariant FILELINK1: no file that was passed is on an export of this daemon.

use crate::real_disk::RealDisk;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use varve_block::LocalFuture;
use varve_os::{
    CacheMode, ConnectError, DiskFile, FileStream, Peer, ReceivedFiles, ShardContext, descriptor_path,
};
use varve_volume::world::{DiskRef, FileLink, LinkEnd, WithFiles};

/// The export of this daemon on which a path is, if it is on one.
pub(super) type OwnExport = Arc<dyn Fn(&Path) -> Option<PathBuf> + Send + Sync>;

/// A connection of one shard.
struct RealFileLink {
    context: ShardContext,
    own_export: OwnExport,
    /// The socket that it was made to.
    path: PathBuf,
    stream: FileStream,
}

/// Connects to the program that listens at `path`.
pub(super) async fn connect(
    context: ShardContext,
    own_export: OwnExport,
    path: &Path,
) -> Result<Box<dyn FileLink>, ConnectError> {
    let stream = context.connect_files(path).await?;
    Ok(Box::new(RealFileLink { context, own_export, path: path.to_owned(), stream }))
}

impl FileLink for RealFileLink {
    fn peer(&self) -> Peer {
        self.stream.peer()
    }

    fn send(&self, bytes: Vec<u8>) -> LocalFuture<'_, Result<(), LinkEnd>> {
        Box::pin(async move { self.stream.send(&bytes).await.map_err(|_| LinkEnd::Lost) })
    }

    fn receive(&self) -> LocalFuture<'_, Result<WithFiles, LinkEnd>> {
        Box::pin(async {
            let ReceivedFiles { bytes, files: passed } =
                self.stream.receive().await.map_err(|_| LinkEnd::Lost)?;
            if passed.is_empty() {
                return Ok((bytes, Vec::new()));
            }
            let own = Arc::clone(&self.own_export);
            let look = move || passed.into_iter().map(|file| disk(&own, file)).collect::<Result<_, _>>();
            let looked = self.context.blocking_at(self.path.join("passed"), look).await;
            Ok((bytes, looked.map_err(|_| LinkEnd::Lost)??))
        })
    }
}

/// The disk on a file that was passed.
fn disk(own_export: &OwnExport, file: OwnedFd) -> Result<DiskRef, LinkEnd> {
    let path = descriptor_path(&file);
    if let Some(export) = own_export(&path) {
        return Err(LinkEnd::OwnExport(export)); // FILELINK1
    }
    DiskFile::passed(file, CacheMode::Direct).map(RealDisk::on).map_err(LinkEnd::Refused)
}
