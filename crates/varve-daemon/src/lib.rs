//! The composition root: configuration, the real world, shards, HTTP, metrics. It composes and decides nothing.
//!
//! One *control* (`varve-control`) lives on the first shard. It owns what is known of disks, groups, exports and jobs, and
//! carries out changes one at a time a group. A volume with its snapshots and their store lives on one shard (`varve-volume`):
//! the control calls it there, and hears of it by events. HTTP runs on the main thread and sends each request to the control.
//! Control and shards know the host by the traits of `varve_volume::world` alone, and run in a simulated one, too.

mod archive;
mod config;
mod file_link;
mod handover;
mod http;
mod log;
mod metrics;
mod own_exports;
mod passed;
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

use axum::Router;
use handover::{Attempt, Inherited, Link};
use http::listen::Listeners;
use passed::PassedDescriptors;
use places::address_unusable;
use server::{OpenListeners, Outcome, Resumed, Served, Signals, Succession};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::Instant;
use varve_api::{Code, Failure};
use varve_control::{ControlHandle, ControlOptions, Handover};
use varve_os::{IoChoice, Shards, ShardsConfig};
use varve_volume::DoorLimits;
use varve_volume::fault::{Injections, inject};

/// How long the shards may take to end, once no volume is in use, however late it is.
const SHARDS_MIN: Duration = Duration::from_secs(1);

/// How long a process that has ended may take to release its locks.
const RELEASE_MAX: Duration = Duration::from_secs(10);

/// Runs a daemon until SIGTERM, SIGINT or SIGHUP, or until another one has taken over. What was in flight is finished and durable when it
/// returns. `is_replacement`: takes over from the daemon that runs with the same state directory, if one does.
pub fn run(config: &Config, is_replacement: bool) -> Result<(), Failure> {
    log::start(config);
    let injected = |name: &str| std::env::var_os(name);
    inject(Injections { fault: injected("VARVE_FAULT"), panic: injected("VARVE_INJECT_PANIC") });
    varve_os::give_back_large_allocations();
    varve_os::raise_open_files_limit();
    let routes = http::routes();
    let (inherited, shards, predecessor) = if is_replacement {
        // All that can fail and changes nothing comes before the other daemon closes anything.
        state::check(&config.state)?;
        let shards = start_shards(config)?;
        let (inherited, predecessor) = take_over(config)?;
        (inherited, shards, predecessor)
    } else {
        (begin(config, &mut Vec::new())?, start_shards(config)?, None)
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Code::Failed, format!("no runtime for HTTP: {error}")))?;
    let signals = runtime.block_on(async { Signals::new() })?;
    let mut process = Process { config, routes, runtime, signals };
    let result = process.live_on(shards, inherited, predecessor);
    process.runtime.shutdown_background(); // A program that has connected and says nothing is not waited for.
    result
}

/// Locks the places of the daemon, and listens; by the TCP sockets that are `there` where they are.
fn begin(config: &Config, there: &mut Vec<(SocketAddr, TcpListener)>) -> Result<Inherited, Failure> {
    let locks = places::lock(&config.state, &config.socket)?;
    let socket = places::listen(&config.socket, &locks)?;
    let listeners = Listeners { socket, tcp: listen_at(config, there)? };
    Ok(Inherited { locks, listeners, handover: Handover::default(), begun_ms: 0 })
}

/// Listens at the TCP addresses of the configuration, by the sockets that are `there` where they are.
fn listen_at(
    config: &Config,
    there: &mut Vec<(SocketAddr, TcpListener)>,
) -> Result<Vec<(SocketAddr, TcpListener)>, Failure> {
    let listener = |address| match there.iter().position(|(at, _)| *at == address) {
        Some(place) => Ok(there.swap_remove(place)),
        None => {
            let listener = places::listen_tcp(address);
            listener.map(|listener| (address, listener)).map_err(|error| address_unusable(address, &error))
        }
    };
    config.tcp.addresses().map(listener).collect()
}

/// What another daemon passes on; without one, or if it has ended meanwhile, this one begins as any other.
fn take_over(config: &Config) -> Result<(Inherited, Option<Link>), Failure> {
    let (mut free, mut occupied) = (Vec::new(), Vec::new());
    for address in config.tcp.addresses() {
        match places::listen_tcp(address) {
            Ok(listener) => free.push((address, listener)),
            Err(error) if error.kind() == ErrorKind::AddrInUse => occupied.push(address),
            Err(error) => return Err(address_unusable(address, &error)),
        }
    }
    match handover::take(&config.state, &config.socket.path, occupied)? {
        Attempt::Given(inherited, predecessor) => {
            let mut inherited = *inherited;
            free.append(&mut inherited.listeners.tcp);
            inherited.listeners.tcp = listen_at(config, &mut free)?;
            Ok((inherited, Some(predecessor)))
        }
        Attempt::NoDaemon => Ok((begin(config, &mut free)?, None)),
        Attempt::Ended => Ok((begin_after(config, &mut free)?, None)),
    }
}

/// Begins where another daemon has ended just now: the kernel may not have released all that it had.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing else is to be done on this thread before the daemon begins"
)]
fn begin_after(config: &Config, there: &mut Vec<(SocketAddr, TcpListener)>) -> Result<Inherited, Failure> {
    let begun = std::time::Instant::now();
    loop {
        match begin(config, there) {
            Err(failure) if failure.code == Code::DaemonRuns && begun.elapsed() < RELEASE_MAX => {
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

/// What goes on from one life to the next: a life ends with a handover.
struct Process<'c> {
    config: &'c Config,
    /// The HTTP interface.
    routes: Router<ControlHandle>,
    runtime: Runtime,
    signals: Signals,
}

impl Process<'_> {
    /// Serves what was `inherited`, and what is left of it whenever a daemon that was to take over has ended before it served.
    fn live_on(
        &mut self,
        mut shards: Shards,
        mut inherited: Inherited,
        mut predecessor: Option<Link>,
    ) -> Result<(), Failure> {
        while let Some(returned) = self.live(shards, inherited, predecessor.take())? {
            inherited = returned;
            shards = start_shards(self.config)?;
        }
        Ok(())
    }

    /// One life.
    fn live(
        &mut self,
        shards: Shards,
        inherited: Inherited,
        predecessor: Option<Link>,
    ) -> Result<Option<Inherited>, Failure> {
        let config = self.config;
        let Inherited { locks, listeners, handover, begun_ms } = inherited;
        let Listeners { socket, tcp } = listeners;
        let listeners = Listeners { socket: places::keep(socket, &config.socket, &locks)?, tcp };
        let kept = listeners.try_clone().map_err(|error| Failure::new(Code::Failed, error.to_string()))?;
        let Handover { mut sockets, disks } = handover;
        let listening = sockets.iter_mut().filter_map(|it| Some((it.address.clone(), it.listener.take()?)));
        let passed = Arc::new(PassedDescriptors::new(disks, listening));
        let starting = start(config, &shards, listeners, Arc::clone(&passed));
        // One that takes over leaves the clients to the other daemon.
        let bound = if predecessor.is_some() { Duration::ZERO } else { config.stop_timeout };
        let started = self.runtime.block_on(self.signals.unless_ended(starting, bound));
        passed.clear();
        let is_successor = predecessor.is_some();
        let Served { succession, result, deadline } = match started {
            Ok((control, listeners)) => {
                let resumed = Resumed { sockets, begun_ms, predecessor };
                let routes = self.routes.clone();
                let serving = server::serve(config, &control, listeners, routes, resumed, &mut self.signals);
                self.runtime.block_on(serving)
            }
            Err(failure) if is_successor => {
                std::mem::forget(shards); // Its sockets are those of the daemon that serves on: their files stay.
                return Err(failure);
            }
            Err(failure) => {
                let deadline = Instant::now() + config.stop_timeout;
                Served { succession: None, result: Err(failure), deadline }
            }
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let result = result.and(stop_shards(shards, left.max(SHARDS_MIN)));
        let Some(Succession { successor, handover, begun_ms }) = succession else {
            let _ = std::fs::remove_file(&config.socket.path);
            tracing::info!("stopped");
            return result.map(|()| None);
        };
        result?; // Nothing is passed on: what hangs may still be written.
        Ok(self.pass_on(successor, Inherited { locks, listeners: kept, handover, begun_ms }))
    }

    /// Passes on what was released; takes it back if the other daemon ends before it serves.
    fn pass_on(&mut self, mut successor: Link, mut inherited: Inherited) -> Option<Inherited> {
        let process = successor.process;
        let given = successor.give(&inherited);
        let (bound, signals) = (self.config.stop_timeout, &mut self.signals);
        if given.is_ok() {
            match self.runtime.block_on(server::outcome(successor, signals, bound)) {
                Outcome::Taken => {
                    tracing::info!(process, "handed over");
                    return None;
                }
                Outcome::Signal(signal) => {
                    tracing::warn!(
                        process,
                        signal,
                        "stopped: all is left to the daemon that is to take over"
                    );
                    return None;
                }
                Outcome::Lost => {}
            }
        }
        tracing::error!(process, "the daemon that was to take over ended before it served: this one goes on");
        inherited.locks.take_back();
        inherited.handover.disks.clear(); // TAKEOVER2 of `handover.rs`
        Some(inherited)
    }
}

/// Starts the control on `shards`; what can fail of the HTTP interface comes before it.
async fn start(
    config: &Config,
    shards: &Shards,
    listeners: Listeners,
    passed: Arc<PassedDescriptors>,
) -> Result<(ControlHandle, OpenListeners), Failure> {
    let listeners = server::open(config, listeners)?;
    let remembered = state::load(&config.state)?;
    let all = (0..shards.count()).map(|index| shards.handle(index));
    let (handles, events) = real::begin(all, &config.state, passed);
    let options = control_options(config, shards.is_ring());
    Ok((ControlHandle::start(handles, events, options, remembered).await?, listeners))
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
