//! A daemon of its own in a scratch folder, and the command that speaks to it.

use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// A scratch folder with a daemon in it, which ends with the test.
pub(crate) struct World {
    folder: TempDir,
    daemon: Option<Child>,
}

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) exit: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl World {
    /// A folder without a daemon yet.
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), daemon: None }
    }

    /// A folder with a daemon that serves.
    pub(crate) fn started() -> Self {
        let mut world = Self::new();
        world.start();
        world
    }

    /// A daemon with the group `data` on two disks of 600 MiB.
    pub(crate) fn with_group() -> Self {
        let world = Self::started();
        world.ok("pv create d1 d2 --size 600M");
        world.ok("vg create data d1 d2");
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command, to be started beside others.
    pub(crate) fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
        command.args(words.split_whitespace()).current_dir(self.folder.path());
        command.env("VARVE_SOCKET", self.path("varve.sock")).stdin(Stdio::null());
        if self.path("notify.sock").exists() {
            command.env("NOTIFY_SOCKET", self.path("notify.sock"));
        }
        command
    }

    /// Starts the daemon, and waits until it says that it serves.
    pub(crate) fn start(&mut self) {
        self.start_with("");
    }

    /// Like [`World::start`], with more options.
    pub(crate) fn start_with(&mut self, options: &str) {
        let command = self.command(&format!("daemon --state state --shards 2 {options}"));
        self.spawn(command);
    }

    /// Starts a daemon that will die at `place`.
    pub(crate) fn start_with_fault(&mut self, place: &str) {
        self.start_with_fault_and(place, "");
    }

    /// The same, with more options.
    pub(crate) fn start_with_fault_and(&mut self, place: &str, options: &str) {
        let mut command = self.command(&format!("daemon --state state --shards 2 {options}"));
        command.env("VARVE_FAULT", place);
        self.spawn(command);
    }

    /// Starts a daemon with an injected bug: `SUBJECT:VERB`.
    pub(crate) fn start_with_bug(&mut self, bug: &str) {
        let mut command = self.command("daemon --state state --shards 2");
        command.env("VARVE_INJECT_PANIC", bug);
        self.spawn(command);
    }

    /// Starts a daemon after a command of the shell, which it inherits the limits of.
    pub(crate) fn start_below(&mut self, limits: &str) {
        let daemon = self.command("daemon --state state --shards 2");
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{limits}; exec \"$0\" \"$@\"")]).arg(daemon.get_program());
        command.args(daemon.get_args()).current_dir(self.folder.path());
        command.env("VARVE_SOCKET", self.path("varve.sock")).stdin(Stdio::null());
        self.spawn(command);
    }

    fn spawn(&mut self, mut command: Command) {
        assert!(self.daemon.is_none());
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(self.path("log")).expect("a log");
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().expect("the daemon starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        let _ = BufReader::new(stdout).read_line(&mut line);
        self.daemon = Some(child);
        assert_eq!(line, "ready\n", "{}", self.log());
    }

    /// The command for a daemon that takes over.
    pub(crate) fn successor(&self) -> Command {
        self.command("daemon --state state --shards 2 --replace")
    }

    /// Starts a daemon that takes over, and waits until it serves; the exit code of the one before.
    pub(crate) fn replace(&mut self) -> Option<i32> {
        self.replace_with("")
    }

    /// Like [`World::replace`], with more options.
    pub(crate) fn replace_with(&mut self, options: &str) -> Option<i32> {
        let mut before = self.daemon.take().expect("a daemon runs");
        let mut command = self.successor();
        command.args(options.split_whitespace());
        self.spawn(command);
        before.wait().expect("it ends").code()
    }

    /// Whether the daemon has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        let daemon = self.daemon.as_mut().expect("a daemon was started");
        daemon.try_wait().expect("it is known").is_none()
    }

    /// What the daemon has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Sends a signal to the daemon.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(self.daemon.as_ref().expect("a daemon runs"));
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// Sends SIGTERM; the exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.ended()
    }

    /// The exit code of a daemon that ends.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.daemon.take().expect("a daemon runs").wait().expect("it ends").code()
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        let mut child = self.daemon.take().expect("a daemon runs");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }

    /// Waits until the daemon has died of itself.
    pub(crate) fn wait_for_death(&mut self) {
        let status = self.daemon.take().expect("a daemon runs").wait().expect("it ends");
        assert_eq!(status.code(), None, "it is a signal: {status}");
    }

    /// Runs the command to its end.
    pub(crate) fn run(&self, words: &str) -> Ended {
        let Output { status, stdout, stderr } = self.command(words).output().expect("the command starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Ended { exit: status.code().expect("it exits"), stdout: text(stdout), stderr: text(stderr) }
    }

    /// Runs a command that must succeed; what it prints.
    pub(crate) fn ok(&self, words: &str) -> String {
        let ended = self.run(words);
        assert_eq!(ended.exit, 0, "varve {words}: {}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.stderr, "", "varve {words}");
        ended.stdout
    }

    /// Runs a command with `--json` that must succeed; its data.
    pub(crate) fn data(&self, words: &str) -> Value {
        let ended = self.run(&format!("{words} --json"));
        assert_eq!((ended.exit, ended.stderr.as_str()), (0, ""), "varve {words}: {}", ended.stdout);
        let mut envelope = envelope(&ended.stdout, words);
        assert!(envelope.get("error").is_none(), "varve {words}");
        envelope["data"].take()
    }

    /// Runs a command that must fail with `exit` and `code`, in text and in JSON; its message and help.
    pub(crate) fn refused(&self, words: &str, exit: i32, code: &str) -> String {
        let ended = self.run(words);
        assert_eq!(ended.exit, exit, "varve {words}: {}{}", ended.stdout, ended.stderr);
        let start = format!("error[{code}]: ");
        assert!(ended.stderr.starts_with(&start), "varve {words}: {}", ended.stderr);
        let json = self.run(&format!("{words} --json"));
        assert_eq!((json.exit, json.stderr.as_str()), (exit, ""), "varve {words} --json: {}", json.stdout);
        let error = envelope(&json.stdout, words)["error"].take();
        assert_eq!(error["code"], code, "varve {words} --json");
        let help = error["help"].as_str().unwrap_or_default();
        // What a name consists of is said by the words that the manual has for its parts.
        let is_named = code == "V0008" || !["VG/", "VG ", "/LV"].iter().any(|word| help.contains(word));
        assert!(is_named, "varve {words}: the remedy names what it is for: {help}");
        ended.stderr
    }

    /// Lets a disk take no writes, or take them again. Even a process that has it open is refused.
    pub(crate) fn set_refusing(&self, disk: &str, is_refusing: bool) {
        let flag = if is_refusing { "+i" } else { "-i" };
        let done = Command::new("chattr").arg(flag).arg(self.path(disk)).status().expect("chattr is there");
        assert!(
            done.success(),
            "the file system of the test's folder knows the attribute, and the test may set it"
        );
    }

    /// Overwrites bytes of a disk.
    pub(crate) fn overwrite(&self, disk: &str, offset: u64, length: usize) {
        let file = std::fs::File::options().write(true).open(self.path(disk)).expect("a disk");
        file.write_all_at(&vec![0xa5; length], offset).expect("it is long enough");
    }

    /// Overwrites all descriptions on disks, at both of their ends, and leaves the labels at their beginnings.
    pub(crate) fn lose_descriptions(&self, disks: &[&str]) {
        for disk in disks {
            self.overwrite(disk, 64 << 10, (1 << 20) - (64 << 10));
            let size = std::fs::metadata(self.path(disk)).expect("a disk").len();
            self.overwrite(disk, size - (1 << 20), 1 << 20);
        }
    }

    /// Bytes of memory that the daemon has, without those of its program.
    pub(crate) fn memory(&self) -> u64 {
        let id = self.daemon.as_ref().expect("a daemon").id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("it has memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    }

    /// Everything that the lists show, and the bytes of the disks that describe it.
    pub(crate) fn everything(&self, disks: &[&str]) -> (Vec<Value>, Vec<Vec<u8>>) {
        let lists = ["pv list", "vg list", "lv list", "pool list", "snap list", "export list", "job list"];
        let shown = lists.iter().map(|words| self.data(words)).collect();
        let head = |disk: &&str| {
            let bytes = std::fs::read(self.path(disk)).expect("a disk");
            bytes[..1 << 20].to_vec()
        };
        (shown, disks.iter().map(head).collect())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut child) = self.daemon.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn envelope(stdout: &str, words: &str) -> Value {
    assert_eq!(stdout.lines().count(), 1, "varve {words} prints one line: {stdout}");
    let value: Value = serde_json::from_str(stdout).expect("JSON");
    assert_eq!(value["schema"], "varve.v1", "varve {words}");
    value
}

/// What an HTTP request to the daemon's socket answers, body only.
pub(crate) fn http(socket: &Path, path: &str) -> String {
    let stream = std::os::unix::net::UnixStream::connect(socket).expect("the daemon listens");
    let (head, body) = ask(stream, path, "host: varve\r\n");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body
}

/// Posts `body` to the daemon's socket; what it answers, body only.
pub(crate) fn post(socket: &Path, path: &str, body: &Value) -> String {
    let stream = std::os::unix::net::UnixStream::connect(socket).expect("the daemon listens");
    let body = body.to_string();
    let headers =
        format!("host: varve\r\ncontent-type: application/json\r\ncontent-length: {}\r\n", body.len());
    let (head, answer) = talk(stream, &format!("POST {path}"), &headers, &body);
    assert!(head.starts_with("HTTP/1.1 200"), "{head} {answer}");
    answer
}

/// Head and body of the answer to a request with these headers.
pub(crate) fn ask(stream: impl Read + Write, path: &str, headers: &str) -> (String, String) {
    talk(stream, &format!("GET {path}"), headers, "")
}

fn talk(mut stream: impl Read + Write, request: &str, headers: &str, body: &str) -> (String, String) {
    let request = format!("{request} HTTP/1.1\r\nconnection: close\r\n{headers}\r\n{body}");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
    (head.to_owned(), body.to_owned())
}
