//! Flushes: the devices, then the mapping.

use super::options::InjectedBug;
use super::question::{About, Answer};
use super::range_map::Target;
use super::state::State;
use crate::fan_out::flush_all;
use std::rc::Rc;
use varve_block::{Buffer, IoError, Outcome};
use varve_mapper::wire::{Status, ToMapper};

impl State {
    /// What was acknowledged before is durable, and so is where it is.
    pub(super) async fn flush(&self) -> Outcome {
        let is_mapped = self.answered.get() == self.flushed.get() && self.landing.is_empty();
        if is_mapped || !self.is_persistent.get() {
            self.flush_devices().await?;
            return Ok(Buffer::empty());
        }
        let deadline = self.deadline();
        let _closed = self.landing.close();
        if !self.has(InjectedBug::FlushMappingFirst) {
            self.in_time(deadline, self.landing.drained()).await?; // DELEGATE3
            self.flush_devices().await?;
        }
        loop {
            assert!(!self.landing.is_open(), "DELEGATE3");
            let last = self.answered.get();
            let connection = self.until(deadline, || self.connection.borrow().clone()).await?;
            let question = self.send_question(&connection, About::Flush, None);
            match self.answer_to(&question, &connection, deadline).await? {
                Some(Answer::Status(Status::Done)) => {
                    self.flushed.set(self.flushed.get().max(last));
                    assert!(self.flushed.get() <= self.answered.get(), "DELEGATE3");
                    self.cache.borrow_mut().flushed(last);
                    break;
                }
                Some(_) => return Err(IoError::Medium),
                None => {} // the connection was lost: the mapper that reconnects is sent what it needs
            }
        }
        if self.has(InjectedBug::FlushMappingFirst) {
            self.flush_devices().await?;
        }
        Ok(Buffer::empty())
    }

    /// Remembers that a device is written, so that it is flushed.
    pub(super) fn mark_written(&self, target: &Rc<Target>) {
        if !target.was_written.replace(true) {
            self.written.borrow_mut().push(Rc::clone(target));
        }
    }

    async fn flush_devices(&self) -> Result<(), IoError> {
        let written = self.written.borrow().clone();
        flush_all(written.iter().map(|target| &target.device)).await.map(drop)
    }

    /// Notifies the mapper when the ranges of which it wants to know are durable; never ends.
    pub(super) async fn send_notices(&self) {
        loop {
            self.changed.until(|| !self.notices.borrow().is_empty()).await;
            let notices = self.notices.take();
            if self.flush_devices().await.is_err() {
                continue; // the client gets the error when it flushes
            }
            for (number, extent) in notices {
                self.send(number, &ToMapper::Durable { offset: extent.offset, length: extent.length });
            }
        }
    }
}
