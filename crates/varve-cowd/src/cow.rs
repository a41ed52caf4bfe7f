//! A mapper of an image, as the protocol's library calls it.

use crate::files;
use crate::open_image::{OpenImage, refuse_unfit};
use crate::pending::Pending;
use crate::scratch::Scratch;
use futures_executor::block_on;
use std::io;
use std::path::{Path, PathBuf};
use varve_block::{align_down, align_up};
use varve_mapper::wire::{self, Access, EXTENTS_MAX, Extent, Hello, Intent, Welcome};
use varve_mapper::{Mapper, Session};

/// The most extents that are sent before they are asked for.
const PRIMED_MAX: usize = 1 << 16;
/// Bytes of a block of the volumes that Varve maps.
const BLOCK_SIZE: u64 = 4096;

/// What a mapper of an image is to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The image.
    pub path: PathBuf,
    /// Whether an engine receives at once where the image's data is.
    pub primes: bool,
    /// Answers to reads reach at least so many bytes further than what was asked.
    pub read_ahead: u64,
    /// Bytes of the image's tables kept in memory.
    pub cache_bytes: u64,
}

impl Settings {
    /// Of the image at `path`; nothing is sent unasked, and the cache has 4 MiB.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), primes: false, read_ahead: 0, cache_bytes: 4 << 20 }
    }
}

/// Maps a volume by an image. The image is open from the first connection to the end of one with nothing that was not flushed.
pub struct Cow {
    settings: Settings,
    open: Option<OpenImage>,
}

impl Cow {
    /// Maps by the image that the settings name. It is opened when an engine connects.
    pub fn new(settings: Settings) -> Self {
        Self { settings, open: None }
    }

    /// Refuses an image that could serve no volume; it is left as it is.
    pub fn check(&self) -> io::Result<()> {
        self.refuse_unfit(0, BLOCK_SIZE)
    }

    /// Refuses an image that cannot serve a volume of `size` bytes in such blocks, before anything of it is changed.
    fn refuse_unfit(&self, size: u64, block_size: u64) -> io::Result<()> {
        let path = &self.settings.path;
        let files = files::open(path, self.settings.cache_bytes, varve_block::Access::ReadOnly);
        refuse_unfit(&files.map_err(io::Error::other)?.chain.image, size, block_size)
    }

    /// The engine is gone. If it left nothing that was not flushed, the image is closed, and its file as long as it has to be.
    pub fn disconnected(&mut self) -> io::Result<()> {
        let Some(open) = self.open.take_if(|open| open.pending.is_empty()) else { return Ok(()) };
        files::close(&self.settings.path, &open.files.chain.image)
    }

    fn opened(&mut self) -> &mut OpenImage {
        self.open.as_mut().expect("an engine said hello")
    }

    fn open(&mut self, hello: &Hello) -> io::Result<()> {
        let (path, cache_bytes) = (&self.settings.path, self.settings.cache_bytes);
        let files = files::open(path, cache_bytes, varve_block::Access::ReadWrite);
        let files = files.map_err(io::Error::other)?;
        let cluster_size = files.chain.image.header().cluster_size();
        let folder = self.settings.path.parent().unwrap_or(Path::new(""));
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let scratch = Scratch::new(folder, align_up(files.chain.image.size(), cluster_size))?;
        let (size, block_size) = (hello.size, u64::from(hello.block_size));
        let pending = Pending::default();
        self.open = Some(OpenImage { files, scratch, size, block_size, cluster_size, pending });
        Ok(())
    }
}

impl Mapper for Cow {
    fn hello(&mut self, hello: &Hello, session: &Session) -> io::Result<Welcome> {
        let (size, block_size) = (hello.size, u64::from(hello.block_size));
        match &self.open {
            Some(open) => refuse_unfit(&open.files.chain.image, size, block_size)?,
            None => {
                self.refuse_unfit(size, block_size)?;
                self.open(hello)?;
            }
        }
        let open = self.opened();
        (open.size, open.block_size) = (size, block_size);
        open.pending.set_aside();
        open.register(hello.devices.len(), session)?;
        let trim_unit = u32::try_from(open.cluster_size).expect("a cluster has at most 2 MiB");
        Ok(Welcome { is_persistent: true, keeps_answers: true, trim_unit })
    }

    fn welcomed(&mut self, session: &Session) -> io::Result<()> {
        if !self.settings.primes {
            return Ok(());
        }
        let open = self.opened();
        let mut at = 0;
        let mut told = 0;
        while at < open.size && told < PRIMED_MAX {
            let extents = block_on(open.map_reads(at, open.size, EXTENTS_MAX)).map_err(io::Error::other)?;
            at = extents.last().and_then(Extent::end).unwrap_or(open.size);
            told += extents.len();
            session.prime(&extents)?;
        }
        Ok(())
    }

    fn held(&mut self, extents: &[Extent]) {
        let open = self.opened();
        if let Err(error) = block_on(open.held(extents)) {
            tracing::error!(image = %self.settings.path.display(), %error, "what was not flushed is lost");
        }
    }

    fn map(&mut self, offset: u64, length: u64, intent: Intent) -> Vec<Extent> {
        let ahead = self.settings.read_ahead;
        let open = self.opened();
        let Some(end) = offset.checked_add(length).filter(|end| *end <= open.size && length > 0) else {
            return Vec::new();
        };
        let answer = match intent {
            Intent::Read => {
                let start = align_down(offset, open.block_size);
                let end = align_up(end.saturating_add(ahead).min(open.size), open.block_size).min(open.size);
                block_on(open.map_reads(start, end, EXTENTS_MAX))
            }
            Intent::Write => block_on(open.map_writes(offset, end)),
        };
        answer.unwrap_or_else(|error| {
            tracing::error!(image = %self.settings.path.display(), offset, %error, "a range cannot be mapped");
            vec![Extent {
                once: true,
                access: Access::BOTH,
                ..Extent::new(offset, length, wire::Place::Error)
            }]
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        block_on(self.opened().flush()).map_err(io::Error::other)
    }

    fn trim(&mut self, offset: u64, length: u64) -> io::Result<()> {
        block_on(self.opened().trim(offset, length)).map_err(io::Error::other)
    }

    fn failed(&mut self, offset: u64, length: u64) {
        let open = self.opened();
        let size = open.cluster_size;
        let (first, end) = (align_down(offset, size), offset.saturating_add(length).min(open.size));
        (first..end).step_by(step(size)).for_each(|at| open.pending.failed(at));
    }
}

fn step(cluster_size: u64) -> usize {
    usize::try_from(cluster_size).expect("a cluster has at most 2 MiB")
}
