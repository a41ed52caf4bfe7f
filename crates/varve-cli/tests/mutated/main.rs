//! Metadata that contradicts itself under sound checksums, through the whole program: it is an error that names the
//! disk or the volume; nothing dies, hangs or takes memory without bound, and no other group is harmed.
//!
//! `VARVE_MUTATED_CASES` is the number of changed disks, `VARVE_MUTATED_SEED` the seed. Several groups are served by
//! one daemon, each on a disk that was changed in one place; the offline tools then see the same disks. What fails is
//! run again disk by disk, so that a failure names the change that does it.
#![expect(
    clippy::disallowed_methods,
    reason = "the real program is tested, in real time, as the environment says"
)]

mod client;
mod mutation;

use client::Client;
use mutation::{Chance, Image};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Groups that a daemon serves at once, each on a disk of its own.
const GROUPS: usize = 6;
/// Changed disks in a run.
const CASES: u64 = 400;
/// Address space of the program, in KiB, and what a daemon may use of memory, in KiB.
const ADDRESSES_KIB_MAX: u64 = 4 << 20;
const MEMORY_KIB_MAX: u64 = 700 << 10;
/// What takes longer hangs: the machine may be busy.
const LIMIT: Duration = Duration::from_secs(90);
/// Failures after which a run ends.
const FAILURES_MAX: usize = 8;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn a_disk_that_contradicts_itself_harms_nothing_but_its_group() {
    let (cases, seed) = (number("VARVE_MUTATED_CASES", CASES), number("VARVE_MUTATED_SEED", 1));
    let batches = cases.div_ceil(GROUPS as u64);
    let next = AtomicU64::new(0);
    let failures = Mutex::new(Vec::new());
    // Daemons wait for their disks half of the time.
    let workers = std::thread::available_parallelism().map_or(1, |cores| usize::from(cores).min(4) * 2);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let bench = Bench::new();
                loop {
                    let batch = next.fetch_add(1, Ordering::Relaxed);
                    if batch >= batches || failures.lock().expect("no panic").len() >= FAILURES_MAX {
                        break;
                    }
                    let seeds: Vec<u64> = (0..GROUPS as u64)
                        .map(|group| seed * 1_000_000 + batch * GROUPS as u64 + group)
                        .collect();
                    let found = bench.run(&seeds); // Before the lock: the others would wait for it.
                    failures.lock().expect("no panic").extend(found);
                }
            });
        }
    });
    println!("sim: mutated metadata: {cases} disks, seed {seed}");
    let failures = failures.into_inner().expect("no panic");
    assert!(failures.is_empty(), "VARVE_MUTATED_SEED={seed}:\n{}", failures.join("\n"));
}

/// A folder with sound disks, and what a daemon remembers of them.
struct Bench {
    folder: TempDir,
    sound: Vec<Image>,
}

impl Bench {
    /// Groups `g0`, `g1`, … with a thick volume, a pool, two thin volumes, snapshots and exports of each; killed while
    /// logs hold what the maps do not.
    fn new() -> Self {
        let mut bench = Self { folder: tempfile::tempdir().expect("a folder"), sound: Vec::new() };
        let mut daemon = bench.start().expect("it starts");
        for group in 0..GROUPS {
            for words in [
                "pv create dN --size 160M",
                "vg create gN dN",
                "lv create gN/v --size 8M",
                "lv change gN/v --when-full error",
                "pool create gN/p --size 16M --when-full error --auto-extend off",
                "lv create gN/t --pool p --size 32M",
                "lv create gN/u --pool p --size 8M",
                "export create gN/v --nbd unix:vN",
                "export create gN/t --nbd unix:tN",
            ] {
                bench.sound_command(words, group);
            }
            for snapshot in ["one", "two"] {
                for (volume, length) in [("v", 8 << 20), ("t", 32 << 20)] {
                    bench.scatter(volume, group, length).expect("sound disks take writes");
                }
                bench.sound_command(&format!("snap create gN/v@{snapshot} gN/t@{snapshot}"), group);
            }
            bench.sound_command("export create gN/v@one --nbd unix:sN", group);
            for volume in ["v", "t", "s"] {
                bench.scatter(volume, group, 8 << 20).expect("sound disks take writes");
            }
        }
        daemon.kill().expect("it runs");
        daemon.wait().expect("it ends");
        for group in 0..GROUPS {
            let disk = fs::File::open(bench.disk(group)).expect("a disk");
            bench.sound.push(Image::read(&disk).expect("a disk can be read"));
        }
        fs::rename(bench.at("state"), bench.at("remembered")).expect("it remembers");
        bench
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn disk(&self, group: usize) -> PathBuf {
        self.at(&format!("d{group}"))
    }

    /// The program, with a bound on its memory.
    fn program(&self, words: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit -v {ADDRESSES_KIB_MAX}; exec \"$0\" \"$@\""));
        command.arg(env!("CARGO_BIN_EXE_varve")).args(words.split_whitespace());
        command.current_dir(self.folder.path()).env("VARVE_SOCKET", self.at("varve.sock"));
        command.stdin(Stdio::null());
        command
    }

    fn start(&self) -> Result<Child, String> {
        let mut command = self.program("daemon --state state --shards 1 --memory-mib 16");
        let log = fs::File::create(self.at("log")).expect("a log");
        let said = fs::File::create(self.at("said")).expect("a file");
        let mut daemon = command.stdout(said).stderr(log).spawn().expect("the daemon starts");
        let until = Instant::now() + LIMIT;
        while !fs::read_to_string(self.at("said")).is_ok_and(|said| said.contains("ready")) {
            if let Ok(Some(status)) = daemon.try_wait() {
                return Err(format!("the daemon does not start: {status}; {}", self.panic()));
            }
            if Instant::now() > until {
                let _ = daemon.kill();
                let _ = daemon.wait();
                return Err("the daemon does not become ready".to_owned());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(daemon)
    }

    /// What the log tells of a panic.
    fn panic(&self) -> String {
        told_panic(&fs::read_to_string(self.at("log")).unwrap_or_default())
    }

    fn sound_command(&self, words: &str, group: usize) {
        let (exit, said) = self.command(words, group).expect("sound disks");
        assert_eq!(exit, 0, "varve {words}: {said}");
    }

    /// Runs a command to its end; its exit code and what it said, or how it died.
    fn command(&self, words: &str, group: usize) -> Result<(i32, String), String> {
        let words = words.replace('N', &group.to_string());
        let out = tempfile::NamedTempFile::new_in(self.folder.path()).expect("a file");
        let mut command = self.program(&words);
        command.stdout(out.reopen().expect("a file")).stderr(out.reopen().expect("a file"));
        let mut child = command.spawn().expect("the command starts");
        let status = wait(&mut child).ok_or_else(|| format!("varve {words} hangs"))?;
        let said = String::from_utf8_lossy(&fs::read(out.path()).expect("a file")).into_owned();
        let panic = told_panic(&said);
        match status.code() {
            Some(code) if panic.is_empty() => Ok((code, said)),
            _ => Err(format!("varve {words} dies: {status}; {panic}")),
        }
    }

    /// Reads, writes and discards here and there; a server may answer with errors, but answers.
    fn scatter(&self, volume: &str, group: usize, length: u64) -> Result<(), String> {
        let name = if volume == "s" { format!("g{group}/v@one") } else { format!("g{group}/{volume}") };
        let Some(mut client) = Client::connect(&self.at(&format!("{volume}{group}")), &name) else {
            // A volume that is out of use is not served.
            return Ok(());
        };
        let step = (length / 24).next_multiple_of(4096);
        for at in
            (0..length.min(client.size.saturating_sub(4096))).step_by(usize::try_from(step).expect("small"))
        {
            for request in [client::READ, client::WRITE, client::READ] {
                client.request(request, at, 4096).map_err(|error| format!("{name}: {error}"))?;
            }
        }
        let discarded = client.request(client::TRIM, step, 8192);
        discarded
            .and_then(|()| client.request(client::FLUSH, 0, 0))
            .map_err(|error| format!("{name}: {error}"))
    }

    /// Runs changed disks of these seeds; what failed, disk by disk.
    fn run(&self, seeds: &[u64]) -> Vec<String> {
        let changed = |only: Option<usize>| -> Vec<(Image, String)> {
            let mut disks: Vec<_> = self.sound.iter().map(|image| (image.clone(), String::new())).collect();
            for (group, (image, what)) in disks.iter_mut().enumerate() {
                if only.is_none_or(|only| only == group) {
                    *what = image.mutate(&mut Chance(seeds[group]));
                }
            }
            disks
        };
        let all = changed(None);
        let mut failures = Vec::new();
        if let Err(together) = self.serve(&all, seeds) {
            for group in 0..GROUPS {
                let alone = changed(Some(group));
                if let Err(failure) = self.serve(&alone, seeds) {
                    failures.push(format!("seed {}, {}: {failure}", seeds[group], alone[group].1));
                }
            }
            if failures.is_empty() {
                let whats: Vec<&str> = all.iter().map(|(_, what)| what.as_str()).collect();
                failures.push(format!("only together, seeds {seeds:?}, {whats:#?}: {together}"));
            }
        }
        for (group, (image, what)) in all.iter().enumerate() {
            if let Err(failure) = self.look(group, image, &mut Chance(seeds[group] ^ 1)) {
                failures.push(format!("seed {}, {what}: {failure}", seeds[group]));
            }
        }
        failures
    }

    fn write_disk(&self, group: usize, image: &Image) {
        let file = fs::File::create(self.disk(group)).expect("a disk");
        file.set_len(image.size).expect("a sparse file");
        for (at, block) in &image.blocks {
            std::os::unix::fs::FileExt::write_all_at(&file, block, *at).expect("a disk");
        }
    }

    /// A daemon that serves all of these disks, used and stopped.
    fn serve(&self, disks: &[(Image, String)], seeds: &[u64]) -> Result<(), String> {
        for (group, (image, _)) in disks.iter().enumerate() {
            self.write_disk(group, image);
        }
        let _ = fs::remove_dir_all(self.at("state"));
        copy_folder(&self.at("remembered"), &self.at("state"));
        let mut daemon = self.start()?;
        let used = self.use_all(seeds);
        let memory = memory_kib(daemon.id());
        let pid = rustix::process::Pid::from_child(&daemon);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let status = wait(&mut daemon).ok_or("the daemon does not stop")?;
        let panic = self.panic();
        if status.signal().is_some() || status.code() == Some(101) || !panic.is_empty() {
            return Err(format!("the daemon: {status}; {panic}"));
        }
        used?;
        if memory > MEMORY_KIB_MAX { Err(format!("the daemon took {memory} KiB")) } else { Ok(()) }
    }

    fn use_all(&self, seeds: &[u64]) -> Result<(), String> {
        for (group, seed) in seeds.iter().enumerate() {
            for volume in ["v", "t", "s"] {
                self.scatter(volume, group, 8 << 20)?;
            }
            let mut chance = Chance(*seed ^ 2);
            let mut verbs = vec![
                "snap create gN/v@new gN/t@new",
                "snap remove gN/t@one -y --wait",
                "snap remove gN/v@two -y --wait",
                "snap rollback gN/t@two --no-snapshot --force -y --wait",
                "snap rollback gN/v@two --no-snapshot --force -y --wait",
                "snap diff gN/t@one gN/t@two",
                "snap diff gN/v@one",
                "lv extend gN/t --size +4M",
                "lv extend gN/v --size +4M",
                "lv remove gN/u -y",
                "pool check gN/p",
                "pool show gN/p",
                "lv list gN",
            ];
            for _ in 0..3 {
                let verb = verbs.swap_remove(chance.below(verbs.len()));
                self.command(verb, group)?;
            }
            self.scatter("t", group, 8 << 20)?;
        }
        Ok(())
    }

    /// The offline tools on one disk as it was changed.
    fn look(&self, group: usize, image: &Image, chance: &mut Chance) -> Result<(), String> {
        self.write_disk(group, image);
        self.command("check dN", group)?;
        let store = ["gN/v", "gN/p"][chance.below(2)];
        let (exit, text) = self.command(&format!("dump dN --store {store}"), group)?;
        match chance.below(4) {
            0 => self.command("dump dN", group)?,
            1 => self.command("repair dN -y", group)?,
            2 if exit == 0 => {
                fs::write(self.at("text"), text).expect("a file");
                self.command(&format!("restore text dN --store {store} -y"), group)?
            }
            _ => self.command(&format!("repair dN --store {store} -y"), group)?,
        };
        self.command("check dN", group).map(drop)
    }
}

/// The line of a panic and its message.
fn told_panic(log: &str) -> String {
    let lines: Vec<&str> = log.lines().skip_while(|line| !line.contains("panicked")).take(2).collect();
    lines.join(" ")
}

/// Waits for the end of a process; kills it when it hangs.
fn wait(child: &mut Child) -> Option<std::process::ExitStatus> {
    let until = Instant::now() + LIMIT;
    while Instant::now() < until {
        if let Some(status) = child.try_wait().expect("it is a child") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// The most memory that a process had.
fn memory_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let (kind, to) = (entry.file_type().expect("a type"), to.join(entry.file_name()));
        if kind.is_dir() {
            copy_folder(&entry.path(), &to);
        } else if kind.is_file() {
            fs::copy(entry.path(), to).expect("a file"); // A daemon that was killed leaves sockets.
        }
    }
}
