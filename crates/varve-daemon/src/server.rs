//! Serving until a signal comes: the HTTP listeners, `ready`, and the service manager.

use crate::config::{Config, TcpListeners};
use crate::handover::{self, Link, now_ms};
use crate::http::listen::{self, Listeners};
use crate::http::{self, guard};
use crate::metrics::Scrapes;
use axum::Router;
use futures_util::future::{Either, select};
use std::cell::Cell;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use varve_api::{Code, Failure};
use varve_control::{ControlHandle, HandedSocket, Handover};

/// How long requests in flight may take once the daemon stops.
const GRACE: Duration = Duration::from_secs(2);

/// How long requests in flight may take when another daemon takes over: clients of volumes wait for them.
const HANDOVER_GRACE: Duration = Duration::from_millis(100);

/// The signals that end the daemon; those that come before it serves are remembered.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Listens for them from now on.
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::new(Code::Failed, format!("signals cannot be received: {error}")))
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    async fn wait(&mut self) -> &'static str {
        let by_a_terminal = select(Box::pin(self.interrupt.recv()), Box::pin(self.hang_up.recv()));
        match select(Box::pin(self.terminate.recv()), by_a_terminal).await {
            Either::Left(_) => "SIGTERM",
            Either::Right((Either::Left(_), _)) => "SIGINT",
            Either::Right((Either::Right(_), _)) => "SIGHUP",
        }
    }
}

/// With what serving begins.
pub(crate) struct Beginning {
    /// The HTTP interface.
    pub(crate) routes: Router<ControlHandle>,
    /// What goes on.
    pub(crate) resumed: Resumed,
}

/// What goes on that another daemon has begun, or this one in an earlier life.
pub(crate) struct Resumed {
    /// Connections that go on.
    pub(crate) sockets: Vec<HandedSocket>,
    /// When their clients began to wait, by the host's monotonic clock.
    pub(crate) begun_ms: u64,
    /// The daemon that has handed over and ends when this one serves.
    pub(crate) predecessor: Option<Link>,
}

/// A daemon that takes over, what passes to it, and when clients began to wait.
pub(crate) struct Succession {
    pub(crate) successor: Link,
    pub(crate) handover: Handover,
    pub(crate) begun_ms: u64,
}

/// Serves until a signal comes, a shard breaks or another daemon takes over; then sets the `deadline` of the stop, and releases
/// everything.
pub(crate) async fn serve(
    config: &Config,
    control: &ControlHandle,
    listeners: Listeners,
    beginning: Beginning,
    mut signals: Signals,
    deadline: &Cell<Option<Instant>>,
) -> (Option<Succession>, Result<(), Failure>) {
    let Beginning { routes, resumed } = beginning;
    resume(control, resumed).await; // Clients wait for it: it is before what takes long.
    let (stop, stopped) = watch::channel(false);
    let servers = match open(config, control, listeners, routes, &stopped).await {
        Ok(servers) => servers,
        Err(failure) => return (None, Err(failure)),
    };
    announce(config);
    let (succession, result) = end_of(config, control, &mut signals).await;
    let begun = Instant::now();
    deadline.set(Some(begun + config.stop_timeout));
    if succession.is_none() {
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    }
    let mut servers = servers;
    if succession.is_some() {
        // What comes from here on waits for the other daemon; what is under way is answered by this one.
        let _ = stop.send(true);
        wait_for(&mut servers, begun + HANDOVER_GRACE).await;
    }
    // The API answers until the exports are closed.
    let ended = control.stop().await;
    let _ = stop.send(true);
    wait_for(&mut servers, (Instant::now() + GRACE).min(begun + config.stop_timeout)).await;
    (succession, result.and(ended))
}

/// Waits until the servers have ended, or `deadline`.
async fn wait_for(servers: &mut Vec<JoinHandle<()>>, deadline: Instant) {
    for server in servers.iter_mut() {
        if !server.is_finished() {
            let _ = tokio::time::timeout_at(deadline, server).await;
        }
    }
    servers.retain(|server| !server.is_finished());
}

/// Tells the daemon that has handed over that this one serves, and goes on with its clients.
async fn resume(control: &ControlHandle, resumed: Resumed) {
    let Resumed { sockets, begun_ms, predecessor } = resumed;
    let of = predecessor.as_ref().map(|link| link.process);
    if let Some(link) = predecessor {
        link.taken(); // TAKEOVER1 of `handover.rs`
    }
    let connections: usize = sockets.iter().map(|socket| socket.connections.len()).sum();
    let adopted = control.adopt(sockets).await;
    if begun_ms > 0 {
        let waited_ms = now_ms().saturating_sub(begun_ms);
        tracing::info!(
            process = of,
            connections,
            waited_ms,
            ok = adopted.is_ok(),
            "serving on what was handed over"
        );
    }
}

/// What ends serving. A daemon that is to take over and to which nothing can be handed is refused, and serving goes on.
async fn end_of(
    config: &Config,
    control: &ControlHandle,
    signals: &mut Signals,
) -> (Option<Succession>, Result<(), Failure>) {
    let listener = handover::listen(&config.state);
    let listener =
        listener.inspect_err(|error| tracing::warn!(%error, "no other daemon can take over from this one"));
    loop {
        let successor = async {
            match &listener {
                Ok(listener) => {
                    handover::next_successor(listener, &config.socket.path, config.stop_timeout).await
                }
                Err(_) => std::future::pending().await,
            }
        };
        let ends = select(Box::pin(signals.wait()), Box::pin(control.broken()));
        match select(ends, Box::pin(successor)).await {
            Either::Left((Either::Left((signal, _)), _)) => {
                tracing::info!(signal, "stopping: what is in flight is finished first");
                handover::leave(&config.state);
                return (None, Ok(()));
            }
            Either::Left((Either::Right(_), _)) => {
                let broken = Failure::new(Code::Failed, "a shard broke down; the log has the reason")
                    .help("start the daemon again, and report this with its log");
                return (None, Err(broken));
            }
            Either::Right((mut successor, _)) => {
                tracing::info!(
                    process = successor.process,
                    "handing over: what is in flight is finished first"
                );
                let begun_ms = now_ms();
                match control.prepare_handover(config.stop_timeout).await {
                    Ok(handover) => return (Some(Succession { successor, handover, begun_ms }), Ok(())),
                    Err(failure) => {
                        tracing::error!(%failure, "nothing is handed over: this daemon serves on");
                        successor.refuse(failure);
                    }
                }
            }
        }
    }
}

/// Starts to serve on the Unix socket, and on TCP what is wanted there.
async fn open(
    config: &Config,
    control: &ControlHandle,
    listeners: Listeners,
    routes: Router<ControlHandle>,
    stopped: &watch::Receiver<bool>,
) -> Result<Vec<JoinHandle<()>>, Failure> {
    let scrapes = Arc::new(Scrapes::new(config.tcp.volume_metrics));
    let service = http::service(routes, control.clone(), Arc::clone(&scrapes));
    let Listeners { socket, mut tcp } = listeners;
    let unix = tokio::net::UnixListener::from_std(socket)
        .map_err(|error| unusable(&format!("the socket {}", config.socket.path.display()), &error))?;
    let mut servers = vec![tokio::spawn(listen::run(unix, service.clone(), stopped.clone()))];
    let mut guarded = async |address: Option<SocketAddr>, (what, open), service: Router| {
        let Some(address) = address else { return Ok(()) };
        let place = tcp.iter().position(|(at, _)| *at == address);
        let (_, listener) = tcp.swap_remove(place.expect("it is listened at where it is configured"));
        let listener = serving(control, (address, listener), (what, open)).await?;
        let guard = axum::middleware::from_fn(move |request, next| guard::check(address, request, next));
        servers.push(tokio::spawn(listen::run(listener, service.layer(guard), stopped.clone())));
        Ok(())
    };
    let TcpListeners { http, metrics, .. } = config.tcp;
    guarded(http, ("HTTP", "may do everything"), service.clone()).await?;
    let metrics_service = http::metrics_service(control.clone(), scrapes);
    guarded(metrics, ("metrics", "reads the names of disks, volumes and exports"), metrics_service).await?;
    Ok(servers)
}

/// The listener of a TCP address; who reaches it may do what `open` says.
async fn serving(
    control: &ControlHandle,
    (address, listener): (SocketAddr, TcpListener),
    (what, open): (&'static str, &'static str),
) -> Result<tokio::net::TcpListener, Failure> {
    if !address.ip().is_loopback() {
        let open = format!("{what} at {address} is open to other hosts: anybody who reaches it {open}");
        control
            .call(async move |control| {
                control.warn("varve daemon", &open);
                Ok(())
            })
            .await?;
    }
    let listener = tokio::net::TcpListener::from_std(listener)
        .map_err(|error| unusable(&format!("the address {address}"), &error))?;
    tracing::info!(address = %listener.local_addr().unwrap_or(address), "{what}");
    Ok(listener)
}

fn unusable(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(Code::SocketUnusable, format!("{what}: {error}"))
}

/// Reports on standard output, and to systemd, that the daemon serves.
fn announce(config: &Config) {
    tracing::info!(socket = %config.socket.path.display(), state = %config.state.display(), "ready");
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "ready");
    let _ = out.flush();
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
}
