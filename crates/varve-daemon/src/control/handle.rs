//! The way to the control: commands from any thread, and events of the volumes.

use super::Control;
use super::locks::Locks;
use super::lost_disks::LostDisks;
use crate::config::Config;
use crate::failures;
use crate::shard::events::{EventReceiver, VolumeEvent};
use crate::shard::nbd::DoorResources;
use crate::shard::{NoAnswer, ShardContext, ShardHandle};
use crate::state::Remembered;
use futures_channel::{mpsc, oneshot};
use futures_util::future::{FutureExt, join_all, select_all};
use futures_util::{StreamExt, stream};
use std::cell::{Cell, RefCell};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use varve_api::{Code, Failure};
use varve_block::{LocalFuture, Spawner};

/// A command.
type Call = Box<dyn FnOnce(Rc<Control>) -> LocalFuture<'static, ()> + Send>;

/// What reaches the control.
enum Input {
    Call(Call),
    Event(VolumeEvent),
}

/// Reaches the control from any thread.
#[derive(Clone)]
pub(crate) struct ControlHandle {
    shards: Vec<ShardHandle>,
    calls: mpsc::UnboundedSender<Call>,
    has_stopped: Arc<AtomicBool>,
}

impl ControlHandle {
    /// Makes the control on the first of `shards`: finds disks, activates volumes, brings exports back. It hears `events`.
    pub(crate) async fn start(
        shards: Vec<ShardHandle>,
        events: EventReceiver,
        is_ring: bool,
        config: &Config,
        remembered: Remembered,
    ) -> Result<Self, Failure> {
        let (calls, called) = mpsc::unbounded();
        let handle = Self { shards: shards.clone(), calls, has_stopped: Arc::default() };
        let (state_dir, cache, stop_max) = (config.state.clone(), config.cache, config.stop_timeout);
        let lost_disks = LostDisks::new(config.spare_after);
        let image_dirs = config.image_dirs.clone();
        let (first, doors) = (shards[0].clone(), DoorResources::new(config));
        let started = first.run(async move |context: ShardContext| {
            let (serving, served) = oneshot::channel();
            let context = context.apart();
            let spawner = context.spawner();
            let control = Rc::new_cyclic(|me| Control {
                me: me.clone(),
                context,
                shards,
                is_ring,
                state_dir,
                cache,
                image_dirs,
                started: Cell::new(0),
                stopping: Cell::new(false),
                stalled: RefCell::default(),
                watching: RefCell::default(),
                serving: RefCell::new(Some(serving)),
                locks: Locks::default(),
                stop_max,
                faults: RefCell::default(),
                moving: RefCell::default(),
                converting: RefCell::default(),
                committing: RefCell::default(),
                saving: futures_util::lock::Mutex::new(()),
                disks: RefCell::default(),
                unopened: RefCell::default(),
                accepted: RefCell::default(),
                ejections: RefCell::default(),
                lost_disks,
                groups: RefCell::default(),
                refused: RefCell::default(),
                exports: RefCell::default(),
                doors,
                jobs: crate::jobs::Jobs::default(),
                busy: RefCell::default(),
                events: crate::events::Events::default(),
                remembered: RefCell::new(remembered),
            });
            spawner.spawn(serve(Rc::clone(&control), spawner.clone(), called, events, served));
            control.start().await
        });
        started.await.map_err(failures::gone)??;
        Ok(handle)
    }

    /// Runs `work` beside the control and answers with its result.
    pub(crate) async fn call<T, W>(&self, work: W) -> Result<T, Failure>
    where
        T: Send + 'static,
        W: AsyncFnOnce(Rc<Control>) -> Result<T, Failure> + Send + 'static,
    {
        let (sender, answer) = oneshot::channel();
        let call = |control: Rc<Control>| -> LocalFuture<'static, ()> {
            Box::pin(async move {
                let worked = AssertUnwindSafe(work(Rc::clone(&control))).catch_unwind().await;
                let _ = sender.send(worked.unwrap_or_else(|payload| Err(control.panicked(&*payload))));
            })
        };
        let _ = self.calls.unbounded_send(Box::new(call));
        answer.await.map_err(|_| failures::gone(NoAnswer::Gone))?
    }

    /// Completes when a shard has broken down.
    pub(crate) async fn broken(&self) {
        let watch = |shard: &ShardHandle| {
            Box::pin(shard.run(async |_: ShardContext| std::future::pending::<()>().await))
        };
        let _ = select_all(self.shards.iter().map(watch)).await;
    }

    /// Closes every export, makes every volume durable, lets go of every disk. An error tells what went wrong in the
    /// daemon's life, or could not be made durable. Nothing happens if it has stopped already.
    pub(crate) async fn stop(&self) -> Result<(), Failure> {
        if self.has_stopped.load(Ordering::Acquire) {
            return Ok(());
        }
        let stopped = self.call(async |control| {
            control.stop().await;
            control.watching.take();
            control.serving.take();
            Ok(control.faults.take())
        });
        let faults = stopped.await.map_err(|_| {
            Failure::new(Code::Failed, "the control has ended: what was in use may not be durable")
        })?;
        self.has_stopped.store(true, Ordering::Release);
        let Some(first) = faults.first() else { return Ok(()) };
        let more = if faults.len() > 1 { format!(", and {} more", faults.len() - 1) } else { String::new() };
        Err(Failure::new(Code::Failed, format!("not all went well: {first}{more}"))
            .help("the daemon's log has all of it"))
    }

    /// Whether every shard answers within `patience`; else which one does not.
    pub(crate) async fn answers(&self, patience: Duration) -> Result<(), Failure> {
        let ask = |shard: &ShardHandle| {
            let (index, answer) = (shard.index(), shard.run(async |_: ShardContext| ()));
            async move { (index, tokio::time::timeout(patience, answer).await) }
        };
        for (index, answer) in join_all(self.shards.iter().map(ask)).await {
            match answer {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(Failure::new(Code::Failed, format!("shard {index} has ended"))),
                Err(_) => return Err(Failure::new(Code::Failed, format!("shard {index} does not answer"))),
            }
        }
        Ok(())
    }
}

/// Begins what reaches the control, until it ends.
async fn serve(
    control: Rc<Control>,
    spawner: Spawner,
    calls: mpsc::UnboundedReceiver<Call>,
    events: EventReceiver,
    ended: oneshot::Receiver<()>,
) {
    let inputs = stream::select(calls.map(Input::Call), events.map(Input::Event)).take_until(ended);
    let mut inputs = std::pin::pin!(inputs);
    while let Some(input) = inputs.next().await {
        let control = Rc::clone(&control);
        match input {
            Input::Call(call) => spawner.spawn(call(control)),
            Input::Event(event) => spawner.spawn(async move { control.heard(event).await }),
        }
    }
}

impl Control {
    /// Something happened to a volume, or it needs something.
    async fn heard(&self, event: VolumeEvent) {
        match event {
            VolumeEvent::NeedsSpace { volume, store, answer } => {
                let _ = answer.send(self.extend_store(volume, store).await);
            }
            VolumeEvent::SnapshotDropped { volume, store, snapshot } => {
                self.snapshot_dropped(volume, store, &snapshot).await;
            }
            VolumeEvent::News { volume, message } => self.event(&self.subject(volume), &message),
            VolumeEvent::Warning { volume, message } => self.warn(&self.subject(volume), &message),
            VolumeEvent::Ejected { volume, disks } => self.note_ejection(volume, &disks),
            VolumeEvent::Failed { volume, reason } => self.note_failed(volume, &reason).await,
        }
    }
}
