//! What else gives out space as it is written and shares it after a snapshot: qcow2, and a reflinked file on XFS; both
//! behind qemu-nbd, and beside them a raw file written in full, which is to them what the linear volume is to ours.

use crate::prelude::*;
use crate::programs::fio::Endpoint;
use crate::programs::mounted::{MOUNT, Mounted, run};
use crate::programs::peers::{Cache, Peer};
use crate::programs::server::Server;
use std::fs::{self, File};

/// In which state the thin volume is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Never written.
    Fresh,
    /// Written in full.
    Written,
    /// Written in full, and then a snapshot was taken.
    Snapshot,
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Fresh => "fresh space",
            State::Written => "written before",
            State::Snapshot => "after a snapshot",
        }
    }
}

/// What makes a filesystem whose files can be reflinked.
const MKFS: [&str; 5] = ["mkfs.xfs", "-q", "-f", "-m", "reflink=1"];
/// Bytes that XFS wants for itself.
const XFS_OVERHEAD: u64 = 512 << 20;

/// What is measured beside Varve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rival {
    /// A raw file, written in full: the thick one of the others.
    Raw,
    /// A qcow2 file, with an internal snapshot.
    Qcow2,
    /// A sparse file on XFS, and a reflinked copy of it.
    Reflink,
}

impl Rival {
    /// All of them.
    pub(crate) const ALL: [Rival; 3] = [Rival::Raw, Rival::Qcow2, Rival::Reflink];

    /// Its name in the results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Rival::Raw => "raw file",
            Rival::Qcow2 => "qcow2",
            Rival::Reflink => "reflinked file on XFS",
        }
    }
}

/// The files of the rivals on one medium.
pub(crate) struct Rivals {
    directory: PathBuf,
    cache: Cache,
    region: u64,
    raw: PathBuf,
    /// Where XFS is mounted, or why it is not.
    xfs: Outcome<Mounted>,
}

impl Rivals {
    /// Bytes of a medium that they need for a region of so many.
    pub(crate) fn need(region: u64) -> u64 {
        7 * region + XFS_OVERHEAD
    }

    /// Makes the files that stay.
    pub(crate) fn new(place: &Place, medium: Medium, region: u64) -> Outcome<Self> {
        let raw = place.file("raw", region)?;
        let image = place.file("xfs.image", 3 * region + XFS_OVERHEAD)?;
        let xfs = Mounted::new(&image, &place.path().join(MOUNT), &MKFS, medium.cache() == Cache::Direct);
        if let Err(Failed(reason)) = &xfs {
            eprintln!("thin volumes, {}: no reflinked files: {reason}", medium.name());
        }
        Ok(Self { directory: place.path().to_owned(), cache: medium.cache(), region, raw, xfs })
    }

    /// Brings `rival` into `state` with the help of `fill` and serves it; ended when the server is dropped.
    pub(crate) fn start(
        &self,
        rival: Rival,
        state: State,
        fill: impl Fn(&Endpoint) -> Outcome<()>,
    ) -> Outcome<(Server, Endpoint)> {
        let file = match rival {
            Rival::Raw => return self.serve(&self.raw, "raw"),
            Rival::Qcow2 => self.directory.join("file.qcow2"),
            Rival::Reflink => self.xfs.as_ref().map_err(Clone::clone)?.path.join("file"),
        };
        let format = self.make_empty(rival, &file)?;
        if state != State::Fresh {
            let (server, endpoint) = self.serve(&file, format)?;
            fill(&endpoint)?;
            server.stop()?;
        }
        if state == State::Snapshot {
            take_snapshot(rival, &file)?;
        }
        self.serve(&file, format)
    }

    /// A file that holds nothing and takes nothing, in place of the last one; its format.
    fn make_empty(&self, rival: Rival, file: &Path) -> Outcome<&'static str> {
        let complain = |error: std::io::Error| format!("{}: {error}", file.display());
        for old in [file.to_owned(), copy_of(file)] {
            if old.exists() {
                fs::remove_file(old).map_err(complain)?;
            }
        }
        if rival == Rival::Qcow2 {
            let size = self.region.to_string();
            run("qemu-img", &["create", "-q", "-f", "qcow2", &file.to_string_lossy(), &size])?;
            return Ok("qcow2");
        }
        File::create(file).and_then(|file| file.set_len(self.region)).map_err(complain)?;
        Ok("raw")
    }

    fn serve(&self, file: &Path, format: &str) -> Outcome<(Server, Endpoint)> {
        Peer::QemuNbd.start_in(self.cache, file, format, &self.directory)
    }
}

fn copy_of(file: &Path) -> PathBuf {
    file.with_extension("snapshot")
}

fn take_snapshot(rival: Rival, file: &Path) -> Outcome<()> {
    let (name, copy) = (file.to_string_lossy(), copy_of(file));
    match rival {
        Rival::Qcow2 => run("qemu-img", &["snapshot", "-c", "before", &name]),
        _ => run("cp", &["--reflink=always", &name, &copy.to_string_lossy()]),
    }
}
