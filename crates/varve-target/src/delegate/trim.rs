//! Discards and zeros: whole units of the mapper's are freed by it.
//!
//! A trim that is not answered in time outlives its request, which fails: the mapper may still carry it out, at any moment. So the range
//! stays set aside, and no other one is sent, until the answer comes or the connection is lost.

use super::question::{About, Answer, Trimming};
use super::state::State;
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
        self.until(deadline, || (!self.has_late_trims()).then_some(())).await?;
        let alone = self.in_time(deadline, self.trims.lock(extent, LockMode::Exclusive)).await?;
        let aside = Aside::new(self, Trimming::new(extent, self.changing.add(extent), alone));
        self.in_time(deadline, self.drain()).await?; // DELEGATE5
        loop {
            let connection = self.until(deadline, || self.connection.borrow().clone()).await?;
            let question = self.send_question(&connection, About::Trim(extent), None);
            match self.answer_to(&question, &connection, deadline).await {
                Ok(Some(Answer::Status(Status::Done))) => return Ok(()),
                Ok(Some(_)) => return Err(IoError::Medium),
                Ok(None) => {} // the connection was lost
                Err(error) => {
                    if self.is_connected(connection.number) {
                        question.outlive(aside.into_trimming());
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Whether the mapper has not answered a trim whose request was given up.
    fn has_late_trims(&self) -> bool {
        self.outstanding.borrow().values().any(|question| question.late.is_some())
    }

    /// The trim of question `number` has ended, whose request was given up, if it is one.
    pub(super) fn end_late_trim(&self, number: u64) {
        let mut outstanding = self.outstanding.borrow_mut();
        if outstanding.get(&number).is_some_and(|question| question.late.is_some()) {
            let late = outstanding.remove(&number).and_then(|question| question.late);
            late.into_iter().for_each(|trimming| self.put_back(&trimming));
        }
    }

    /// The connection is lost: no trim that was sent on it is carried out any more. Returns whether there was one.
    pub(super) fn lose_connection(&self) -> bool {
        let was_connected = self.connection.take().is_some();
        let questions: Vec<u64> = self.outstanding.borrow().keys().copied().collect();
        questions.into_iter().for_each(|number| self.end_late_trim(number));
        assert!(!self.has_late_trims(), "DELEGATE5: a trim ends with its connection");
        self.changed.notify_all();
        was_connected
    }

    /// What was answered for a range before its trim is sent again, unless the trim was done (DELEGATE6).
    fn put_back(&self, trimming: &Trimming) {
        assert!(self.changing.has(trimming.extent.offset), "DELEGATE5: no answer was kept meanwhile");
        self.cache.borrow_mut().not_trimmed(trimming.extent);
    }
}

/// Answers for a range that is being trimmed: no request uses them, and a mapper that reconnects is sent them.
struct Aside<'a> {
    state: &'a State,
    trimming: Option<Trimming>,
}

impl<'a> Aside<'a> {
    fn new(state: &'a State, trimming: Trimming) -> Self {
        state.cache.borrow_mut().set_aside(trimming.extent);
        Self { state, trimming: Some(trimming) }
    }

    /// The range stays as it is without the request.
    fn into_trimming(mut self) -> Option<Trimming> {
        self.trimming.take()
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        self.trimming.take().into_iter().for_each(|trimming| self.state.put_back(&trimming));
    }
}
