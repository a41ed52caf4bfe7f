//! The way to a device of another shard: requests are sent as calls on that shard, and answered by a call.

use crate::doorway::{Reply, Visit};
use crate::mailbox::Mailbox;
use crate::shard::{Call, RemotePending, ShardContext};
use futures_channel::oneshot;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use varve_block::{
    BlockDevice, Checked, Completion, Device, Done, Extent, Io, IoError, MapAnswer, MapFuture, MapIntent,
    Outcome, Portal, Shape, StatusRun, Submit,
};

/// The sending side.
struct Passage {
    calls: Arc<Mailbox<Call>>,
    key: usize,
}

impl Passage {
    fn send(&self, call: impl FnOnce(&ShardContext) + Send + 'static) {
        // A call that comes back is dropped, and its reply says that the shard is gone.
        let _ = self.calls.send(Box::new(call));
    }
}

impl Submit for Passage {
    fn submit(&self, io: Io, done: Done<Outcome>) {
        let (key, reply) = (self.key, Reply::new(done));
        self.send(move |context| {
            let Some(device) = context.core.doorway.device(key) else {
                return reply.send(Err(IoError::Gone));
            };
            context.core.doorway.add_visit(key, Visit { device, io, reply });
        });
    }

    fn status(&self, extent: Extent, done: Done<Result<Vec<StatusRun>, IoError>>) {
        let (key, reply) = (self.key, Reply::new(done));
        self.send(move |context| {
            let Some(device) = context.core.doorway.device(key) else {
                return reply.send(Err(IoError::Gone));
            };
            context.core.queue.spawn(async move { reply.send(device.status(extent).await) });
        });
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        let key = self.key;
        self.send(move |context| context.core.doorway.shut(key));
    }
}

/// A device of another shard.
struct Imported {
    portal: Portal,
    remote_pending: Rc<Cell<usize>>,
}

impl BlockDevice for Imported {
    fn shape(&self) -> Shape {
        self.portal.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let (sender, receiver) = oneshot::channel();
        self.portal.submit(io.into_io(), move |outcome| {
            let _ = sender.send(outcome);
        });
        let pending = RemotePending::enter(&self.remote_pending);
        Completion::pending(async move {
            let _pending = pending;
            receiver.await.unwrap_or(Err(IoError::Gone))
        })
    }

    /// A location is of use on the other shard only, so only the allocation of the bytes is answered.
    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        if intent != MapIntent::Inspect {
            return MapAnswer::sent(extent.length).ready();
        }
        let (sender, receiver) = oneshot::channel();
        self.portal.status(extent, move |answer| {
            let _ = sender.send(answer);
        });
        let pending = RemotePending::enter(&self.remote_pending);
        Box::pin(async move {
            let _pending = pending;
            let answer = receiver.await.unwrap_or(Err(IoError::Gone));
            answer.map(|runs| MapAnswer::of_status(&runs))
        })
    }
}

impl ShardContext {
    /// Opens `device` to other shards, until the last clone of the portal is dropped.
    pub fn portal(&self, device: &Device) -> Portal {
        let key = self.core.doorway.open(device.clone());
        let calls = Arc::clone(&self.core.calls);
        Portal::new(device.shape(), Arc::new(Passage { calls, key }))
    }

    /// A device that forwards to another shard. Each request costs two hops between threads.
    pub fn import(&self, portal: &Portal) -> Device {
        let remote_pending = Rc::clone(&self.core.remote_pending);
        Device::new(Imported { portal: portal.clone(), remote_pending })
    }
}
