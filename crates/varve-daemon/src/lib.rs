//! The composition root: configuration, the real world, shards, HTTP, metrics. It composes and decides nothing.
//!
//! One *control* (`varve-control`) lives on the first shard. It owns what is known of disks, groups, exports and jobs, and
//! carries out changes one at a time a group. A volume with its snapshots and their store lives on one shard (`varve-volume`):
//! the control calls it there, and hears of it by events. HTTP runs on the main thread and sends each request to the control.
//! Control and shards know the host by the traits of `varve_volume::world` alone, and run in a simulated one, too.

mod archive;
mod config;
mod file_link;
mod http;
mod log;
mod metrics;
mod own_exports;
mod places;
mod real;
mod real_disk;
mod real_doors;
mod server;
mod state;
mod tls_files;

pub use archive::{ArchivedFile, archived};
pub use config::{Config, ControlSocket, IoMode, LogForm, TcpListeners, VolumeMetrics};
pub use http::openapi_json;

use std::cell::Cell;
use std::time::Duration;
use tokio::time::Instant;
use varve_api::{Code, Failure};
use varve_control::{ControlHandle, ControlOptions};
use varve_os::{IoChoice, Shards, ShardsConfig};
use varve_volume::DoorLimits;
use varve_volume::fault::{Injections, inject};

/// How long the shards may take to end, once no volume is in use, however late it is.
const SHARDS_MIN: Duration = Duration::from_secs(1);

/// Runs a daemon until SIGTERM, SIGINT or SIGHUP. What was in flight is finished and durable when it returns.
pub fn run(config: &Config) -> Result<(), Failure> {
    log::start(config);
    let injected = |name: &str| std::env::var_os(name);
    inject(Injections { fault: injected("VARVE_FAULT"), panic: injected("VARVE_INJECT_PANIC") });
    varve_os::give_back_large_allocations();
    varve_os::raise_open_files_limit();
    let locks = places::lock(&config.state, &config.socket)?;
    let remembered = state::load(&config.state)?;
    let listener = places::listen(&config.socket, &locks)?;
    let shards = start_shards(config)?;
    let all = (0..shards.count()).map(|index| shards.handle(index));
    let (handles, events) = real::begin(all, &config.state);
    let options = control_options(config, shards.is_ring());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Code::Failed, format!("no runtime for HTTP: {error}")))?;
    let deadline = Cell::new(None);
    let result = runtime.block_on(async {
        let signals = server::Signals::new()?;
        let control = ControlHandle::start(handles, events, options, remembered).await?;
        let served = server::serve(config, &control, listener, signals, &deadline).await;
        served.and(control.stop().await)
    });
    let left = deadline.get().map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let result = result.and(stop_shards(shards, left.unwrap_or(config.stop_timeout).max(SHARDS_MIN)));
    let _ = std::fs::remove_file(&config.socket.path);
    tracing::info!("stopped");
    result
}

fn control_options(config: &Config, is_ring: bool) -> ControlOptions {
    ControlOptions {
        is_ring,
        state_dir: config.state.clone(),
        cache: config.cache,
        image_dirs: config.image_dirs.clone(),
        stop_timeout: config.stop_timeout,
        spare_after: config.spare_after,
        doors: DoorLimits {
            memory: config.memory as u64,
            connections: config.connections,
            client_timeout: config.client_timeout,
        },
    }
}

/// Ends the shards; one that waits for a disk which does not answer is left behind after `timeout`.
fn stop_shards(shards: Shards, timeout: Duration) -> Result<(), Failure> {
    let (sender, ended) = std::sync::mpsc::channel();
    let stopper = std::thread::Builder::new().name("varve-stop".to_owned()).spawn(move || {
        let _ = sender.send(shards.stop());
    });
    let broken =
        |message: &str| Err(Failure::new(Code::Failed, message).help("the daemon's log has the reason"));
    match stopper.map(|_| ended.recv_timeout(timeout)) {
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
