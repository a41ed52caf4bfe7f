//! Disks that begin as copies of one image, or over it: made anew for each run, so that whatever is written there is written
//! for the first time.

use crate::prelude::*;
use crate::programs::cpu::Meter;
use crate::programs::mounted::run;
use crate::programs::peers::{Cache, Peer};
use crate::programs::server::Server;
use crate::programs::varve::{Varve, uri};
use std::cell::RefCell;
use std::fs;

/// Where all is: in memory, since the noise of a disk is far above what is asked for.
pub(crate) const MEDIUM: Medium = Medium::Memory;
/// The volume of every run; the pool of the thin ones.
pub(crate) const VOLUME: &str = "disk";
const POOL: &str = "pool";
/// Bytes of the pool: what is written to the disk in a run, and metadata.
const POOL_BYTES: u64 = 256 << 20;
/// What a physical volume needs beside its volumes.
const GROUP_OVERHEAD: u64 = 64 << 20;

/// What is backed by the image, or is a copy of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Disk {
    /// A linear volume with a copy.
    Linear,
    /// A thin volume over the image as it is.
    ThinOverRaw,
    /// A thin volume over the image as qcow2.
    ThinOverQcow2,
    /// A volume that is a qcow2 image over the image.
    Image,
    /// A volume that varve-cowd maps by a qcow2 image over the image, telling no more than it is asked.
    Cowd,
    /// The same, whose answers to reads reach further than what was asked.
    CowdAhead,
    /// The same; it receives all that is known as soon as it connects.
    CowdPrimed,
    /// A copy behind qemu-nbd.
    QemuRaw,
    /// A qcow2 image over the image, behind qemu-nbd.
    QemuOverlay,
}

impl Disk {
    /// Its name, and what it is compared with.
    fn names(self) -> (&'static str, Option<Disk>) {
        match self {
            Disk::Linear => ("linear volume", None),
            Disk::ThinOverRaw => ("thin volume over a raw image", Some(Disk::Linear)),
            Disk::ThinOverQcow2 => ("thin volume over a qcow2 image", Some(Disk::Linear)),
            Disk::Image => ("qcow2 overlay as a volume", Some(Disk::Linear)),
            Disk::Cowd => ("qcow2 overlay, varve-cowd", Some(Disk::Linear)),
            Disk::CowdAhead => ("qcow2 overlay, varve-cowd, mappings read ahead", Some(Disk::Linear)),
            Disk::CowdPrimed => ("qcow2 overlay, varve-cowd, primed", Some(Disk::Linear)),
            Disk::QemuRaw => ("qemu-nbd, raw file", None),
            Disk::QemuOverlay => ("qemu-nbd, qcow2 overlay", Some(Disk::QemuRaw)),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.names().0
    }

    /// The options of varve-cowd, where that is what maps it.
    pub(crate) fn cowd_options(self) -> Option<&'static [&'static str]> {
        match self {
            Disk::Cowd => Some(&["--read-ahead", "0"]),
            Disk::CowdAhead => Some(&["--read-ahead", "1M"]),
            Disk::CowdPrimed => Some(&["--read-ahead", "0", "--prime"]),
            _ => None,
        }
    }

    /// Puts down one more round, or why there is none; `goal` is how many times the seconds of a raw disk one of ours may take.
    pub(crate) fn record(self, part: &mut Part, goal: f64, outcome: &Outcome<Taken>) {
        let figures: [Figure; 3] = [
            ("time", "s", |taken| taken.seconds),
            ("CPU", "ms", |taken| taken.server_cpu_seconds * 1e3),
            ("requests", "requests", |taken| taken.requests as f64),
        ];
        let (name, raw) = self.names();
        for (column, unit, figure) in figures {
            let record = part.at(name, column, unit);
            record.over = raw.iter().map(|raw| raw.name().to_owned()).collect();
            record.outcome(outcome.clone().map(figure));
        }
        let is_ours = raw == Some(Disk::Linear);
        part.at(name, "time", "s").goal(is_ours.then_some(Goal::AtMost(goal)));
    }
}

/// A column, its unit, and its part of what a run took.
type Figure = (&'static str, &'static str, fn(Taken) -> f64);

/// What one run took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// From the beginning to the end.
    pub(crate) seconds: f64,
    /// For which the server's threads ran.
    pub(crate) server_cpu_seconds: f64,
    /// Reads, writes and flushes that reached the server, or left the guest.
    pub(crate) requests: u64,
}

/// A part without figures.
pub(crate) fn part(work: &str, about: &str, options: &Options) -> Part {
    let directory = file_system(options.directory(MEDIUM));
    let description = format!("{about}; on {directory}, {} rounds", options.runs());
    Part::new("overlays", format!("{work}: {}", MEDIUM.name()), description)
}

/// The image, what was made of it, and the daemon.
pub(crate) struct Bench {
    pub(crate) place: Place,
    pub(crate) varve: Varve,
    image: PathBuf,
    size: u64,
    cache: Cache,
    /// The program varve-cowd, beside ours, and its process for the present volume.
    cowd: PathBuf,
    mapper: RefCell<Option<Server>>,
}

impl Bench {
    /// Takes the image from `make`, which gets the path where it is to lie; it has at most `size` bytes.
    pub(crate) fn start(
        options: &Options,
        medium: Medium,
        size: u64,
        make: impl FnOnce(&Path) -> Outcome<()>,
    ) -> Outcome<Self> {
        let group = size + POOL_BYTES + GROUP_OVERHEAD;
        let place = Place::new(options.directory(medium), group + 4 * size)?;
        let image = place.path().join("image");
        make(&image)?;
        let size = fs::metadata(&image).of("the image")?.len();
        let file = place.file("disk", group)?;
        // Images are reached as the daemon's disks are by default, and back each other.
        let alike = if medium.cache() == Cache::Buffered { "buffered" } else { "direct" };
        let folder = place.path().to_string_lossy();
        let alike = ["--cache", alike, "--image-dir", &folder];
        let varve = Varve::start_with(&alike, &options.varve(), place.path(), &file, medium.cache())?;
        varve.create_pool(POOL, POOL_BYTES)?;
        let (cowd, mapper) = (options.varve().with_file_name("varve-cowd"), RefCell::default());
        let bench = Self { place, varve, image, size, cache: medium.cache(), cowd, mapper };
        run("qemu-img", &["convert", "-O", "qcow2", &bench.path("image"), &bench.path("image.qcow2")])?;
        Ok(bench)
    }

    fn path(&self, name: &str) -> String {
        self.place.path().join(name).to_string_lossy().into_owned()
    }

    /// Makes the volume, as one of ours, anew; nothing exports it.
    pub(crate) fn make(&self, disk: Disk) -> Outcome<()> {
        let volume = format!("bench/{VOLUME}");
        let create =
            |words: &[&str]| self.varve.call(&[&["lv", "create", &volume], words].concat()).map(drop);
        match disk {
            Disk::ThinOverRaw => create(&["--pool", POOL, "--image", &self.path("image")]),
            Disk::ThinOverQcow2 => {
                create(&["--pool", POOL, "--image", &self.path("image.qcow2"), "--format", "qcow2"])
            }
            Disk::Image => {
                let overlay = self.make_overlay()?;
                create(&["--image", &overlay, "--format", "qcow2"])
            }
            Disk::Cowd | Disk::CowdAhead | Disk::CowdPrimed => {
                let overlay = self.make_overlay()?;
                let socket = self.start_cowd(&overlay, disk.cowd_options().unwrap_or_default())?;
                create(&["--mapper", &format!("unix:{socket}"), "--size", &self.size.to_string()])
            }
            Disk::Linear | Disk::QemuRaw | Disk::QemuOverlay => {
                self.varve.create_volume(VOLUME, self.size)?;
                let socket = self.varve.export(VOLUME)?;
                run("nbdcopy", &["--flush", &self.path("image"), &uri(&socket)])?;
                self.varve.end_export(VOLUME)
            }
        }
    }

    /// Removes what [`Bench::make`] made, together with its export, if there is one.
    pub(crate) fn remove(&self, disk: Disk) -> Outcome<()> {
        if matches!(disk, Disk::ThinOverRaw | Disk::ThinOverQcow2) {
            return self.varve.remove_thin(VOLUME, POOL);
        }
        self.varve.end_export(VOLUME)?;
        self.varve.call(&["lv", "remove", &format!("bench/{VOLUME}"), "--now", "--yes"])?;
        self.mapper.take().map_or(Ok(()), Server::stop)
    }

    /// Starts varve-cowd for the image at `overlay`; its socket.
    fn start_cowd(&self, overlay: &str, options: &[&str]) -> Outcome<String> {
        if !self.cowd.exists() {
            return Err(format!("{} is not built", self.cowd.display()).into());
        }
        let socket = self.path("cowd.sock");
        let words = [&[overlay, "--socket", &socket], options].concat();
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let mut server = Server::start(&self.cowd, &words, &self.place.path().join("cowd.log"))?;
        server.wait_for_socket(Path::new(&socket))?;
        *self.mapper.borrow_mut() = Some(server);
        Ok(socket)
    }

    /// The processes that serve the present volume.
    pub(crate) fn servers(&self) -> Vec<u32> {
        let mapper = self.mapper.borrow();
        [self.varve.pid()].into_iter().chain(mapper.as_ref().map(Server::pid)).collect()
    }

    /// A qcow2 image over the image, in place of the last one.
    fn make_overlay(&self) -> Outcome<String> {
        let overlay = self.path("overlay.qcow2");
        run("qemu-img", &["create", "-q", "-f", "qcow2", "-b", &self.path("image"), "-F", "raw", &overlay])?;
        Ok(overlay)
    }

    /// One of qemu's own; its address.
    pub(crate) fn serve_by_qemu(&self, disk: Disk) -> Outcome<(Server, String)> {
        let (file, format) = match disk {
            Disk::QemuOverlay => (self.make_overlay()?, "qcow2"),
            _ => {
                let copy = self.path("copy");
                fs::copy(&self.image, &copy).of(&copy)?;
                (copy, "raw")
            }
        };
        let (server, _) = Peer::QemuNbd.start_in(self.cache, Path::new(&file), format, self.place.path())?;
        Ok((server, uri(&self.place.path().join("qemu-nbd.sock"))))
    }
}

/// Times `work`, which says how many requests it made, on the servers `pids`.
pub(crate) fn timed(pids: &[u32], work: impl FnOnce() -> Outcome<u64>) -> Outcome<Taken> {
    let meters: Vec<Meter> = pids.iter().map(|pid| Meter::start(*pid)).collect();
    let watch = Watch::start();
    let requests = work()?;
    let seconds = watch.seconds();
    Ok(Taken { seconds, server_cpu_seconds: meters.iter().map(Meter::seconds).sum(), requests })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_mapping_is_asked_for_once() {
        let ways = [Disk::Cowd, Disk::CowdAhead, Disk::CowdPrimed, Disk::Image].map(Disk::cowd_options);
        assert!(ways[0].is_some() && ways[0] != ways[1] && ways[0] != ways[2] && ways[1] != ways[2]);
        assert_eq!(ways[3], None);
    }

    #[test]
    fn each_is_compared_with_its_own_raw_disk_and_only_our_own_have_a_goal() {
        let mut part = Part::default();
        for (disk, seconds) in [
            (Disk::Linear, 10.0),
            (Disk::QemuRaw, 20.0),
            (Disk::ThinOverQcow2, 11.0),
            (Disk::QemuOverlay, 24.0),
        ] {
            disk.record(&mut part, 1.02, &Ok(Taken { seconds, server_cpu_seconds: 0.5, requests: 7 }));
        }
        let judged = |disk: Disk| {
            let record = part.find(disk.name(), "time").expect("recorded");
            (record.goal, part.judged(record).expect("compared").median)
        };
        assert_eq!(judged(Disk::ThinOverQcow2), (Some(Goal::AtMost(1.02)), 1.1));
        assert_eq!((judged(Disk::QemuOverlay), judged(Disk::Linear)), ((None, 1.2), (None, 10.0)));
        Disk::Linear.record(&mut part, 1.02, &Err("no".into()));
        let absent = part.records.iter().filter(|it| it.absent.is_some());
        assert_eq!(absent.map(|it| it.row.as_str()).collect::<Vec<_>>(), [Disk::Linear.name(); 3]);
    }
}
