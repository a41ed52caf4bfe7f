//! A device in memory, for tests of doors.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use varve_block::{Buffer, Done, Extent, Io, IoError, Outcome, Portal, Shape, StatusRun, Submit};

/// Bytes of the device.
pub(crate) const SIZE: u64 = 1 << 20;

/// A device that keeps requests back when it is set to, and refuses what is neither a read, a write nor a flush.
pub(crate) struct Memory {
    pub(crate) content: Mutex<Vec<u8>>,
    refusal: IoError,
    kept: Mutex<VecDeque<(Io, Done<Outcome>)>>,
    /// How many of the next requests it keeps.
    keeps: Mutex<usize>,
}

impl Memory {
    /// One of zeros.
    pub(crate) fn new(refusal: IoError) -> Arc<Self> {
        let content = Mutex::new(vec![0; SIZE as usize]);
        Arc::new(Self { content, refusal, kept: Mutex::default(), keeps: Mutex::default() })
    }

    pub(crate) fn portal(self: &Arc<Self>, shape: Shape) -> Portal {
        Portal::new(shape, Arc::clone(self) as Arc<dyn Submit>)
    }

    fn carry_out(&self, io: Io) -> Outcome {
        let mut content = self.content.lock().expect("no panic");
        match io {
            Io::Read { offset, mut buffer } => {
                let length = buffer.len();
                buffer.copy_from_slice(&content[offset as usize..][..length]);
                Ok(buffer)
            }
            Io::Write { offset, data, .. } => {
                content[offset as usize..][..data.len()].copy_from_slice(&data);
                Ok(Buffer::empty())
            }
            Io::Flush => Ok(Buffer::empty()),
            _ => Err(self.refusal),
        }
    }

    /// Keeps so many of the next requests back.
    pub(crate) fn keep(&self, count: usize) {
        *self.keeps.lock().expect("no panic") = count;
    }

    /// How many are kept back.
    pub(crate) fn kept(&self) -> usize {
        self.kept.lock().expect("no panic").len()
    }

    /// Carries out the first of those.
    pub(crate) fn release(&self) {
        let (io, done) = self.kept.lock().expect("no panic").pop_front().expect("one is kept");
        done(self.carry_out(io));
    }
}

impl Submit for Memory {
    fn submit(&self, io: Io, done: Done<Outcome>) {
        let mut keeps = self.keeps.lock().expect("no panic");
        if *keeps > 0 {
            *keeps -= 1;
            self.kept.lock().expect("no panic").push_back((io, done));
        } else {
            drop(keeps);
            done(self.carry_out(io));
        }
    }

    fn status(&self, _: Extent, done: Done<Result<Vec<StatusRun>, IoError>>) {
        done(Err(IoError::Medium));
    }
}
