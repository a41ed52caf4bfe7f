//! What volumes tell the control. Who hears it stands above, and is not known here.

use futures_channel::{mpsc, oneshot};
use uuid::Uuid;
use varve_api::Failure;
use varve_vg::model::PvName;

/// Something happened to a volume, or it needs something.
#[derive(Debug)]
pub(crate) enum VolumeEvent {
    /// A snapshot store of a volume, or a pool if both are one, runs low; the answer comes when it is larger, or cannot be.
    NeedsSpace { volume: Uuid, store: Uuid, answer: oneshot::Sender<Result<(), Failure>> },
    /// A store has let a snapshot go, for want of space.
    SnapshotDropped { volume: Uuid, store: Uuid, snapshot: String },
    /// Something that is good to know.
    News { volume: Uuid, message: String },
    /// Something that a person should look at.
    Warning { volume: Uuid, message: String },
    /// An array of a volume or pool goes on without what it has on these disks.
    Ejected { volume: Uuid, disks: Vec<PvName> },
    /// Something in a volume or pool has panicked; its shard has let go of it.
    Failed { volume: Uuid, reason: String },
}

/// The way of events to the control. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct EventSender(mpsc::UnboundedSender<VolumeEvent>);

/// The events, in the order in which each shard sent them.
pub(crate) type EventReceiver = mpsc::UnboundedReceiver<VolumeEvent>;

/// Both ends of the way.
pub(crate) fn event_channel() -> (EventSender, EventReceiver) {
    let (sender, receiver) = mpsc::unbounded();
    (EventSender(sender), receiver)
}

impl EventSender {
    /// Sends an event. When the control has ended nobody hears it, and an answer that was asked for never comes.
    pub(super) fn send(&self, event: VolumeEvent) {
        let _ = self.0.unbounded_send(event);
    }
}
