//! Devices that tasks of one simulated shard use on another one.

use futures_channel::{mpsc, oneshot};
use futures_util::StreamExt;
use std::sync::Arc;
use varve_block::{
    BlockDevice, Checked, Completion, Device, Done, Extent, Io, IoError, MapAnswer, MapFuture, MapIntent,
    Outcome, Portal, Shape, Spawner, StatusRun, Submit,
};

/// A portal to `device`, whose requests are answered on its own shard.
pub(super) fn portal_of(device: &Device, spawner: &Spawner) -> Portal {
    let (requests, mut asked) = mpsc::unbounded();
    let (device, shape, tasks) = (device.clone(), device.shape(), spawner.clone());
    spawner.spawn(async move {
        while let Some(request) = asked.next().await {
            tasks.spawn(answer(device.clone(), request));
        }
    });
    Portal::new(shape, Arc::new(Remote { requests }))
}

enum Request {
    Io(Io, Done<Outcome>),
    Status(Extent, Done<Result<Vec<StatusRun>, IoError>>),
}

async fn answer(device: Device, request: Request) {
    match request {
        Request::Io(io, done) => done(device.submit(io).await),
        Request::Status(extent, done) => done(device.status(extent).await),
    }
}

struct Remote {
    requests: mpsc::UnboundedSender<Request>,
}

impl Remote {
    fn send(&self, request: Request) {
        if let Err(unsent) = self.requests.unbounded_send(request) {
            match unsent.into_inner() {
                Request::Io(_, done) => done(Err(IoError::Gone)),
                Request::Status(_, done) => done(Err(IoError::Gone)),
            }
        }
    }
}

impl Submit for Remote {
    fn submit(&self, io: Io, done: Done<Outcome>) {
        self.send(Request::Io(io, done));
    }

    fn status(&self, extent: Extent, done: Done<Result<Vec<StatusRun>, IoError>>) {
        self.send(Request::Status(extent, done));
    }
}

/// A device of another shard.
pub(crate) struct Imported {
    pub(crate) portal: Portal,
}

impl BlockDevice for Imported {
    fn shape(&self) -> Shape {
        self.portal.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let (sender, answer) = oneshot::channel();
        self.portal.submit(io.into_io(), move |outcome| {
            let _ = sender.send(outcome);
        });
        Completion::pending(async { answer.await.unwrap_or(Err(IoError::Gone)) })
    }

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        if intent != MapIntent::Inspect {
            return MapAnswer::sent(extent.length).ready();
        }
        let (sender, answer) = oneshot::channel();
        self.portal.status(extent, move |runs| {
            let _ = sender.send(runs);
        });
        Box::pin(async {
            let runs = answer.await.unwrap_or(Err(IoError::Gone))?;
            Ok(MapAnswer::of_status(&runs))
        })
    }
}
