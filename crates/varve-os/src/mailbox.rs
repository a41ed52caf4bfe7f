//! What other threads send to a shard: mailboxes of one kind of message each, and what wakes the shard for all of them.
//!
//! Invariants:
//! - MAILBOX1. A message that was accepted is delivered; one that comes after the mailbox was closed is handed back.
//! - MAILBOX2. A shard that sleeps has seen that no message was pending after it said that it sleeps, so none is left lying.

use rustix::event::EventfdFlags;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Wakes a shard; all its mailboxes share it.
pub(crate) struct Notify {
    /// Whether there may be messages; a hint that saves the locks.
    pending: AtomicBool,
    sleeping: AtomicBool,
    event: OwnedFd,
}

impl Notify {
    pub(crate) fn new() -> std::io::Result<Arc<Self>> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { pending: AtomicBool::new(false), sleeping: AtomicBool::new(false), event }))
    }

    /// Whether there may be messages in the mailboxes; forgets it.
    pub(crate) fn take_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) && self.pending.swap(false, Ordering::SeqCst)
    }

    /// Says that the shard is about to sleep; false if a message is pending, so that it must not (MAILBOX2).
    pub(crate) fn try_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        let is_pending = self.pending.load(Ordering::SeqCst);
        if is_pending {
            self.sleeping.store(false, Ordering::SeqCst);
        }
        !is_pending
    }

    /// Says that the shard is awake.
    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// The descriptor that becomes readable when a sleeping shard gets a message.
    pub(crate) fn event(&self) -> &OwnedFd {
        &self.event
    }

    fn notify(&self) {
        // Either the shard sees the message before it sleeps, or this thread sees that it sleeps (MAILBOX2).
        self.pending.store(true, Ordering::SeqCst);
        if self.sleeping.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }
}

/// Messages of one kind to one shard, in order.
pub(crate) struct Mailbox<M> {
    content: Mutex<Content<M>>,
    notify: Arc<Notify>,
}

struct Content<M> {
    messages: Vec<M>,
    closed: bool,
}

impl<M> Mailbox<M> {
    /// An empty one of the shard that `notify` wakes.
    pub(crate) fn new(notify: &Arc<Notify>) -> Arc<Self> {
        let content = Content { messages: Vec::new(), closed: false };
        Arc::new(Self { content: Mutex::new(content), notify: Arc::clone(notify) })
    }

    /// What wakes its shard.
    pub(crate) fn notify(&self) -> &Arc<Notify> {
        &self.notify
    }

    /// Sends a message; it comes back if the shard is gone (MAILBOX1).
    pub(crate) fn send(&self, message: M) -> Result<(), M> {
        {
            let mut content = self.content();
            if content.closed {
                return Err(message);
            }
            content.messages.push(message);
        }
        self.notify.notify();
        Ok(())
    }

    /// Takes all messages.
    pub(crate) fn collect(&self) -> Vec<M> {
        std::mem::take(&mut self.content().messages)
    }

    /// Takes the last messages; later ones are handed back to their senders (MAILBOX1).
    pub(crate) fn close(&self) -> Vec<M> {
        let mut content = self.content();
        content.closed = true;
        std::mem::take(&mut content.messages)
    }

    fn content(&self) -> MutexGuard<'_, Content<M>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_delivered_or_handed_back_and_keeps_its_shard_awake() {
        let notify = Notify::new().expect("a descriptor");
        let (numbers, words) = (Mailbox::new(&notify), Mailbox::new(&notify));
        assert!(!notify.take_pending() && notify.try_sleep());
        notify.awake();
        assert_eq!((numbers.send(1), numbers.send(2), words.send("one")), (Ok(()), Ok(()), Ok(())));
        assert!(!notify.try_sleep(), "MAILBOX2");
        assert!(notify.take_pending() && !notify.take_pending());
        assert_eq!((numbers.collect(), words.collect()), (vec![1, 2], vec!["one"]), "MAILBOX1");
        assert!(notify.try_sleep());
        assert_eq!(numbers.send(3), Ok(()));
        assert_eq!(rustix::io::read(notify.event(), &mut [0; 8]), Ok(8), "MAILBOX2: it was woken");
        assert_eq!(numbers.close(), [3], "MAILBOX1");
        assert_eq!((numbers.send(4), words.send("two")), (Err(4), Ok(())), "MAILBOX1");
    }
}
