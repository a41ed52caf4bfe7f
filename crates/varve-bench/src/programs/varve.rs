//! Varve itself under measurement: the real daemon, driven through the real command line.

use crate::prelude::*;
use crate::programs::http;
use crate::programs::peers::Cache;
use crate::programs::server::Server;
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// The volume group of every measurement.
const GROUP: &str = "bench";

/// How long the last user of an export may take to close it, in turns of `PAUSE`.
const PAUSES_MAX: u32 = 200;
const PAUSE: Duration = Duration::from_millis(50);

/// A running daemon and the way to command it.
pub(crate) struct Varve {
    program: PathBuf,
    directory: PathBuf,
    socket: PathBuf,
    server: Server,
    /// Where its files are, if they are its own; removed last.
    _place: Option<Place>,
}

impl Varve {
    /// Starts the daemon, with more options, on a disk of so many bytes in a place of its own.
    pub(crate) fn on(options: &Options, medium: Medium, bytes: u64, words: &[&str]) -> Outcome<Self> {
        let place = Place::new(options.directory(medium), bytes)?;
        let file = place.file("disk", bytes)?;
        let varve = Self::start_with(words, &options.varve(), place.path(), &file, medium.cache())?;
        Ok(Self { _place: Some(place), ..varve })
    }

    /// The directory of its sockets.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Starts the daemon with its state and sockets in `directory`, and makes `disk` the one disk of a group.
    pub(crate) fn start(program: &Path, directory: &Path, disk: &Path, cache: Cache) -> Outcome<Self> {
        Self::start_with(&[], program, directory, disk, cache)
    }

    /// As [`Varve::start`], with more options of the daemon.
    pub(crate) fn start_with(
        options: &[&str],
        program: &Path,
        directory: &Path,
        disk: &Path,
        cache: Cache,
    ) -> Outcome<Self> {
        if !program.exists() {
            return Err(format!("{} is not built", program.display()).into());
        }
        let state = directory.join("state");
        let socket = directory.join("varve.sock");
        let (state, listening) = (state.to_string_lossy(), socket.to_string_lossy());
        let fixed = ["daemon", "--state", &state, "--socket", &listening];
        let arguments: Vec<_> = fixed.iter().chain(options).map(|word| (*word).to_owned()).collect();
        let mut server = Server::start(program, &arguments, &directory.join("varve.log"))?;
        server.wait_for_word("ready")?;
        let directory = directory.to_owned();
        let varve = Self { program: program.to_owned(), directory, socket, server, _place: None };
        varve.create_group(disk, cache)?;
        Ok(varve)
    }

    /// The daemon's process.
    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Runs one command and returns its `data`.
    pub(crate) fn call(&self, words: &[&str]) -> Outcome<Value> {
        let told = format!("varve {}", words.join(" "));
        let output = Command::new(&self.program)
            .args(words)
            .args(["--json", "--socket"])
            .arg(&self.socket)
            .stdin(Stdio::null())
            .output()
            .of(&told)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let answer: Value = serde_json::from_str(&text).map_err(|_| {
            format!("{told}: no JSON: {text}{}", String::from_utf8_lossy(&output.stderr).trim())
        })?;
        match answer.get("error") {
            Some(error) => Err(format!("{told}: {error}").into()),
            None => Ok(answer.get("data").cloned().unwrap_or(Value::Null)),
        }
    }

    /// Makes `file` the one disk of the group.
    fn create_group(&self, file: &Path, cache: Cache) -> Outcome<()> {
        let file = file.to_string_lossy();
        let cache = match cache {
            Cache::Buffered => "buffered",
            Cache::Direct => "direct",
        };
        self.call(&["pv", "create", &file, "--cache", cache, "--yes"])?;
        self.call(&["vg", "create", GROUP, &file])?;
        Ok(())
    }

    /// Makes a linear volume of `size` bytes.
    pub(crate) fn create_volume(&self, name: &str, size: u64) -> Outcome<()> {
        self.call(&["lv", "create", &volume(name), "--size", &size.to_string()]).map(drop)
    }

    /// Makes a pool of `size` bytes that keeps its size.
    pub(crate) fn create_pool(&self, name: &str, size: u64) -> Outcome<()> {
        let size = size.to_string();
        self.call(&["pool", "create", &volume(name), "--size", &size, "--auto-extend", "off"]).map(drop)
    }

    /// Makes a thin volume of `size` bytes.
    pub(crate) fn create_thin(&self, name: &str, pool: &str, size: u64) -> Outcome<()> {
        let size = size.to_string();
        self.call(&["lv", "create", &volume(name), "--pool", pool, "--size", &size]).map(drop)
    }

    /// Ends the export of a thin volume and removes it; waits until its space has come back.
    pub(crate) fn remove_thin(&self, name: &str, pool: &str) -> Outcome<()> {
        self.call(&["export", "remove", &volume(name), "--yes"])?;
        self.call(&["lv", "remove", &volume(name), "--now", "--yes"])?;
        while self.call(&["pool", "show", &volume(pool)])?.get("removing") != Some(&json!(0)) {
            pause(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Takes a snapshot.
    pub(crate) fn create_snapshot(&self, name: &str, snapshot: &str) -> Outcome<()> {
        let body = json!({ "names": [format!("{}@{snapshot}", volume(name))] });
        http::call(&self.socket, "POST", "/v1/snapshots", &body).map(drop)
    }

    /// Lists the snapshots of a volume; how many there are.
    pub(crate) fn list_snapshots(&self, name: &str) -> Outcome<usize> {
        let path = format!("/v1/snapshots?volume={}", volume(name));
        let listed = http::call(&self.socket, "GET", &path, &Value::Null)?;
        Ok(listed.as_array().map(Vec::len).ok_or_else(|| format!("the answer is no list: {listed}"))?)
    }

    /// Removes a snapshot; returns the job that gives its space back, as soon as the daemon answers.
    pub(crate) fn remove_snapshot(&self, name: &str, snapshot: &str) -> Outcome<String> {
        let body = json!({ "names": [format!("{}@{snapshot}", volume(name))] });
        let job = http::call(&self.socket, "POST", "/v1/snapshots/remove", &body)?;
        let id = job.get("id").ok_or_else(|| format!("the answer is no job: {job}"))?;
        Ok(id.as_str().map_or_else(|| id.to_string(), str::to_owned))
    }

    /// Waits until a job has ended well.
    pub(crate) fn wait_for_job(&self, id: &str) -> Outcome<()> {
        loop {
            let job = http::call(&self.socket, "GET", &format!("/v1/jobs/{id}/wait"), &Value::Null)?;
            match job.get("state").and_then(Value::as_str) {
                Some("running") => {}
                Some("done") => return Ok(()),
                _ => return Err(format!("a job failed: {job}").into()),
            }
        }
    }

    /// Exports a volume over a Unix socket and returns the socket.
    pub(crate) fn export(&self, name: &str) -> Outcome<PathBuf> {
        let socket = self.directory.join(format!("{name}.sock"));
        self.call(&["export", "create", &volume(name), "--nbd", &format!("unix:{}", socket.display())])?;
        Ok(socket)
    }

    /// Ends the export of a volume as soon as it is not in use any more: the kernel releases a filesystem's device late.
    pub(crate) fn end_export(&self, name: &str) -> Outcome<()> {
        let mut left = PAUSES_MAX;
        while let Err(reason) = self.call(&["export", "remove", &volume(name), "--yes"]) {
            left = left.checked_sub(1).ok_or(reason)?;
            pause(PAUSE);
        }
        Ok(())
    }

    /// Ends the daemon in order.
    pub(crate) fn stop(self) -> Outcome<()> {
        self.server.stop().of("varve daemon")
    }
}

fn volume(name: &str) -> String {
    format!("{GROUP}/{name}")
}

/// The address of an export that is alone behind its socket, as libnbd writes it.
pub(crate) fn uri(socket: &Path) -> String {
    format!("nbd+unix:///?socket={}", socket.display())
}
