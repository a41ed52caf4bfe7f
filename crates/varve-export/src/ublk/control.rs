//! Commands about devices, each on a thread of its own: the kernel may keep a command for ever, and nothing else waits then.
//!
//! Invariant UBLKCONTROL1: a command is given up after a bounded time, and after one that was given up no other one is sent, but to ask for
//! the state of the device.

use super::uapi::{Command, FEATURES, INFO, Info, Kernel, Operation, State, identity, parameters};
use crate::attach::{AttachError, Driver};
use crate::bell::Spawn;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use varve_block::Shape;

/// How long the kernel may take for a command; less than opening or closing may last.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(20);
/// How long it may take to say in which state a device is.
const STATE_MAX: Duration = Duration::from_secs(2);

/// The kernel, asked in bounded time.
pub(super) struct Control {
    pub(super) kernel: Arc<dyn Kernel>,
    spawn: Spawn,
    limit: Duration,
    is_stuck: AtomicBool,
}

/// The block device of a number.
pub(super) fn name(device: u32) -> String {
    format!("ublkb{device}")
}

impl Control {
    /// Asks `kernel`, on threads that `spawn` starts, each for at most `limit`.
    pub(super) fn new(kernel: Arc<dyn Kernel>, spawn: Spawn, limit: Duration) -> Self {
        Self { kernel, spawn, limit, is_stuck: AtomicBool::new(false) }
    }

    /// What the kernel can do; refuses one that cannot serve a device as it is to be served.
    pub(super) fn features(&self) -> Result<u64, AttachError> {
        let command = Command::over(Operation::GetFeatures, u32::MAX, vec![0; 8]);
        let bytes = self.ask(command, self.limit).map_err(|error| match error {
            Unanswered::Refused(error) => match Errno::from_io_error(&error) {
                // It does not know the question.
                Some(Errno::INVAL | Errno::OPNOTSUPP) => AttachError::TooOld(Driver::Ublk),
                _ => AttachError::NoRing(error),
            },
            Unanswered::Stuck => self.stuck(Operation::GetFeatures, u32::MAX),
        })?;
        let features = bytes.try_into().map_or(0, u64::from_ne_bytes);
        if features & FEATURES == FEATURES { Ok(features) } else { Err(AttachError::TooOld(Driver::Ublk)) }
    }

    /// Makes a device that is no block device yet; its number.
    pub(super) fn add(&self, identity: u64) -> Result<u32, AttachError> {
        let info = self.run(Command::over(Operation::Add, u32::MAX, Info::encode_new(identity)))?;
        let info = Info::decode(&info).expect("an answer is as long as what was asked with");
        Ok(info.device)
    }

    /// Says what a device is like that has not been started.
    pub(super) fn describe(&self, device: u32, shape: Shape) -> Result<(), AttachError> {
        self.run(Command::over(Operation::SetParameters, device, parameters(shape))).map(drop)
    }

    /// Carries out a command about a device.
    pub(super) fn run(&self, command: Command) -> Result<Vec<u8>, AttachError> {
        let (operation, device) = (command.operation, command.device);
        self.ask(command, self.limit).map_err(|error| match error {
            Unanswered::Refused(error) => failed(operation, device, error),
            Unanswered::Stuck => self.stuck(operation, device),
        })
    }

    /// Has the next server begin to serve a device on; false as long as the kernel has not seen the end of the last one.
    pub(super) fn start_recovery(&self, device: u32) -> Result<bool, AttachError> {
        match self.ask(Command::about(Operation::StartRecovery, device), self.limit) {
            Ok(_) => Ok(true),
            Err(Unanswered::Refused(error)) if Errno::from_io_error(&error) == Some(Errno::BUSY) => Ok(false),
            Err(Unanswered::Refused(error)) => Err(failed(Operation::StartRecovery, device, error)),
            Err(Unanswered::Stuck) => Err(self.stuck(Operation::StartRecovery, device)),
        }
    }

    /// The device of `wanted`, of those whose character devices are in `folder`.
    pub(super) fn find(&self, folder: &Path, wanted: u64) -> Option<Info> {
        let names = std::fs::read_dir(folder).ok()?.filter_map(Result::ok).map(|entry| entry.file_name());
        let numbers = names.filter_map(|name| name.to_str()?.strip_prefix("ublkc")?.parse().ok());
        numbers.filter_map(|number| self.info(number)).find(|info| info.identity == wanted)
    }

    /// What the kernel knows of a device.
    fn info(&self, device: u32) -> Option<Info> {
        let answer = self.ask(Command::over(Operation::GetInfo, device, vec![0; INFO]), STATE_MAX);
        Info::decode(&answer.ok()?)
    }

    /// The error of a command that the kernel does not end.
    pub(super) fn stuck(&self, operation: Operation, device: u32) -> AttachError {
        let state = self.info(device).map_or("in a state that it does not tell", |info| info.state.name());
        let device = format!("{}, which is {state}", node(device).display());
        AttachError::Stuck { command: operation.name(), device }
    }

    fn ask(&self, command: Command, limit: Duration) -> Result<Vec<u8>, Unanswered> {
        let asks_state = command.operation == Operation::GetInfo;
        if self.is_stuck.load(Ordering::Acquire) && !asks_state {
            return Err(Unanswered::Stuck); // UBLKCONTROL1
        }
        let (sender, answer) = channel();
        let kernel = Arc::clone(&self.kernel);
        let work = move || drop(sender.send(kernel.carry_out(command)));
        (self.spawn)("varve-ublk-ctl", Box::new(work)).map_err(Unanswered::Refused)?;
        match answer.recv_timeout(limit) {
            Ok(answer) => answer.map_err(Unanswered::Refused),
            Err(RecvTimeoutError::Timeout) => {
                self.is_stuck.fetch_or(!asks_state, Ordering::AcqRel);
                Err(Unanswered::Stuck)
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(Unanswered::Refused(io::Error::other("the thread that asked has ended")))
            }
        }
    }
}

/// Why there is no answer.
enum Unanswered {
    Refused(io::Error),
    Stuck,
}

fn node(device: u32) -> PathBuf {
    Path::new("/dev").join(name(device))
}

fn failed(operation: Operation, device: u32, error: io::Error) -> AttachError {
    let path = if device == u32::MAX { "a device".into() } else { node(device) };
    AttachError::failed(operation.name(), path)(error)
}

/// What the kernel keeps of the device of a volume at a link.
pub(super) fn identity_of(volume: &str, link: &Path) -> u64 {
    identity(&format!("varve:{volume}:{}", link.display()))
}

impl State {
    /// Whether a device in this state is of no use to anybody: its server ended before it was a block device, or after it was one.
    pub(super) fn is_left_over(self) -> bool {
        self == Self::Dead
    }
}
