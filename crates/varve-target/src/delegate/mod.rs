//! A volume whose mapping a program decides: the *mapper*. It is asked for the place of a range, and the answer is kept; data never passes it.
//!
//! [`Delegate`] is the device; [`Delegate::run`] keeps the connection and is run by its owner as long as the volume is in use.
//!
//! Invariants:
//! - DELEGATE1. A request reaches only devices that the engine gave to the mapper or that came from it, inside their bounds, and a
//!   write only those that may be written.
//! - DELEGATE2. What an answer has copied is copied, but for what the request itself writes, before any other request is led there;
//!   if that fails the mapper is notified that its answer does not hold, and no answer counts that it may have given before.
//! - DELEGATE3. When the mapper is asked to make its mapping durable, all that is where its answers said is durable: no answer for
//!   writes is under way meanwhile, nor the write of the request that asked.
//! - DELEGATE4. When an invalidation is acknowledged, no request uses what it made invalid, and none will.
//! - DELEGATE5. What a trim frees is used by no request from before the trim is sent to the mapper until it has answered, or its
//!   connection is lost, whether or not the request that asked for the trim waits that long.
//! - DELEGATE6. An answer that clients rely on and that the mapper has not made durable is sent to it when it reconnects,
//!   before any question.
//! - DELEGATE7. A request that needs an answer waits for it at most for the time that was set, and no other request waits for it.
//! - DELEGATE8. The mapper is notified that a range of its answer is durable when what the answer has copied and all that the
//!   request that asked writes in the range is written where the answer said, and flushed; on the connection of the answer only.

mod answers;
mod asks;
mod cache;
mod changes;
mod changing;
mod connection;
mod flush;
mod link;
mod notices;
mod options;
mod question;
mod range_map;
mod reads;
mod state;
mod trim;

pub use link::{Connector, Link, LinkError, Received};
pub use options::{DelegateOptions, DelegateStatus, InjectedBug};

use state::State;
use std::rc::Rc;
use varve_block::{Arena, BlockDevice, Checked, Clock, Completion, Extent, Io, MapFuture, MapIntent, Shape};

/// The device. Cloning shares it.
#[derive(Clone)]
pub struct Delegate(Rc<State>);

impl Delegate {
    /// A volume whose mapper is not connected yet.
    pub fn new(options: DelegateOptions, clock: &Clock, arena: &Arena) -> Self {
        Self::with_bug(options, clock, arena, None)
    }

    /// Like [`Delegate::new`], with a fault.
    #[doc(hidden)]
    pub fn with_bug(
        options: DelegateOptions,
        clock: &Clock,
        arena: &Arena,
        bug: Option<InjectedBug>,
    ) -> Self {
        Self(Rc::new(State::new(options, clock, arena, bug)))
    }

    /// Keeps the connection to the mapper; never ends.
    pub async fn run(&self, connector: &dyn Connector) {
        futures_util::future::join(self.0.keep_connected(connector), self.0.send_notices()).await;
    }

    /// Requests that wait for a mapper that is away fail from now on, or wait again.
    pub fn let_fail(&self, lets_fail: bool) {
        self.0.lets_fail.set(lets_fail);
        self.0.changed.notify_all();
    }

    /// Closes the connection; nothing waits for the mapper any more. [`Delegate::run`] has ended, or never makes another one.
    pub fn disconnect(&self) {
        self.0.lose_connection();
        self.let_fail(true);
    }

    /// Whether the mapper is there and answers within the time that a request has.
    pub async fn is_answering(&self) -> bool {
        self.0.is_answering().await
    }

    /// Waits until the mapper is there, or is away.
    pub async fn connected(&self, is_connected: bool) {
        self.0.changed.until(|| self.0.connection.borrow().is_some() == is_connected).await;
    }

    /// Why the last connection to the mapper ended, if one did.
    pub fn why_away(&self) -> Option<String> {
        self.0.ended.borrow().clone()
    }

    /// How the volume and its mapper are.
    pub fn status(&self) -> DelegateStatus {
        let cache = self.0.cache.borrow();
        DelegateStatus {
            is_connected: self.0.connection.borrow().is_some(),
            entries: cache.len(),
            unflushed: cache.unflushed(),
            has_failed: self.0.has_failed.get(),
            silence: self
                .0
                .silent_since
                .get()
                .map(|since| self.0.clock.now().since(since))
                .unwrap_or_default(),
            ..self.0.counters.get()
        }
    }
}

impl BlockDevice for Delegate {
    fn shape(&self) -> Shape {
        self.0.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let state = &self.0;
        match state.hit(io.into_io()) {
            Ok(completion) => completion,
            Err(Io::Read { offset, buffer }) => Completion::pending(state.read(offset, buffer)),
            Err(Io::Flush) => Completion::pending(state.flush()),
            Err(Io::Discard { extent }) => Completion::pending(state.discard(extent)),
            Err(io) => Completion::pending(state.change(io)),
        }
    }

    /// What the mapper has answered is where it said; invalidations wait for every use of that (DELEGATE4). The rest is
    /// unknown.
    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        self.0.lead(extent, intent).ready()
    }
}
