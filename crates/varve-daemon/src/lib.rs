//! The composition root: configuration, shards, activation, exports, jobs, HTTP.
//!
//! One *control* lives on the first shard. It owns what is known of disks, groups, exports and jobs, and carries out
//! changes one at a time a group. A volume with its snapshots and their store lives on one shard: the control sends work there,
//! and hears of the volume by events. HTTP runs on the main thread and sends each request to the control. Control and shards
//! know the host by `world` alone, and run in a simulated one, too.

mod config;
mod control;
mod events;
mod failures;
mod fault;
mod http;
mod injected_bug;
mod jobs;
mod log;
mod metrics;
mod places;
mod server;
mod shard;
mod state;
mod world;

pub use config::{Config, IoMode, LogForm};
pub use control::{Lost, refuse_lost, shown_plan};
pub use fault::panic_at;
pub use http::openapi_json;

use control::ControlHandle;
use std::cell::Cell;
use std::time::Duration;
use tokio::time::Instant;
use varve_api::{Code, Failure};
use varve_os::{IoChoice, Shards, ShardsConfig};

/// How long the shards may take to end, once no volume is in use, however late it is.
const SHARDS_MIN: Duration = Duration::from_secs(1);

/// Runs a daemon until SIGTERM or SIGINT. What was in flight is finished and durable when it returns.
pub fn run(config: &Config) -> Result<(), Failure> {
    log::start(config);
    varve_os::give_back_large_allocations();
    let locks = places::lock(&config.state, &config.socket)?;
    let remembered = state::load(&config.state)?;
    let listener = places::listen(&config.socket, &locks)?;
    let shards = start_shards(config)?;
    let all = (0..shards.count()).map(|index| shards.handle(index));
    let (handles, events) = world::real::begin(all, &config.state);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Code::Failed, format!("no runtime for HTTP: {error}")))?;
    let deadline = Cell::new(None);
    let result = runtime.block_on(async {
        let signals = server::Signals::new()?;
        let control = ControlHandle::start(handles, events, shards.is_ring(), config, remembered).await?;
        let served = server::serve(config, &control, listener, signals, &deadline).await;
        served.and(control.stop().await)
    });
    let left = deadline.get().map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let result = result.and(stop_shards(shards, left.unwrap_or(config.stop_timeout).max(SHARDS_MIN)));
    let _ = std::fs::remove_file(&config.socket);
    tracing::info!("stopped");
    result
}

/// Ends the shards; one that waits for a disk which does not answer is left behind after `patience`.
fn stop_shards(shards: Shards, patience: Duration) -> Result<(), Failure> {
    let (sender, ended) = std::sync::mpsc::channel();
    let stopper = std::thread::Builder::new().name("varve-stop".to_owned()).spawn(move || {
        let _ = sender.send(shards.stop());
    });
    let broken =
        |message: &str| Err(Failure::new(Code::Failed, message).help("the daemon's log has the reason"));
    match stopper.map(|_| ended.recv_timeout(patience)) {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => broken("a shard broke down while the daemon stopped"),
        Ok(Err(_)) | Err(_) => broken("a shard did not end in time and was left behind"),
    }
}

fn start_shards(config: &Config) -> Result<Shards, Failure> {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let shards_config = ShardsConfig {
        count: config.shards.unwrap_or_else(cores).max(1),
        io: match config.io {
            IoMode::Ring => IoChoice::Ring,
            IoMode::Pool => IoChoice::Pool,
            IoMode::Auto => IoChoice::Auto,
        },
        arena_bytes: config.memory,
        ..ShardsConfig::default()
    };
    Shards::start(&shards_config).map_err(|error| {
        let help = if config.io == IoMode::Ring { "use --io auto where io_uring is forbidden" } else { "" };
        Failure::new(Code::Failed, format!("the shards cannot start: {error}")).help(help)
    })
}
