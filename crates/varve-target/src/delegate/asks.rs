//! Questions to the mapper, and the requests that wait for their answers.

use super::question::{About, Answer, Connection, Outstanding, Trimming, send};
use super::state::State;
use futures_util::future::{Either, select};
use std::pin::pin;
use varve_block::{Extent, IoError, LockMode, Moment, RangeGuard, TrackerGuard};
use varve_mapper::wire::Intent;

/// A question of this request is under way: others for the same range wait.
pub(super) struct Question<'a> {
    state: &'a State,
    pub(super) number: u64,
    /// DELEGATE3: for writes.
    landing: Option<TrackerGuard>,
    /// No trim of the range begins before what was copied for the answer is kept, so that a mapper that reconnects is sent it (DELEGATE6).
    no_trim: Option<RangeGuard>,
}

impl Question<'_> {
    /// Ends the question; what is returned is kept until what its answer led to is written (DELEGATE3).
    pub(super) fn into_landing(mut self) -> Option<TrackerGuard> {
        self.landing.take()
    }

    /// The request is given up, and the question is not: the mapper may still trim the range.
    pub(super) fn outlive(self, trimming: Option<Trimming>) {
        let mut outstanding = self.state.outstanding.borrow_mut();
        let entry = outstanding.get_mut(&self.number).expect("a question is under way until it is dropped");
        assert!(entry.answer.is_none(), "DELEGATE5: a trim that was answered has ended");
        entry.late = trimming;
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        let mut outstanding = self.state.outstanding.borrow_mut();
        let entry = outstanding.get(&self.number).expect("a question is under way until it is dropped");
        if entry.late.is_none() {
            outstanding.remove(&self.number);
        }
        self.state.changed.notify_all();
    }
}

/// What asking came to.
pub(super) enum Asked<'a> {
    /// Look again.
    Again,
    /// This is the answer, and others wait until the question is dropped.
    Answered(Question<'a>, Answer),
}

impl State {
    pub(super) fn deadline(&self) -> Moment {
        self.clock.now().after(self.options.answer_wait)
    }

    pub(super) fn next_number(&self) -> u64 {
        self.last_number.set(self.last_number.get() + 1);
        self.last_number.get()
    }

    /// Asks where `gap` is, unless another request is asking.
    pub(super) async fn ask(
        &self,
        gap: Extent,
        intent: Intent,
        deadline: Moment,
    ) -> Result<Asked<'_>, IoError> {
        let must_wait = || self.is_asked(gap.offset, intent) || self.changing.has(gap.offset);
        if must_wait() {
            self.until(deadline, || (!must_wait()).then_some(())).await?;
            return Ok(Asked::Again);
        }
        let no_trim = self.in_time(deadline, self.trims.lock(gap, LockMode::Shared)).await?;
        let landing = match intent {
            Intent::Write => Some(self.in_time(deadline, self.landing.enter()).await?),
            Intent::Read => None,
        };
        let connection = self.connection.borrow().clone();
        let Some(connection) = connection else {
            drop(landing);
            self.until(deadline, || self.connection.borrow().as_ref().map(|_| ())).await?;
            return Ok(Asked::Again);
        };
        let known = self.cache.borrow().knows(intent, gap.offset);
        if must_wait() || known {
            return Ok(Asked::Again);
        }
        self.count(|counters| counters.misses += 1);
        self.cache.borrow_mut().evict();
        let mut question = self.send_question(&connection, About::Range(gap, intent), landing);
        question.no_trim = Some(no_trim);
        match self.answer_to(&question, &connection, deadline).await? {
            Some(answer) => Ok(Asked::Answered(question, answer)),
            None => Ok(Asked::Again),
        }
    }

    /// Sends a question.
    pub(super) fn send_question(
        &self,
        connection: &Connection,
        about: About,
        landing: Option<TrackerGuard>,
    ) -> Question<'_> {
        let number = self.next_number();
        let outstanding = Outstanding { about, answer: None, failed: None, late: None };
        let before = self.outstanding.borrow_mut().insert(number, outstanding);
        assert!(before.is_none(), "numbers are used once");
        self.silent_since.set(self.silent_since.get().or(Some(self.clock.now())));
        send(connection, number, &about.message());
        Question { state: self, number, landing, no_trim: None }
    }

    /// Waits for the answer; none if the connection is lost before.
    pub(super) async fn answer_to(
        &self,
        question: &Question<'_>,
        connection: &Connection,
        deadline: Moment,
    ) -> Result<Option<Answer>, IoError> {
        let answer = || {
            let mut outstanding = self.outstanding.borrow_mut();
            let entry = outstanding.get_mut(&question.number).expect("a question that is under way");
            let answer = entry.answer.take();
            let is_lost = !self.is_connected(connection.number);
            (answer.is_some() || is_lost).then_some(answer)
        };
        self.until(deadline, answer).await
    }

    /// Whether the mapper answers a question in time; it is one whose answer changes nothing here.
    pub(super) async fn is_answering(&self) -> bool {
        let Some(connection) = self.connection.borrow().clone() else { return false };
        let question = self.send_question(&connection, About::Flush, None);
        matches!(self.answer_to(&question, &connection, self.deadline()).await, Ok(Some(_)))
    }

    /// The mapper has answered something: others that it was asked are waited for from now on.
    pub(super) fn note_answer(&self) {
        let is_waited_for = self.outstanding.borrow().values().any(|question| question.answer.is_none());
        self.silent_since.set(is_waited_for.then(|| self.clock.now()));
        self.has_failed.set(false);
    }

    pub(super) fn is_connected(&self, number: u64) -> bool {
        self.connection.borrow().as_ref().is_some_and(|connection| connection.number == number)
    }

    fn is_asked(&self, at: u64, intent: Intent) -> bool {
        self.outstanding.borrow().values().any(|question| {
            question
                .about
                .range()
                .is_some_and(|(extent, of)| of == intent && extent.contains(Extent::new(at, 1)))
        })
    }

    /// Waits for a value until the deadline (DELEGATE7).
    pub(super) async fn until<T>(
        &self,
        deadline: Moment,
        value: impl FnMut() -> Option<T>,
    ) -> Result<T, IoError> {
        self.in_time(deadline, self.changed.next(value)).await
    }

    /// Waits for the end of `work` until the deadline (DELEGATE7).
    pub(super) async fn in_time<T>(
        &self,
        deadline: Moment,
        work: impl Future<Output = T>,
    ) -> Result<T, IoError> {
        let left = deadline.since(self.clock.now());
        let ended = varve_block::timeout(&self.clock, left, work);
        let hopeless = self.changed.until(|| self.lets_fail.get() && self.connection.borrow().is_none());
        let ended = match select(pin!(ended), pin!(hopeless)).await {
            Either::Left((ended, _)) => ended,
            Either::Right(_) => None,
        };
        ended.ok_or_else(|| {
            self.count(|counters| counters.timeouts += 1);
            self.has_failed.set(self.silent_since.get().is_some());
            IoError::Medium
        })
    }
}
