//! The kernel's interface to ublk: its numbers, and its structures as bytes in the order of this machine (`linux/ublk_cmd.h`).
//!
//! Invariant UBLKAPI1: what the kernel gives is decoded by its offsets; what it is given has zeros where nothing is said.

use crate::bell::Bell;
use std::io;
use std::sync::Arc;
use varve_block::{Access, MIB, Shape};

/// Data are copied by reading and writing the character device (Linux 6.5).
const USER_COPY: u64 = 1 << 7;
/// A device outlives its server, and its requests wait.
const USER_RECOVERY: u64 = 1 << 3;
/// What was in flight when a server ended is asked again.
const USER_RECOVERY_REISSUE: u64 = 1 << 4;
/// Commands have the numbers of ioctl.
const IOCTL_ENCODE: u64 = 1 << 6;
/// A device can have another size (Linux 6.16).
pub(super) const UPDATE_SIZE: u64 = 1 << 10;
/// What a kernel must have, and a device gets.
pub(super) const FEATURES: u64 = USER_COPY | USER_RECOVERY | USER_RECOVERY_REISSUE | IOCTL_ENCODE;

/// Requests that a device can have under way.
pub(super) const DEPTH: u16 = 128;
/// Bytes of one request's data.
const IO_BYTES_MAX: u32 = 1 << 20;
/// Bytes of one discard, or of one request for zeros.
const COVERED_MAX: u64 = 256 * MIB;
/// Bytes of a sector in the kernel's counting.
pub(super) const SECTOR: u64 = 512;
/// Bytes of a physical sector at most.
const PHYSICAL_MAX: u32 = 4096;
/// Bytes of a request's description.
pub(super) const DESCRIPTOR: usize = 24;
/// Marks the devices of this program.
const OWN_MARK: u64 = 0x5652 << 48;

const IS_READ_ONLY: u32 = 1;
const HAS_CACHE: u32 = 1 << 2;
const HAS_FUA: u32 = 1 << 3;
const HAS_BASIC: u32 = 1;
const HAS_DISCARD: u32 = 1 << 1;

/// Number of an ioctl that only reads, and of one that reads and writes.
const fn number(direction: u32, size: u32, number: u32) -> u32 {
    direction << 30 | size << 16 | (b'u' as u32) << 8 | number
}

/// Takes the first request under a tag.
pub(super) const FETCH: u32 = number(3, 16, 0x20);
/// Answers a request and takes the next one under its tag.
pub(super) const COMMIT_AND_FETCH: u32 = number(3, 16, 0x21);

/// What the kernel's side of ublk is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    GetInfo,
    Add,
    Delete,
    Start,
    Stop,
    SetParameters,
    StartRecovery,
    EndRecovery,
    GetFeatures,
    /// Deletes it once nothing has it open (Linux 6.9).
    DeleteLater,
    UpdateSize,
}

impl Operation {
    /// Its number.
    pub(super) const fn number(self) -> u32 {
        match self {
            Self::GetInfo => number(2, 32, 0x02),
            Self::Add => number(3, 32, 0x04),
            Self::Delete => number(3, 32, 0x05),
            Self::Start => number(3, 32, 0x06),
            Self::Stop => number(3, 32, 0x07),
            Self::SetParameters => number(3, 32, 0x08),
            Self::StartRecovery => number(3, 32, 0x10),
            Self::EndRecovery => number(3, 32, 0x11),
            Self::GetFeatures => number(2, 32, 0x13),
            Self::DeleteLater => number(2, 32, 0x14),
            Self::UpdateSize => number(3, 32, 0x15),
        }
    }

    /// As the kernel's documents call it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::GetInfo => "GET_DEV_INFO",
            Self::Add => "ADD_DEV",
            Self::Delete => "DEL_DEV",
            Self::Start => "START_DEV",
            Self::Stop => "STOP_DEV",
            Self::SetParameters => "SET_PARAMS",
            Self::StartRecovery => "START_USER_RECOVERY",
            Self::EndRecovery => "END_USER_RECOVERY",
            Self::GetFeatures => "GET_FEATURES",
            Self::DeleteLater => "DEL_DEV_ASYNC",
            Self::UpdateSize => "UPDATE_SIZE",
        }
    }
}

/// A command about a device.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) operation: Operation,
    /// The device; `u32::MAX` for one that the kernel is to choose, or for none.
    pub(super) device: u32,
    /// A number that goes with it.
    pub(super) data: u64,
    /// What the kernel reads, and writes its answer to.
    pub(super) buffer: Vec<u8>,
}

impl Command {
    /// About a device, without anything else.
    pub(super) fn about(operation: Operation, device: u32) -> Self {
        Self { operation, device, data: 0, buffer: Vec::new() }
    }

    /// With a number.
    pub(super) fn with(operation: Operation, device: u32, data: u64) -> Self {
        Self { data, ..Self::about(operation, device) }
    }

    /// With room for an answer, or with what the kernel is to read.
    pub(super) fn over(operation: Operation, device: u32, buffer: Vec<u8>) -> Self {
        Self { buffer, ..Self::about(operation, device) }
    }
}

/// The bytes of a command whose buffer is at `address`.
pub(super) fn encode(command: &Command, address: u64) -> [u8; 32] {
    let length = u16::try_from(command.buffer.len()).expect("the structures of ublk are short");
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&command.device.to_ne_bytes());
    bytes[4..6].copy_from_slice(&u16::MAX.to_ne_bytes()); // About no queue.
    bytes[6..8].copy_from_slice(&length.to_ne_bytes());
    bytes[8..16].copy_from_slice(&address.to_ne_bytes());
    bytes[16..24].copy_from_slice(&command.data.to_ne_bytes());
    bytes
}

/// The bytes of a queue's command.
pub(super) fn encode_io(tag: u16, result: i32) -> [u8; 16] {
    let mut bytes = [0; 16]; // The first queue; no address.
    bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    bytes
}

/// Where the character device has the data of the request under `tag` of the first queue.
pub(super) fn data_at(tag: u16) -> u64 {
    0x8000_0000 + (u64::from(tag) << 25)
}

/// Where a device stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It is no block device, yet or any more.
    Dead,
    /// It is served.
    Live,
    /// Its server has ended, and its requests wait.
    Quiesced,
    /// Its server has ended, and its requests fail.
    Failing,
    /// What this program does not know.
    Other,
}

impl State {
    /// In an error.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Live => "live",
            Self::Quiesced => "quiesced",
            Self::Failing => "failing",
            Self::Other => "in an unknown state",
        }
    }
}

/// What the kernel knows of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Info {
    pub(super) device: u32,
    pub(super) state: State,
    pub(super) queues: u16,
    pub(super) depth: u16,
    /// What its server wrote down for itself.
    pub(super) identity: u64,
}

/// Bytes of [`Info`].
pub(super) const INFO: usize = 64;

impl Info {
    /// Decodes what the kernel has answered; none if it is too short.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let short = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let state = match short(4)? {
            0 => State::Dead,
            1 => State::Live,
            2 => State::Quiesced,
            3 => State::Failing,
            _ => State::Other,
        };
        let identity = u64::from_ne_bytes(bytes.get(32..40)?.try_into().ok()?);
        Some(Self { device: word(12)?, state, queues: short(0)?, depth: short(2)?, identity })
    }

    /// What a new device is asked for with.
    pub(super) fn encode_new(identity: u64) -> Vec<u8> {
        let mut bytes = vec![0; INFO];
        bytes[..2].copy_from_slice(&1_u16.to_ne_bytes());
        bytes[2..4].copy_from_slice(&DEPTH.to_ne_bytes());
        bytes[8..12].copy_from_slice(&IO_BYTES_MAX.to_ne_bytes());
        bytes[12..16].copy_from_slice(&u32::MAX.to_ne_bytes());
        bytes[24..32].copy_from_slice(&FEATURES.to_ne_bytes());
        bytes[32..40].copy_from_slice(&identity.to_ne_bytes());
        bytes
    }
}

/// What tells the device of `text` from all others, in the 64 bits that the kernel keeps of it: a mark of 16, and 48 of a digest (FNV-1a).
pub(super) fn identity(text: &str) -> u64 {
    let step = |digest: u64, byte: u8| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let digest = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    OWN_MARK | digest & 0xffff_ffff_ffff
}

/// Bytes that a device of this shape has for the kernel.
pub(super) fn size(shape: Shape) -> u64 {
    shape.size - shape.size % SECTOR
}

/// What the kernel hears of a device of this shape.
pub(super) fn parameters(shape: Shape) -> Vec<u8> {
    let is_read_only = shape.access == Access::ReadOnly;
    let attributes = if is_read_only { IS_READ_ONLY } else { HAS_CACHE | HAS_FUA };
    let physical = shape.optimal_size.clamp(SECTOR as u32, PHYSICAL_MAX);
    let shift = physical.trailing_zeros() as u8;
    let covered = (COVERED_MAX / SECTOR) as u32;
    let if_able = |is_able: bool| if is_able && !is_read_only { covered } else { 0 };
    let (discards, zeros) = (if_able(shape.discard), if_able(shape.fast_zero));
    let mut bytes = Vec::with_capacity(60);
    let mut add = |part: &[u8]| bytes.extend_from_slice(part);
    add(&60_u32.to_ne_bytes());
    add(&(HAS_BASIC | HAS_DISCARD).to_ne_bytes());
    add(&attributes.to_ne_bytes());
    add(&[SECTOR.trailing_zeros() as u8, shift, shift, shift]);
    add(&(IO_BYTES_MAX / SECTOR as u32).to_ne_bytes());
    add(&0_u32.to_ne_bytes());
    add(&(size(shape) / SECTOR).to_ne_bytes());
    add(&0_u64.to_ne_bytes());
    add(&0_u32.to_ne_bytes());
    add(&physical.to_ne_bytes());
    add(&discards.to_ne_bytes());
    add(&zeros.to_ne_bytes());
    add(&1_u16.to_ne_bytes());
    add(&0_u16.to_ne_bytes());
    bytes
}

/// The kernel.
pub(super) trait Kernel: Send + Sync {
    /// Carries a command out, which may take as long as the kernel likes; its buffer with the answer.
    fn carry_out(&self, command: Command) -> io::Result<Vec<u8>>;
    /// The queue of a device, for the thread that asks. Ringing ends a wait for requests.
    fn open(&self, device: u32, bell: &Arc<Bell>) -> io::Result<Box<dyn Queue>>;
}

/// A queue of requests, used by one thread.
pub(super) trait Queue {
    /// The way to the data of its requests.
    fn data(&self) -> Arc<dyn Data>;
    /// The description of the request under `tag`.
    fn descriptor(&self, tag: u16) -> io::Result<[u8; DESCRIPTOR]>;
    /// Asks for the first request under `tag`.
    fn fetch(&mut self, tag: u16) -> io::Result<()>;
    /// Answers the request under `tag`, and asks for the next one.
    fn commit(&mut self, tag: u16, result: i32) -> io::Result<()>;
    /// Hands over what was asked; takes what has come: tags, and why there is nothing under them. Waits, if it is to, until something comes or
    /// it rings.
    fn turn(&mut self, waits: bool) -> io::Result<Vec<(u16, i32)>>;
}

/// The data of requests that are taken and not answered.
pub(super) trait Data: Send + Sync {
    /// Takes those of a write.
    fn take(&self, tag: u16, data: &mut [u8]) -> io::Result<()>;
    /// Gives those of a read.
    fn give(&self, tag: u16, data: &[u8]) -> io::Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_the_kernel() {
        assert_eq!(Operation::Add.number(), 0xc020_7504);
        assert_eq!(Operation::GetFeatures.number(), 0x8020_7513);
        assert_eq!(Operation::UpdateSize.number(), 0xc020_7515);
        assert_eq!((FETCH, COMMIT_AND_FETCH), (0xc010_7520, 0xc010_7521));
        assert_eq!(data_at(3), 0x8000_0000 + 3 * (32 << 20));
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn structures_have_the_bytes_of_the_kernel() {
        let command = Command { data: 7, ..Command::over(Operation::Start, 2, vec![0; 64]) };
        let mut wanted = [0; 32];
        wanted[..8].copy_from_slice(&[2, 0, 0, 0, 0xff, 0xff, 64, 0]);
        (wanted[8], wanted[16]) = (0x10, 7);
        assert_eq!(encode(&command, 0x10), wanted);
        assert_eq!(encode_io(5, -5)[..8], [0, 0, 5, 0, 0xfb, 0xff, 0xff, 0xff]);
        assert_eq!(encode_io(5, -5)[8..], [0; 8], "UBLKRING2");
        let new = Info::encode_new(OWN_MARK | 9);
        assert_eq!(new[..16], [1, 0, 128, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(new[24..40], [0xd8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0x52, 0x56]);
        let info = Info::decode(&new).expect("it is whole");
        let wanted =
            Info { device: u32::MAX, state: State::Dead, queues: 1, depth: DEPTH, identity: OWN_MARK | 9 };
        assert_eq!(info, wanted);
        assert_eq!(Info::decode(&new[..39]), None, "UBLKAPI1");
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn the_kernel_hears_what_a_device_can_do() {
        let shape = Shape { optimal_size: 4096, discard: true, ..Shape::new((1 << 20) + 100, 1) };
        let told = parameters(shape);
        assert_eq!(told[..8], [60, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(told[8..24], [0b1100, 0, 0, 0, 9, 12, 12, 12, 0, 8, 0, 0, 0, 0, 0, 0]);
        assert_eq!(told[24..32], 2048_u64.to_ne_bytes(), "whole sectors");
        assert_eq!(told[44..], [0, 16, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        let told = parameters(Shape { access: Access::ReadOnly, ..shape });
        assert_eq!(
            (told[8], &told[48..56]),
            (1, &[0; 8][..]),
            "a device that is not written discards nothing"
        );
        assert_eq!(parameters(Shape::new(1 << 20, 1))[12..16], [9, 9, 9, 9]);
    }

    #[test]
    fn devices_are_told_apart_by_what_the_kernel_keeps() {
        let one = identity("varve:0a:/dev/varve/data/v");
        assert_eq!(one, identity("varve:0a:/dev/varve/data/v"));
        assert_ne!(one, identity("varve:0a:/dev/varve/data/w"));
        assert_eq!(one >> 48, 0x5652);
    }
}
