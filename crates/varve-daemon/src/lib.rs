//! The composition root: configuration, shards, activation, exports, jobs, HTTP.
//!
//! One *control* lives on the first shard. It owns what is known of disks, groups, exports and jobs, and carries out
//! changes one at a time. A volume with its snapshots and their store lives on one shard; the control reaches it by
//! sending futures there. HTTP runs on the main thread and sends each request to the control.

mod config;
mod control;
mod events;
mod failures;
mod fault;
mod http;
mod jobs;
mod log;
mod metrics;
mod places;
mod server;
mod shard;
mod state;

pub use config::{Config, IoMode, LogForm};
pub use control::shown_plan;
pub use http::openapi_json;

use control::ControlHandle;
use varve_api::{Code, Failure};
use varve_os::{IoChoice, Shards, ShardsConfig};

/// Runs a daemon until SIGTERM or SIGINT. What was in flight is finished and durable when it returns.
pub fn run(config: &Config) -> Result<(), Failure> {
    log::start(config);
    varve_os::give_back_large_allocations();
    let locks = places::lock(&config.state, &config.socket)?;
    let remembered = state::load(&config.state)?;
    let listener = places::listen(&config.socket, &locks)?;
    let shards = start_shards(config)?;
    let handles = (0..shards.count()).map(|index| shards.handle(index)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Code::Failed, format!("no runtime for HTTP: {error}")))?;
    let result = runtime.block_on(async {
        let signals = server::Signals::new()?;
        let control = ControlHandle::start(handles, shards.is_ring(), config, remembered).await?;
        let served = server::serve(config, &control, listener, signals).await;
        control.stop().await;
        served
    });
    shards.stop();
    let _ = std::fs::remove_file(&config.socket);
    tracing::info!("stopped");
    result
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
