//! Discards and zeros: whole units of the mapper's are freed by it.

use super::question::{About, Answer};
use super::state::State;
use std::cell::Cell;
use varve_block::{Buffer, Extent, IoError, LockMode, Outcome};
use varve_mapper::wire::Status;

impl State {
    /// Frees what can be freed of the range.
    pub(super) async fn discard(&self, extent: Extent) -> Outcome {
        if let Some(units) = self.trim_units(extent) {
            self.trim(units).await?;
        }
        Ok(Buffer::empty())
    }

    /// What of `extent` the mapper that is connected can free.
    pub(super) fn trim_units(&self, extent: Extent) -> Option<Extent> {
        let unit = u64::from(self.welcome()?.trim_unit);
        let units = if unit == 0 { Extent::default() } else { extent.align_in(unit) };
        (!units.is_empty()).then_some(units)
    }

    /// Has the mapper free a range of whole units: it is zeros from then on.
    pub(super) async fn trim(&self, extent: Extent) -> Result<(), IoError> {
        assert!(!extent.is_empty() && self.shape.extent().contains(extent), "DELEGATE5: {extent:?}");
        let deadline = self.deadline();
        let _alone = self.in_time(deadline, self.trims.lock(extent, LockMode::Exclusive)).await?;
        let _changing = self.changing.add(extent);
        let aside = Aside::new(self, extent);
        self.in_time(deadline, self.drain()).await?; // DELEGATE5
        loop {
            let connection = self.until(deadline, || self.connection.borrow().clone()).await?;
            aside.asked.set(Some(connection.number));
            let question = self.send_question(&connection, About::Trim(extent), None);
            match self.answer_to(&question, &connection, deadline).await? {
                Some(Answer::Status(Status::Done)) => return Ok(()),
                Some(_) => {
                    aside.asked.set(None);
                    return Err(IoError::Medium);
                }
                None => {} // the connection was lost
            }
        }
    }
}

/// Answers for a range that is being trimmed: no request uses them, and a mapper that reconnects is sent them.
struct Aside<'a> {
    state: &'a State,
    extent: Extent,
    /// The connection on which the mapper was asked last, as long as it has not said that the trim failed.
    asked: Cell<Option<u64>>,
}

impl<'a> Aside<'a> {
    fn new(state: &'a State, extent: Extent) -> Self {
        state.cache.borrow_mut().set_aside(extent);
        Self { state, extent, asked: Cell::new(None) }
    }
}

impl Drop for Aside<'_> {
    /// A mapper that was asked and is still there may free the range whenever it likes: what was answered for it before is believed
    /// no more, and would be told again wrongly if the mapper died after it had used the places for something else. One
    /// that has said that it did not, or that has gone, has the range as it was (DELEGATE6).
    fn drop(&mut self) {
        let may_be_done = self.asked.get().is_some_and(|number| self.state.is_connected(number));
        let mut cache = self.state.cache.borrow_mut();
        match may_be_done {
            true => cache.trimmed(self.extent),
            false => cache.not_trimmed(self.extent),
        }
    }
}
