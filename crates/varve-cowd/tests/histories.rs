//! Random histories of an engine over images of all kinds, with deaths on both sides; `qemu-img` reads and checks what is left.

#![expect(clippy::disallowed_methods, reason = "a mapper has a thread, and QEMU's programs are run")]

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;
use varve_cowd::{Cow, Settings};
use varve_mapper::wire::Extent;
use varve_mapper::{Engine, serve};
use varve_sim::Random;

const BLOCK: u64 = 4096;
const SIZE: u64 = (4 << 20) + 3 * BLOCK;
const SECTOR: usize = 512;
const BLOCKS: u64 = SIZE / BLOCK;

fn index(number: u64) -> usize {
    usize::try_from(number).expect("small")
}

fn qemu_img(arguments: &[&str]) -> (i32, String) {
    let output = Command::new("qemu-img").args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("qemu-img: {error}; install qemu-utils"));
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().expect("it ended"), String::from_utf8_lossy(&said).into_owned())
}

fn good(arguments: &[&str]) {
    let (code, said) = qemu_img(arguments);
    assert_eq!(code, 0, "qemu-img {arguments:?}: {said}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("in UTF-8")
}

/// A kind of image: how the first one is made, and what is below it.
#[derive(Clone, Copy, Debug)]
struct Kind {
    options: &'static str,
    below: &'static [&'static str],
    has_snapshot: bool,
}

const KINDS: [Kind; 7] = [
    Kind { options: "cluster_size=64k", below: &[], has_snapshot: false },
    Kind { options: "cluster_size=4k", below: &["raw"], has_snapshot: false },
    Kind { options: "cluster_size=64k", below: &["raw", "qcow2"], has_snapshot: true },
    Kind { options: "cluster_size=16k,extended_l2=on", below: &["raw"], has_snapshot: false },
    Kind { options: "cluster_size=128k,extended_l2=on", below: &["compressed"], has_snapshot: true },
    Kind { options: "cluster_size=2M", below: &["compressed"], has_snapshot: false },
    Kind { options: "compat=0.10,cluster_size=32k", below: &[], has_snapshot: true },
];

/// The image, and what its disk holds.
fn make(folder: &Path, kind: Kind, random: &mut Random) -> (PathBuf, Vec<u8>) {
    let mut content = vec![0; index(SIZE)];
    let mut below: Option<(PathBuf, &str)> = None;
    for (depth, layer) in kind.below.iter().enumerate() {
        let path = folder.join(format!("below-{depth}"));
        match *layer {
            // Shorter than the disk, and no whole blocks.
            "raw" => {
                let length = index(SIZE / 2 + 700);
                content[..length].chunks_mut(1000).for_each(|part| part.fill(byte(random)));
                std::fs::write(&path, &content[..length]).expect("written");
                below = Some((path, "raw"));
            }
            "compressed" => {
                let raw = folder.join("raw");
                content.chunks_mut(index(SIZE / 40)).for_each(|part| part.fill(byte(random)));
                std::fs::write(&raw, &content).expect("written");
                good(&["convert", "-c", "-O", "qcow2", text(&raw), text(&path)]);
                below = Some((path, "qcow2"));
            }
            _ => {
                overlay(&path, "cluster_size=64k", below.as_ref());
                qemu_writes(&path, &mut content, random, true);
                below = Some((path, "qcow2"));
            }
        }
    }
    let path = folder.join("image");
    overlay(&path, kind.options, below.as_ref());
    qemu_writes(&path, &mut content, random, kind.below.is_empty());
    if kind.has_snapshot {
        good(&["snapshot", "-c", "before", text(&path)]);
        qemu_writes(&path, &mut content, random, false);
    }
    (path, content)
}

fn byte(random: &mut Random) -> u8 {
    u8::try_from(random.between(1, 255)).expect("a byte")
}

fn overlay(path: &Path, options: &str, below: Option<&(PathBuf, &str)>) {
    let size = SIZE.to_string();
    let mut arguments = vec!["create", "-q", "-f", "qcow2", "-o", options];
    if let Some((below, format)) = below {
        arguments.extend(["-b", text(below), "-F", format]);
    }
    arguments.extend([text(path), &size]);
    good(&arguments);
}

/// QEMU writes in units of 512 bytes, and a compressed cluster if it may.
fn qemu_writes(path: &Path, content: &mut [u8], random: &mut Random, compressed: bool) {
    let mut commands = vec!["-f".to_owned(), "qcow2".to_owned()];
    for _ in 0..3 {
        let length = random.between(1, 400) * 512;
        let start = random.below((SIZE - length) / 512) * 512;
        let fill = byte(random);
        content[index(start)..index(start + length)].fill(fill);
        commands.extend(["-c".to_owned(), format!("write -q -P {fill} {start} {length}")]);
    }
    if compressed {
        content[2 << 20..(2 << 20) + (64 << 10)].fill(9);
        commands.extend([
            "-c".to_owned(),
            "discard -q 2M 64k".to_owned(),
            "-c".to_owned(),
            "write -q -c -P 9 2M 64k".to_owned(),
        ]);
    }
    let output = Command::new("qemu-io").args(&commands).arg(path).output().expect("qemu-io runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !said.contains("failed"), "{commands:?}: {said}");
}

/// A mapper on a thread of its own; connections are handed to it.
struct Daemon {
    streams: Option<mpsc::Sender<UnixStream>>,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    fn start(settings: Settings) -> Self {
        let (streams, served) = mpsc::channel::<UnixStream>();
        let thread = std::thread::spawn(move || {
            let mut cow = Cow::new(settings);
            for stream in served {
                // What ends a connection is the engine's to notice.
                let _ = serve(stream, &mut cow);
                cow.disconnected().expect("the image is closed");
            }
        });
        Self { streams: Some(streams), thread: Some(thread) }
    }

    fn connect(&self, held: &[Extent]) -> Engine {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        self.streams.as_ref().expect("it runs").send(theirs).expect("it listens");
        Engine::connect(ours, "data/vm", SIZE, held).expect("the hello is answered")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.streams = None;
        let ended = self.thread.take().expect("it runs").join();
        assert!(ended.is_ok() || std::thread::panicking(), "the mapper panicked");
    }
}

struct History {
    settings: Settings,
    /// Dropped before the mapper, which waits for its end.
    engine: Option<Engine>,
    daemon: Option<Daemon>,
    /// What the disk reads.
    content: Vec<u8>,
    /// What it read at the last flush, and the blocks that were changed since.
    flushed: Vec<u8>,
    changed: BTreeSet<u64>,
    /// Whether the mapper died, so that places which nothing leads to may be left.
    may_leak: bool,
    random: Random,
}

impl History {
    fn engine(&mut self) -> &mut Engine {
        self.engine.as_mut().expect("it is connected")
    }

    fn range(&mut self) -> (u64, u64) {
        let most = if self.random.chance(1, 4) { 100 } else { 8 };
        let count = self.random.between(1, most);
        (self.random.below(BLOCKS - count) * BLOCK, count * BLOCK)
    }

    fn step(&mut self) {
        let (start, length) = self.range();
        let range = index(start)..index(start + length);
        match self.random.below(20) {
            0..=8 => {
                let fill = byte(&mut self.random);
                let data = vec![fill; index(length)];
                self.engine().write(start, &data).expect("written");
                self.content[range].fill(fill);
                self.changed.extend(start / BLOCK..(start + length) / BLOCK);
            }
            9..=13 => {
                let mut read = vec![0; index(length)];
                self.engine().read(start, &mut read).expect("read");
                assert!(read == self.content[range], "{length} bytes at {start} are not what was written");
            }
            14 | 15 => {
                let unit = u64::from(self.engine().welcome().trim_unit);
                let start = start / unit * unit;
                let end = (start + length.next_multiple_of(unit)).min(SIZE / unit * unit);
                if start < end {
                    self.engine().trim(start, end - start).expect("trimmed");
                    self.content[index(start)..index(end)].fill(0);
                    self.changed.extend(start / BLOCK..end.div_ceil(BLOCK));
                }
            }
            16 | 17 => {
                self.engine().flush().expect("flushed");
                self.flushed.clone_from(&self.content);
                self.changed.clear();
            }
            18 => self.mapper_dies(),
            _ => self.connection_ends(),
        }
    }

    /// The mapper loses its memory, and hears of what holds.
    fn mapper_dies(&mut self) {
        let held = self.engine().held().to_vec();
        // It sees the end of its connection first; an image that was not flushed it does not close.
        self.engine = None;
        self.daemon = None;
        self.may_leak = true;
        self.daemon = Some(Daemon::start(self.settings.clone()));
        self.engine = Some(self.daemon.as_ref().expect("it runs").connect(&held));
    }

    /// The engine is gone, or only its connection.
    fn connection_ends(&mut self) {
        let held = self.engine().held().to_vec();
        self.engine = None;
        let forgets = self.random.chance(1, 2);
        let held = if forgets { Vec::new() } else { held };
        self.engine = Some(self.daemon.as_ref().expect("it runs").connect(&held));
        if forgets {
            self.accept_either();
        }
    }

    /// What was not flushed may be there or not, by sector.
    fn accept_either(&mut self) {
        for block in std::mem::take(&mut self.changed) {
            let range = index(block * BLOCK)..index((block + 1) * BLOCK);
            let mut read = vec![0; index(BLOCK)];
            self.engine().read(block * BLOCK, &mut read).expect("read");
            for (new, old) in read.chunks(SECTOR).zip(self.flushed[range.clone()].chunks(SECTOR)) {
                let is_uniform = new.iter().all(|byte| *byte == new[0]);
                assert!(is_uniform || new == old, "block {block} was never so");
            }
            self.content[range].copy_from_slice(&read);
        }
        let size = index(SIZE);
        let mut all = vec![0; size];
        self.engine().read(0, &mut all).expect("read");
        assert!(all == self.content, "a block that was flushed is not what it was");
        self.flushed.clone_from(&self.content);
    }
}

fn history(seed: u64) {
    let mut random = Random::new(seed);
    let kind = KINDS[index(seed) % KINDS.len()];
    let folder = tempfile::tempdir().expect("a folder");
    let (path, content) = make(folder.path(), kind, &mut random);
    let settings = Settings {
        primes: random.chance(1, 3),
        read_ahead: random.below(3) * (256 << 10),
        cache_bytes: 64 << 10,
        ..Settings::new(&path)
    };
    let daemon = Daemon::start(settings.clone());
    let engine = Some(daemon.connect(&[]));
    let flushed = content.clone();
    let changed = BTreeSet::new();
    let mut history = History {
        settings,
        engine,
        daemon: Some(daemon),
        content,
        flushed,
        changed,
        may_leak: false,
        random,
    };
    for _ in 0..60 {
        history.step();
    }
    history.engine().flush().expect("flushed");
    history.engine = None;
    history.daemon = None;
    let (code, said) = qemu_img(&["check", "-f", "qcow2", text(&path)]);
    assert!(code == 0 || history.may_leak && code == 3, "{said}");
    let raw = folder.path().join("flat");
    good(&["convert", "-f", "qcow2", "-O", "raw", text(&path), text(&raw)]);
    assert!(std::fs::read(raw).expect("read") == history.content, "QEMU reads something else");
}

#[test]
fn what_is_written_through_a_mapper_is_in_the_image() {
    let seeds: u64 = std::env::var("VARVE_SIM_SEEDS").ok().and_then(|word| word.parse().ok()).unwrap_or(42);
    for seed in 0..seeds {
        if let Err(panic) = std::panic::catch_unwind(|| history(seed)) {
            eprintln!("seed {seed}, {:?}", KINDS[index(seed) % KINDS.len()]);
            std::panic::resume_unwind(panic);
        }
    }
    println!("sim: varve-cowd: {seeds} histories, none failed");
}
