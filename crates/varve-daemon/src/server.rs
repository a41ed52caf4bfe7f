//! Serving until a signal comes: the HTTP listeners, `ready`, and the service manager.

use crate::config::Config;
use crate::http;
use crate::metrics::Scrapes;
use axum::Router;
use futures_util::future::{Either, select};
use std::cell::Cell;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use varve_api::{Code, Failure};
use varve_control::ControlHandle;

/// How long requests in flight may take once the daemon stops.
const GRACE: Duration = Duration::from_secs(2);

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

/// Serves until a signal comes or a shard breaks; then sets the `deadline` of the stop, and releases everything.
pub(crate) async fn serve(
    config: &Config,
    control: &ControlHandle,
    listener: UnixListener,
    mut signals: Signals,
    deadline: &Cell<Option<Instant>>,
) -> Result<(), Failure> {
    let (stop, stopped) = watch::channel(false);
    let servers = open(config, control, listener, &stopped).await?;
    announce(config);
    let broken = control.broken();
    let result = match select(Box::pin(signals.wait()), Box::pin(broken)).await {
        Either::Left((signal, _)) => {
            tracing::info!(signal, "stopping: what is in flight is finished first");
            Ok(())
        }
        Either::Right(_) => Err(Failure::new(Code::Failed, "a shard broke down; the log has the reason")
            .help("start the daemon again, and report this with its log")),
    };
    let begun = Instant::now();
    deadline.set(Some(begun + config.stop_timeout));
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    // The API answers until the exports are closed.
    let ended = control.stop().await;
    let _ = stop.send(true);
    let grace = (Instant::now() + GRACE).min(begun + config.stop_timeout);
    for server in servers {
        let _ = tokio::time::timeout_at(grace, server).await;
    }
    result.and(ended)
}

/// Starts to serve on the Unix socket, and on TCP what is wanted there.
async fn open(
    config: &Config,
    control: &ControlHandle,
    listener: UnixListener,
    stopped: &watch::Receiver<bool>,
) -> Result<Vec<JoinHandle<()>>, Failure> {
    let scrapes = Arc::new(Scrapes::new(config.tcp.volume_metrics));
    let service = http::service(control.clone(), Arc::clone(&scrapes));
    let unix = tokio::net::UnixListener::from_std(listener)
        .map_err(|error| unusable(&format!("the socket {}", config.socket.path.display()), &error))?;
    let mut servers = vec![tokio::spawn(http::listen::run(unix, service.clone(), stopped.clone()))];
    let mut guarded = async |address: Option<SocketAddr>, (what, open), service: Router| {
        let Some(address) = address else { return Ok(()) };
        let tcp = listen(control, address, (what, open)).await?;
        let guard =
            axum::middleware::from_fn(move |request, next| http::guard::check(address, request, next));
        servers.push(tokio::spawn(http::listen::run(tcp, service.layer(guard), stopped.clone())));
        Ok(())
    };
    let (http, metrics) = (config.tcp.http, config.tcp.metrics);
    guarded(http, ("HTTP", "may do everything"), service.clone()).await?;
    let metrics_service = http::metrics_service(control.clone(), scrapes);
    guarded(metrics, ("metrics", "reads the names of disks, volumes and exports"), metrics_service).await?;
    Ok(servers)
}

/// Listens at a TCP address; who reaches it may do what `open` says.
async fn listen(
    control: &ControlHandle,
    address: SocketAddr,
    (what, open): (&'static str, &'static str),
) -> Result<TcpListener, Failure> {
    if !address.ip().is_loopback() {
        let open = format!("{what} at {address} is open to other hosts: anybody who reaches it {open}");
        control
            .call(async move |control| {
                control.warn("varve daemon", &open);
                Ok(())
            })
            .await?;
    }
    let tcp = TcpListener::bind(address)
        .await
        .map_err(|error| unusable(&format!("the address {address}"), &error))?;
    tracing::info!(address = %tcp.local_addr().unwrap_or(address), "{what}");
    Ok(tcp)
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
