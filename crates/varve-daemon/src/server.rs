//! Serving until a signal comes: the HTTP listeners, `ready`, and the service manager.

use crate::config::Config;
use crate::http;
use axum::Router;
use futures_util::future::{Either, select};
use std::cell::Cell;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::time::Duration;
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
    let service = http::service(control.clone());
    let servers = open(config, control, listener, &service, &stopped).await?;
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

/// Starts to serve on the Unix socket, and on TCP if that is wanted.
async fn open(
    config: &Config,
    control: &ControlHandle,
    listener: UnixListener,
    service: &Router,
    stopped: &watch::Receiver<bool>,
) -> Result<Vec<JoinHandle<()>>, Failure> {
    let unusable = |what: String, error| Failure::new(Code::SocketUnusable, format!("{what}: {error}"));
    let unix = tokio::net::UnixListener::from_std(listener)
        .map_err(|error| unusable(format!("the socket {}", config.socket.path.display()), error))?;
    let mut servers = vec![tokio::spawn(http::listen::run(unix, service.clone(), stopped.clone()))];
    if let Some(address) = config.http {
        if !address.ip().is_loopback() {
            let open =
                format!("HTTP at {address} is open to other hosts: anybody who reaches it may do everything");
            control
                .call(async move |control| {
                    control.warn("varve daemon", &open);
                    Ok(())
                })
                .await?;
        }
        let tcp = tokio::net::TcpListener::bind(address)
            .await
            .map_err(|error| unusable(format!("the address {address}"), error))?;
        tracing::info!(address = %tcp.local_addr().unwrap_or(address), "HTTP");
        let guard =
            axum::middleware::from_fn(move |request, next| http::guard::check(address, request, next));
        let guarded = service.clone().layer(guard);
        servers.push(tokio::spawn(http::listen::run(tcp, guarded, stopped.clone())));
    }
    Ok(servers)
}

/// Reports on standard output, and to systemd, that the daemon serves.
fn announce(config: &Config) {
    tracing::info!(socket = %config.socket.path.display(), state = %config.state.display(), "ready");
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "ready");
    let _ = out.flush();
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
}
