//! All shards of a process: started together, reached from any thread, stopped in order.

use crate::driver::helpers::Helpers;
use crate::driver::reactor::IoChoice;
use crate::mailbox::{Mailbox, Notify};
use crate::memory::map_arena;
use crate::shard::{Call, Core, ShardContext, ShardGone};
use futures_channel::oneshot;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use varve_block::Arena;

/// What shards are to be like.
#[derive(Clone, Debug)]
pub struct ShardsConfig {
    /// Number of shards, at least one.
    pub count: usize,
    /// How they talk to the kernel.
    pub io: IoChoice,
    /// Size of the arena for all of them, in bytes.
    pub arena_bytes: usize,
    /// Most helper threads that wait for one disk. While many disks do not answer there are more, up to 32 times as many.
    pub helpers_max: usize,
    /// How long [`Shards::stop`] waits for requests in flight.
    pub drain_max: Duration,
}

impl Default for ShardsConfig {
    fn default() -> Self {
        Self {
            count: 1,
            io: IoChoice::Auto,
            arena_bytes: 64 << 20,
            helpers_max: 16,
            drain_max: Duration::from_secs(10),
        }
    }
}

/// A shard's own loop has panicked, which is no task's fault: the kernel may still write to memory of its requests, and what waits for
/// it, a stop included, would wait for ever.
fn end_process(shard: usize) -> ! {
    tracing::error!(shard, "a shard's loop panicked: the process ends at once");
    std::process::exit(1)
}

/// The running shards. Dropping them stops them.
pub struct Shards {
    handles: Vec<ShardHandle>,
    threads: Vec<JoinHandle<bool>>,
    helpers: Arc<Helpers>,
    arena: Arena,
    quiet: Receiver<()>,
    drain_max: Duration,
    is_ring: bool,
}

impl Shards {
    /// Starts all shards; fails if one of them cannot have the I/O that was chosen.
    pub fn start(config: &ShardsConfig) -> io::Result<Self> {
        assert!(config.count > 0, "there is at least one shard");
        let (quiet_sender, quiet) = channel();
        let mut shards = Self {
            handles: Vec::new(),
            threads: Vec::new(),
            helpers: Helpers::new(config.helpers_max),
            arena: map_arena(config.arena_bytes),
            quiet,
            drain_max: config.drain_max,
            is_ring: true,
        };
        for index in 0..config.count {
            shards.start_one(index, config.io, quiet_sender.clone())?;
        }
        tracing::info!(count = config.count, ring = shards.is_ring, "shards are up");
        Ok(shards)
    }

    fn start_one(&mut self, index: usize, choice: IoChoice, quiet: Sender<()>) -> io::Result<()> {
        let calls = Mailbox::new(&Notify::new()?);
        let handle = ShardHandle { index, calls: Arc::clone(&calls) };
        let (helpers, arena) = (Arc::clone(&self.helpers), self.arena.clone());
        let (started, start) = channel();
        let main = move || match Core::new(index, choice, calls, helpers, arena) {
            Ok(core) => {
                let _ = started.send(Ok(core.reactor.is_ring()));
                let run = catch_unwind(AssertUnwindSafe(|| core.run(&quiet)));
                run.unwrap_or_else(|_| end_process(index))
            }
            Err(error) => {
                let _ = started.send(Err(error));
                false
            }
        };
        let thread = std::thread::Builder::new().name(format!("varve-shard-{index}")).spawn(main)?;
        let is_ring = start.recv().map_err(|_| io::Error::other("the shard's thread ended at once"))??;
        self.is_ring &= is_ring;
        self.threads.push(thread);
        self.handles.push(handle);
        Ok(())
    }

    /// Number of shards.
    pub fn count(&self) -> usize {
        self.handles.len()
    }

    /// A handle to shard `index`.
    pub fn handle(&self, index: usize) -> ShardHandle {
        self.handles[index].clone()
    }

    /// Memory for requests, shared by all shards.
    pub fn arena(&self) -> Arena {
        self.arena.clone()
    }

    /// Whether rings carry the requests of all shards.
    pub fn is_ring(&self) -> bool {
        self.is_ring
    }

    /// Stops in order: nothing new is taken in from peers, requests in flight finish, all tasks are dropped, the
    /// threads end. Whether no task of theirs has panicked.
    pub fn stop(mut self) -> bool {
        self.wind_up()
    }

    fn wind_up(&mut self) -> bool {
        for handle in &self.handles {
            let _ = handle.call(|context| context.core.drain());
        }
        for _ in &self.threads {
            if self.quiet.recv_timeout(self.drain_max).is_err() {
                tracing::warn!("a shard did not become quiet in time: its tasks are dropped");
                break;
            }
        }
        for handle in &self.handles {
            let _ = handle.call(|context| context.core.end());
        }
        let mut in_order = true;
        for thread in self.threads.drain(..) {
            in_order &= thread.join().unwrap_or_else(|_| {
                tracing::error!("a shard's thread panicked");
                false
            });
        }
        self.handles.clear();
        self.helpers.stop();
        in_order
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        self.wind_up();
    }
}

/// Reaches one shard from any thread.
#[derive(Clone)]
pub struct ShardHandle {
    index: usize,
    calls: Arc<Mailbox<Call>>,
}

impl ShardHandle {
    /// The shard's number, from zero.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Starts `work` on the shard as a task and answers with its result. The task starts even if the future is
    /// never polled, and runs on if it is dropped.
    pub fn run<T, F, W>(&self, work: W) -> impl Future<Output = Result<T, ShardGone>> + Send + use<T, F, W>
    where
        W: FnOnce(ShardContext) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        // If the shard is gone the sender is dropped with the closure, and the receiver says so.
        let _ = self.call(move |context| {
            let future = work(context.clone());
            context.core.queue.spawn(async move {
                // What the work held is released before its answer is sent.
                let answer = future.await;
                let _ = sender.send(answer);
            });
        });
        async move { receiver.await.map_err(|_| ShardGone) }
    }

    /// Like [`ShardHandle::run`], but waits on this thread, which must not be a shard's.
    pub fn run_and_wait<T, F, W>(&self, work: W) -> Result<T, ShardGone>
    where
        W: FnOnce(ShardContext) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (sender, receiver) = channel();
        let _ = self.call(move |context| {
            let future = work(context.clone());
            context.core.queue.spawn(async move {
                // What the work held is released before its answer is sent.
                let answer = future.await;
                let _ = sender.send(answer);
            });
        });
        receiver.recv().map_err(|_| ShardGone)
    }

    fn call(&self, call: impl FnOnce(&ShardContext) + Send + 'static) -> Result<(), Call> {
        self.calls.send(Box::new(call))
    }
}
