//! Serving until a signal comes: the HTTP listeners, `ready`, and the service manager.

use crate::config::{Config, TcpListeners};
use crate::handover::{self, Link, Own, now_ms};
use crate::http::listen::{self, Listeners};
use crate::http::{self, guard};
use crate::metrics::Scrapes;
use crate::places::{address_unusable, socket_unusable};
use axum::Router;
use futures_util::future::{Either, select};
use std::io::Write;
use std::net::SocketAddr;
use std::pin::pin;
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
    /// One that came and is to be heard again.
    remembered: Option<&'static str>,
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
            remembered: None,
        })
    }

    /// `start`, unless a signal comes and it takes longer than `bound` then. A signal that it outlives is heard again.
    pub(crate) async fn unless_ended<T>(
        &mut self,
        start: impl Future<Output = Result<T, Failure>>,
        bound: Duration,
    ) -> Result<T, Failure> {
        let mut start = pin!(start);
        let signal = match select(start.as_mut(), pin!(self.wait())).await {
            Either::Left((started, _)) => return started,
            Either::Right((signal, _)) => signal,
        };
        self.remembered = Some(signal);
        let ended = || Failure::new(Code::Stopping, format!("{signal} came before the daemon served"));
        tokio::time::timeout(bound, start).await.unwrap_or_else(|_| Err(ended()))
    }

    async fn wait(&mut self) -> &'static str {
        if let Some(signal) = self.remembered.take() {
            return signal;
        }
        let by_a_terminal = select(Box::pin(self.interrupt.recv()), Box::pin(self.hang_up.recv()));
        match select(Box::pin(self.terminate.recv()), by_a_terminal).await {
            Either::Left(_) => "SIGTERM",
            Either::Right((Either::Left(_), _)) => "SIGINT",
            Either::Right((Either::Right(_), _)) => "SIGHUP",
        }
    }
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

/// How serving has ended.
pub(crate) struct Served {
    /// The daemon that takes over, if one does.
    pub(crate) succession: Option<Succession>,
    /// Whether all went well, and is closed.
    pub(crate) result: Result<(), Failure>,
    /// Until when the stop may last.
    pub(crate) deadline: Instant,
}

/// What came of a daemon to which all was passed on.
pub(crate) enum Outcome {
    /// It serves.
    Taken,
    /// It has ended before it served.
    Lost,
    /// A signal ends this one meanwhile.
    Signal(&'static str),
}

/// The same sockets as [`Listeners`], ready to accept.
pub(crate) struct OpenListeners {
    socket: tokio::net::UnixListener,
    tcp: Vec<(SocketAddr, tokio::net::TcpListener)>,
}

/// Serves until a signal comes, a shard breaks or another daemon takes over; then releases everything. Nothing of it fails before the other
/// daemon hears that this one serves.
pub(crate) async fn serve(
    config: &Config,
    control: &ControlHandle,
    listeners: OpenListeners,
    routes: Router<ControlHandle>,
    resumed: Resumed,
    signals: &mut Signals,
) -> Served {
    resume(control, resumed).await; // Clients wait for it: it is before what takes long.
    let (stop, stopped) = watch::channel(false);
    let mut servers = accept(config, control, listeners, routes, &stopped).await;
    announce(config);
    let (succession, result) = end_of(config, control, signals).await;
    let begun = Instant::now();
    let deadline = begun + config.stop_timeout;
    if succession.is_none() {
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    }
    if succession.is_some() {
        // What comes from here on waits for the other daemon; what is under way is answered by this one.
        let _ = stop.send(true);
        wait_for(&mut servers, begun + HANDOVER_GRACE).await;
    }
    // The API answers until the exports are closed.
    let ended = control.stop().await;
    let _ = stop.send(true);
    wait_for(&mut servers, (Instant::now() + GRACE).min(deadline)).await;
    servers.iter().for_each(JoinHandle::abort); // The runtime may go on.
    Served { succession, result: result.and(ended), deadline }
}

/// Waits until `successor`, to which all was passed on, serves or has ended. What it hangs in is unknown here, so after `bound` a person is
/// asked to end one of the two.
pub(crate) async fn outcome(successor: Link, signals: &mut Signals, bound: Duration) -> Outcome {
    let process = successor.process;
    let mut taken = tokio::task::spawn_blocking(move || successor.wait_until_taken());
    let waited = async {
        if let Ok(taken) = tokio::time::timeout(bound, &mut taken).await {
            return taken;
        }
        tracing::error!(
            process,
            "the daemon that is to take over does not serve within {} s, and clients wait: kill -9 {process} has this one go on, \
             SIGTERM to this one leaves all to the other",
            bound.as_secs()
        );
        taken.await
    };
    match select(pin!(waited), pin!(signals.wait())).await {
        Either::Left((Ok(true), _)) => Outcome::Taken,
        Either::Left(_) => Outcome::Lost,
        Either::Right((signal, _)) => Outcome::Signal(signal),
    }
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
    let adopted = control.adopt(sockets).await.unwrap_or(0);
    if begun_ms > 0 {
        let waited_ms = now_ms().saturating_sub(begun_ms);
        tracing::info!(process = of, connections = adopted, waited_ms, "serving on what was handed over");
    }
    if adopted < connections {
        let lost = connections - adopted;
        tracing::warn!(
            lost,
            "NBD connections that were handed over are closed: their exports are not served"
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
    let own = Own {
        socket: config.socket.path.clone(),
        tcp: config.tcp.addresses().collect(),
        is_service: std::env::var_os("NOTIFY_SOCKET").is_some(),
    };
    loop {
        let successor = async {
            match &listener {
                Ok(listener) => handover::next_successor(listener, &own, config.stop_timeout).await,
                Err(_) => std::future::pending().await,
            }
        };
        let ends = select(Box::pin(signals.wait()), Box::pin(control.broken()));
        let successor = match select(ends, Box::pin(successor)).await {
            Either::Left((Either::Left((signal, _)), _)) => return (None, stopping(config, signal)),
            Either::Left((Either::Right(_), _)) => {
                let broken = Failure::new(Code::Failed, "a shard broke down; the log has the reason")
                    .help("start the daemon again, and report this with its log");
                return (None, Err(broken));
            }
            Either::Right((successor, _)) => successor,
        };
        match prepare(config, control, signals, successor).await {
            Either::Left(Some(succession)) => return (Some(succession), Ok(())),
            Either::Left(None) => {}
            Either::Right(signal) => return (None, stopping(config, signal)),
        }
    }
}

/// Has clients wait for `successor`; nothing if it was refused. A signal ends that, and the daemon.
async fn prepare(
    config: &Config,
    control: &ControlHandle,
    signals: &mut Signals,
    mut successor: Link,
) -> Either<Option<Succession>, &'static str> {
    tracing::info!(process = successor.process, "handing over: what is in flight is finished first");
    let begun_ms = now_ms();
    let prepared = control.prepare_handover(config.stop_timeout);
    match select(Box::pin(prepared), Box::pin(signals.wait())).await {
        Either::Left((Ok(handover), _)) => Either::Left(Some(Succession { successor, handover, begun_ms })),
        Either::Left((Err(failure), _)) => {
            tracing::error!(%failure, "nothing is handed over: this daemon serves on");
            successor.refuse(failure);
            Either::Left(None)
        }
        Either::Right((signal, _)) => {
            let message = format!("{signal} stops the daemon that runs before it has handed over");
            successor
                .refuse(Failure::new(Code::Stopping, message).help("start the new one when it has ended"));
            Either::Right(signal)
        }
    }
}

fn stopping(config: &Config, signal: &str) -> Result<(), Failure> {
    tracing::info!(signal, "stopping: what is in flight is finished first");
    handover::leave(&config.state);
    Ok(())
}

/// Makes the listeners ready to accept.
pub(crate) fn open(config: &Config, listeners: Listeners) -> Result<OpenListeners, Failure> {
    let Listeners { socket, tcp } = listeners;
    let socket = tokio::net::UnixListener::from_std(socket)
        .map_err(|error| socket_unusable(&config.socket.path, &error))?;
    let open = |(address, listener)| match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => Ok((address, listener)),
        Err(error) => Err(address_unusable(address, &error)),
    };
    Ok(OpenListeners { socket, tcp: tcp.into_iter().map(open).collect::<Result<_, _>>()? })
}

/// Accepts on the Unix socket, and on TCP what is wanted there.
async fn accept(
    config: &Config,
    control: &ControlHandle,
    listeners: OpenListeners,
    routes: Router<ControlHandle>,
    stopped: &watch::Receiver<bool>,
) -> Vec<JoinHandle<()>> {
    let scrapes = Arc::new(Scrapes::new(config.tcp.volume_metrics));
    let service = http::service(routes, control.clone(), Arc::clone(&scrapes));
    let OpenListeners { socket, mut tcp } = listeners;
    let mut servers = vec![tokio::spawn(listen::run(socket, service.clone(), stopped.clone()))];
    let mut guarded = async |address: Option<SocketAddr>, (what, open), service: Router| {
        let Some(address) = address else { return };
        let place = tcp.iter().position(|(at, _)| *at == address);
        let (_, listener) = tcp.swap_remove(place.expect("it is listened at where it is configured"));
        warn_of_others(control, address, (what, open)).await;
        tracing::info!(address = %listener.local_addr().unwrap_or(address), "{what}");
        let guard = axum::middleware::from_fn(move |request, next| guard::check(address, request, next));
        servers.push(tokio::spawn(listen::run(listener, service.layer(guard), stopped.clone())));
    };
    let TcpListeners { http, metrics, .. } = config.tcp;
    guarded(http, ("HTTP", "may do everything"), service.clone()).await;
    let metrics_service = http::metrics_service(control.clone(), scrapes);
    guarded(metrics, ("metrics", "reads the names of disks, volumes and exports"), metrics_service).await;
    servers
}

/// Warns of a TCP address that other hosts reach; who reaches it may do what `open` says.
async fn warn_of_others(
    control: &ControlHandle,
    address: SocketAddr,
    (what, open): (&'static str, &'static str),
) {
    if address.ip().is_loopback() {
        return;
    }
    let open = format!("{what} at {address} is open to other hosts: anybody who reaches it {open}");
    let warned = control.call(async move |control| {
        control.warn("varve daemon", &open);
        Ok(())
    });
    let _ = warned.await; // A control that has ended ends the daemon.
}

/// Reports on standard output, and to systemd, that the daemon serves.
fn announce(config: &Config) {
    tracing::info!(socket = %config.socket.path.display(), state = %config.state.display(), "ready");
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "ready");
    let _ = out.flush();
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
}
