//! A copy-on-write overlay: what was never written is in BASE, the rest in OVERLAY, and where stands in OVERLAY.map.
//!
//! `cow SOCKET BASE OVERLAY`, then `varve lv create VG/LV --mapper unix:SOCKET --size SIZE`.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use varve_mapper::wire::{Access, EXTENTS_MAX, Extent, Hello, Intent, Place, Welcome};
use varve_mapper::{Mapper, Session, serve};

const CLUSTER: u64 = 64 << 10;

struct Overlay {
    files: [File; 2],
    map_file: String,
    /// Number of the base's device; the overlay's is the next one.
    base: u32,
    size: u64,
    /// Clusters of the volume, and where each is in the overlay.
    clusters: BTreeMap<u64, u64>,
}

impl Overlay {
    fn load(&mut self) {
        let text = fs::read_to_string(&self.map_file).unwrap_or_default();
        let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        self.clusters = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    }

    fn free(&self) -> u64 {
        self.clusters.values().max().map_or(0, |last| last + CLUSTER)
    }
}

impl Mapper for Overlay {
    fn hello(&mut self, hello: &Hello, session: &Session) -> io::Result<Welcome> {
        self.load();
        (self.base, self.size) = (u32::try_from(hello.devices.len()).expect("few"), hello.size);
        self.files[1].set_len(2 * hello.size)?;
        session.add_file(self.base, false, &self.files[0])?;
        session.add_file(self.base + 1, true, &self.files[1])?;
        Ok(Welcome { is_persistent: true, keeps_answers: true, trim_unit: 0 })
    }

    fn held(&mut self, extents: &[Extent]) {
        for extent in extents {
            let Place::Data { offset, .. } = extent.place else { continue };
            for at in (0..extent.length).step_by(CLUSTER as usize) {
                self.clusters.insert(extent.offset + at, offset + at);
            }
        }
    }

    fn map(&mut self, offset: u64, length: u64, intent: Intent) -> Vec<Extent> {
        let first = offset / CLUSTER * CLUSTER;
        (first..offset + length)
            .step_by(CLUSTER as usize)
            .take(EXTENTS_MAX) // the rest is asked for again
            .map(|at| {
                let length = CLUSTER.min(self.size - at);
                match (self.clusters.get(&at), intent) {
                    (Some(own), _) => {
                        Extent::new(at, length, Place::Data { device: self.base + 1, offset: *own })
                    }
                    (None, Intent::Read) => {
                        let place = Place::Data { device: self.base, offset: at };
                        Extent { access: Access::READ, ..Extent::new(at, length, place) }
                    }
                    (None, Intent::Write) => {
                        let own = self.free();
                        self.clusters.insert(at, own);
                        let from = Some((self.base, at));
                        Extent::new(at, length, Place::Copy { device: self.base + 1, offset: own, from })
                    }
                }
            })
            .collect()
    }

    fn failed(&mut self, offset: u64, _length: u64) {
        self.clusters.remove(&offset);
    }

    fn flush(&mut self) -> io::Result<()> {
        let new = format!("{}.new", self.map_file);
        let mut file = File::create(&new)?;
        for (at, own) in &self.clusters {
            writeln!(file, "{at} {own}")?;
        }
        file.sync_all()?;
        fs::rename(new, &self.map_file)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, socket, base, overlay] = &arguments[..] else {
        return Err("usage: cow SOCKET BASE OVERLAY".into());
    };
    let own = File::options().read(true).write(true).create(true).truncate(false).open(overlay)?;
    let files = [File::open(base)?, own];
    let map_file = format!("{overlay}.map");
    let mut mapper = Overlay { files, map_file, base: 0, size: 0, clusters: BTreeMap::new() };
    // Only a socket at which no process listens is replaced: another may be in use.
    if UnixStream::connect(socket).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        fs::remove_file(socket)?;
    }
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, Permissions::from_mode(0o600))?;
    for engine in listener.incoming() {
        if let Err(error) = serve(engine?, &mut mapper) {
            eprintln!("{error}");
        }
    }
    Ok(())
}
