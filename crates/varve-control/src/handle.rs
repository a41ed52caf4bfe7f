//! The way to the control: commands from any thread, and events of the volumes.

use super::Control;
use super::exports::handover::{self, Handover};
use super::exports::known_exports::Exports;
use super::exports::server::HandedSocket;
use super::group::locks::Locks;
use super::host::known_disks::Disks;
use super::host::life::Life;
use super::host::memory::Memory;
use crate::failures;
use crate::host::remembered::Remembered;
use crate::trash::Trash;
use futures_channel::{mpsc, oneshot};
use futures_util::future::{FutureExt, select_all};
use futures_util::{StreamExt, stream};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use varve_api::{Cache, Code, Failure};
use varve_block::{LocalFuture, Spawner};
use varve_volume::doors::nbd::{DoorLimits, DoorResources};
use varve_volume::events::{EventReceiver, VolumeEvent};
use varve_volume::{Host, NoAnswer, ShardHandle};

/// A command.
type Call = Box<dyn FnOnce(Rc<Control>) -> LocalFuture<'static, ()> + Send>;

/// What a control is passed when it begins.
#[derive(Clone, Debug)]
pub struct ControlOptions {
    /// Whether requests go through a ring of the kernel.
    pub is_ring: bool,
    /// Where the host keeps what is remembered.
    pub state_dir: PathBuf,
    /// How disks are reached for which nothing else is given.
    pub cache: Cache,
    /// Folders in which the backing files of images may lie.
    pub image_dirs: Vec<PathBuf>,
    /// How long a stop may take; what does not end is left behind.
    pub stop_timeout: Duration,
    /// For how long a disk may be missing before a spare takes the place of its members.
    pub spare_after: Duration,
    /// What the clients of all doors may have.
    pub doors: DoorLimits,
}

#[cfg(test)]
impl ControlOptions {
    /// For tests; `state_dir` is the host's.
    pub(crate) fn for_tests(state_dir: &std::path::Path) -> Self {
        let doors =
            DoorLimits { memory: 64 << 20, connections: 4096, client_timeout: Duration::from_secs(30) };
        Self {
            is_ring: false,
            state_dir: state_dir.to_owned(),
            cache: Cache::Direct,
            image_dirs: vec![PathBuf::from("/images")],
            stop_timeout: Duration::from_secs(30),
            spare_after: Duration::from_secs(300),
            doors,
        }
    }
}

/// What reaches the control.
enum Input {
    Call(Call),
    Event(VolumeEvent),
}

/// Reaches the control from any thread.
#[derive(Clone)]
pub struct ControlHandle {
    shards: Vec<ShardHandle>,
    calls: mpsc::UnboundedSender<Call>,
    has_stopped: Arc<AtomicBool>,
}

impl ControlHandle {
    /// Makes the control on the first of `shards`: finds disks, activates volumes, brings exports back. It hears `events`.
    pub async fn start(
        shards: Vec<ShardHandle>,
        events: EventReceiver,
        options: ControlOptions,
        remembered: Remembered,
    ) -> Result<Self, Failure> {
        let (calls, called) = mpsc::unbounded();
        let handle = Self { shards: shards.clone(), calls, has_stopped: Arc::default() };
        let ControlOptions { is_ring, state_dir, cache, image_dirs, stop_timeout: stop_max, .. } = options;
        let spare_after = options.spare_after;
        let (first, doors) = (shards[0].clone(), DoorResources::new(options.doors));
        let started = first.spawn(async move |context: Host| {
            let (serving, served) = oneshot::channel();
            let spawner = context.spawner();
            let memory = Memory::new(&context, state_dir, remembered);
            let exports = Exports::new(&context, doors);
            let control = Rc::new_cyclic(|me| Control {
                me: me.clone(),
                context,
                shards,
                is_ring,
                cache,
                image_dirs,
                life: Life::new(serving, stop_max),
                watch: super::status::watch::Watch::default(),
                locks: Locks::default(),
                disks: Disks::new(spare_after),
                arrays: Default::default(),
                groups: Default::default(),
                exports,
                jobs: Default::default(),
                events: crate::status::events::Events::default(),
                memory,
            });
            spawner.spawn(serve(Rc::clone(&control), spawner.clone(), called, events, served));
            control.start().await
        });
        started.await.map_err(failures::gone)??;
        Ok(handle)
    }

    /// Runs `work` beside the control and answers with its result.
    pub async fn call<T, W>(&self, work: W) -> Result<T, Failure>
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
    pub async fn broken(&self) {
        let _ = select_all(self.shards.iter().map(ShardHandle::ended)).await;
    }

    /// Has clients wait whom another process can serve on, within `bound`; the daemon is to be stopped then, and its stop tells only what goes
    /// wrong from here on. If it fails they are served on.
    pub async fn prepare_handover(&self, bound: Duration) -> Result<Handover, Failure> {
        self.call(async move |control| handover::prepare(&control, bound).await).await
    }

    /// Serves clients on that another process has passed here; how many.
    pub async fn adopt(&self, sockets: Vec<HandedSocket>) -> Result<usize, Failure> {
        self.call(async move |control| Ok(handover::adopt(&control, sockets).await)).await
    }

    /// Closes every export, makes every volume durable, releases every disk. An error tells what went wrong in the
    /// daemon's life, or could not be made durable. Nothing happens if it has stopped already.
    pub async fn stop(&self) -> Result<(), Failure> {
        if self.has_stopped.load(Ordering::Acquire) {
            return Ok(());
        }
        let stopped = self.call(async |control| {
            control.stop().await;
            control.life.watching.take();
            control.life.serving.take();
            Ok(control.life.faults.take())
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

    /// Asks every shard for a sign of life: its number, and what tells whether it lives. One that hangs never answers.
    pub fn ask_shards(&self) -> impl Iterator<Item = (usize, impl Future<Output = bool> + Send + use<>)> {
        let ask = |shard: &ShardHandle| {
            let answer = shard.is_alive();
            (shard.index(), async move { answer.await.is_ok() })
        };
        self.shards.iter().map(ask)
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
            VolumeEvent::TrashDropped { pool, number, name } => {
                Trash::of(self).note_dropped(pool, number, &name).await;
            }
            VolumeEvent::News { volume, message } => self.event(&self.subject(volume), &message),
            VolumeEvent::Warning { volume, message } => self.warn(&self.subject(volume), &message),
            VolumeEvent::LowOnSpace { volume, message, extends } => {
                let (why, help) = self.why_it_does_not_grow(volume, extends);
                self.warn(&self.subject(volume), &format!("{message}, and {why}: {help}"));
            }
            VolumeEvent::Ejected { volume, disks } => self.note_ejection(volume, &disks),
            VolumeEvent::Failed { volume, reason } => self.note_failed(volume, &reason).await,
        }
    }
}
