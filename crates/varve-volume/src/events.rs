//! Events that volumes send to the control. What receives them is a layer above, and is not known here.

use futures_channel::{mpsc, oneshot};
use uuid::Uuid;
use varve_api::Failure;
use varve_vg::model::PvName;

/// Something happened to a volume, or it needs something.
#[derive(Debug)]
pub enum VolumeEvent {
    /// A snapshot store of a volume, or a pool if both are one, runs low; the answer comes when it is larger, or cannot be.
    NeedsSpace {
        /// The volume.
        volume: Uuid,
        /// Its store, or the pool.
        store: Uuid,
        /// Where the outcome is awaited.
        answer: oneshot::Sender<Result<(), Failure>>,
    },
    /// A store has let a snapshot go, for want of space.
    SnapshotDropped {
        /// The volume.
        volume: Uuid,
        /// The store.
        store: Uuid,
        /// The snapshot's name, without the volume.
        snapshot: String,
    },
    /// A pool has given a volume of its trash up, for want of space.
    TrashDropped {
        /// The pool.
        pool: Uuid,
        /// The volume's number in it.
        number: u64,
        /// What it was called.
        name: String,
    },
    /// Something that is good to know.
    News {
        /// The volume or pool.
        volume: Uuid,
        /// What happened, in a clause.
        message: String,
    },
    /// Something that a person should look at.
    Warning {
        /// The volume or pool.
        volume: Uuid,
        /// What happened, in a clause.
        message: String,
    },
    /// A snapshot store of a volume, or a pool, is low on space and does not grow.
    LowOnSpace {
        /// The volume or pool.
        volume: Uuid,
        /// How low, in a clause.
        message: String,
        /// Whether it is to be extended by itself, and the group has no more for it.
        extends: bool,
    },
    /// An array of a volume or pool goes on without what it has on these disks.
    Ejected {
        /// The volume or pool.
        volume: Uuid,
        /// The disks.
        disks: Vec<PvName>,
    },
    /// Something in a volume or pool has panicked; its shard has closed it.
    Failed {
        /// The volume or pool.
        volume: Uuid,
        /// The message of the panic.
        reason: String,
    },
}

/// The way of events to the control. Cloning shares it.
#[derive(Clone, Debug)]
pub struct EventSender(mpsc::UnboundedSender<VolumeEvent>);

/// The events, in the order in which each shard sent them.
pub type EventReceiver = mpsc::UnboundedReceiver<VolumeEvent>;

/// Both ends of the way.
pub fn event_channel() -> (EventSender, EventReceiver) {
    let (sender, receiver) = mpsc::unbounded();
    (EventSender(sender), receiver)
}

impl EventSender {
    /// Sends an event. When the control has ended the event is lost, and an answer that was asked for never comes.
    pub(super) fn send(&self, event: VolumeEvent) {
        let _ = self.0.unbounded_send(event);
    }
}
