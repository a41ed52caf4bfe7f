//! A server process under measurement: started, waited for, and ended whatever happens.

use crate::prelude::*;
use crate::programs::watch::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

/// How long a server may take to listen.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How long a server may take to end in order.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// A running server; dropping it ends it.
pub(crate) struct Server {
    child: Child,
    /// The process that serves, where that is not the child itself.
    follower: Option<Pid>,
    log: PathBuf,
}

impl Server {
    /// Starts `program`; what it says goes to `log`. Where `setpriv` is installed the server also dies if the
    /// benchmark is killed.
    pub(crate) fn start(program: &Path, arguments: &[String], log: &Path) -> Outcome<Self> {
        let complain = |error: std::io::Error| format!("{}: {error}", program.display());
        let mut command = if Path::new("/usr/bin/setpriv").exists() {
            let mut command = Command::new("/usr/bin/setpriv");
            command.args(["--pdeathsig", "KILL"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        let output = File::create(log).map_err(complain)?;
        let child = command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(complain)?)
            .stderr(output)
            .spawn()
            .map_err(complain)?;
        Ok(Self { child, follower: None, log: log.to_owned() })
    }

    /// For a server that goes into the background: takes the number of its process from `file`.
    pub(crate) fn follow(&mut self, file: &Path) -> Outcome<()> {
        let mut number = None;
        let came = wait_until(START_LIMIT, || {
            number = fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
            number.is_some()
        });
        self.follower = number.and_then(Pid::from_raw);
        if came { Ok(()) } else { Err(format!("did not start: {}", self.last_words()).into()) }
    }

    /// Waits until something listens on `socket`.
    pub(crate) fn wait_for_socket(&mut self, socket: &Path) -> Outcome<()> {
        self.wait_for(|| UnixStream::connect(socket).is_ok())
    }

    /// Waits until the server has said `word` on a line of its own.
    pub(crate) fn wait_for_word(&mut self, word: &str) -> Outcome<()> {
        let log = self.log.clone();
        self.wait_for(|| fs::read_to_string(&log).unwrap_or_default().lines().any(|line| line.trim() == word))
    }

    fn wait_for(&mut self, mut ready: impl FnMut() -> bool) -> Outcome<()> {
        let mut ended = false;
        let Self { child, follower, .. } = self;
        let came = wait_until(START_LIMIT, || {
            ended = follower.is_none() && matches!(child.try_wait(), Ok(Some(_)));
            ended || ready()
        });
        if came && !ended { Ok(()) } else { Err(format!("did not start: {}", self.last_words()).into()) }
    }

    /// The last line of what it said.
    fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message").trim().to_owned()
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        let follower = self.follower.and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
        follower.unwrap_or(self.child.id())
    }

    /// Asks it to end and waits for that; kills it if it does not.
    pub(crate) fn stop(mut self) -> Outcome<()> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // If it has ended already there is nothing to ask.
            let _ = kill_process(pid, Signal::TERM);
        }
        let child = &mut self.child;
        if wait_until(STOP_LIMIT, || matches!(child.try_wait(), Ok(Some(_)))) {
            return Ok(());
        }
        Err(format!("did not end on SIGTERM within {} s", STOP_LIMIT.as_secs()).into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = self.follower {
            // Fails only if it has ended already.
            let _ = kill_process(pid, Signal::KILL);
        }
        // Both fail only if it has ended and been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_in_the_background_is_followed_and_ended() {
        let directory = tempfile::tempdir().expect("a directory");
        let (log, file) = (directory.path().join("log"), directory.path().join("pid"));
        let text = format!("sleep 60 & echo $! > {}", file.display());
        let mut server =
            Server::start(Path::new("/bin/sh"), &["-c".to_owned(), text], &log).expect("a shell");
        server.follow(&file).expect("its number");
        let process = PathBuf::from(format!("/proc/{}/stat", server.pid()));
        // The shell writes the number of its copy, which executes `sleep` a moment later.
        let sleeps = || fs::read_to_string(&process).expect("it runs").contains("(sleep)");
        assert!(wait_until(Duration::from_secs(5), sleeps));
        drop(server);
        let gone = || fs::read_to_string(&process).map_or(true, |stat| stat.contains(") Z "));
        assert!(wait_until(Duration::from_secs(5), gone));
    }

    #[test]
    fn a_dropped_server_is_gone_and_a_dead_one_is_noticed() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("log");
        let shell = Path::new("/bin/sh");
        let script = |text: &str| vec!["-c".to_owned(), text.to_owned()];
        let mut alive = Server::start(shell, &script("echo ready; exec sleep 60"), &log).expect("a shell");
        alive.wait_for_word("ready").expect("its word");
        let process = PathBuf::from(format!("/proc/{}", alive.pid()));
        assert!(process.exists());
        drop(alive);
        assert!(!process.exists());
        let mut dead = Server::start(shell, &script("echo no luck; exit 1"), &log).expect("a shell");
        let message = dead.wait_for_socket(&directory.path().join("none")).expect_err("it ended");
        assert!(message.0.contains("no luck"), "{message:?}");
    }
}
