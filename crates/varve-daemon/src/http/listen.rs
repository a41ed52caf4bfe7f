//! Connections of the HTTP interface: accepted, served, and bounded, so that none keeps the others out.
//!
//! Invariants:
//! - LISTEN1. A listener has at most [`CONNECTIONS_MAX`] connections. For one more, the oldest of those without a
//!   request under way is closed; if all have one, the new connection receives that as an error.
//! - LISTEN2. A client that does not finish the head of a request, or says nothing at all, is left after [`HEAD_LIMIT`].
//! - LISTEN3. A request that was handed to the control is answered, also when the daemon stops meanwhile.

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use varve_api::{Code, Failure};

/// Connections of one listener at a time.
pub(crate) const CONNECTIONS_MAX: usize = 64;
/// How long the head of a request may take.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Where the HTTP interface listens.
pub(crate) struct Listeners {
    /// The daemon's socket.
    pub(crate) socket: UnixListener,
    /// TCP addresses, and the sockets that listen there.
    pub(crate) tcp: Vec<(SocketAddr, TcpListener)>,
}

impl Listeners {
    /// The same sockets, by descriptors of their own.
    pub(crate) fn try_clone(&self) -> std::io::Result<Self> {
        let tcp = self.tcp.iter().map(|(address, listener)| Ok((*address, listener.try_clone()?)));
        Ok(Self { socket: self.socket.try_clone()?, tcp: tcp.collect::<std::io::Result<_>>()? })
    }
}

/// The connections of one listener, the oldest first.
#[derive(Clone, Default)]
struct Connections {
    open: Arc<Mutex<VecDeque<Arc<Connection>>>>,
}

#[derive(Default)]
struct Connection {
    /// Whether a request is under way.
    is_busy: AtomicBool,
    /// Ends it.
    leave: Notify,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, VecDeque<Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for one more and counts it; `None` if all are at work (LISTEN1).
    fn enter(&self) -> Option<Entered> {
        let mut open = self.open();
        if open.len() >= CONNECTIONS_MAX {
            let waiting = open.iter().position(|connection| !connection.is_busy.load(SeqCst))?;
            let oldest = open.remove(waiting)?;
            oldest.leave.notify_one();
        }
        let connection = Arc::new(Connection::default());
        open.push_back(Arc::clone(&connection));
        Some(Entered { connections: self.clone(), connection })
    }
}

/// One connection among the others, as long as it lives.
struct Entered {
    connections: Connections,
    connection: Arc<Connection>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.connections.open().retain(|connection| !Arc::ptr_eq(connection, &self.connection));
    }
}

/// Serves what `listener` accepts until `stopped`, and what is under way then to its end.
pub(crate) async fn run<L>(mut listener: L, service: Router, mut stopped: watch::Receiver<bool>)
where
    L: axum::serve::Listener,
{
    let connections = Connections::default();
    let mut tasks = JoinSet::new();
    loop {
        let stream = tokio::select! {
            (stream, _) = listener.accept() => stream,
            Some(_) = tasks.join_next() => continue,
            _ = stopped.wait_for(|stopped| *stopped) => break,
        };
        tasks.spawn(serve(stream, connections.enter(), HEAD_LIMIT, service.clone(), stopped.clone()));
    }
    while tasks.join_next().await.is_some() {}
}

async fn serve<S>(
    stream: S,
    entered: Option<Entered>,
    head_limit: Duration,
    service: Router,
    mut stopped: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = entered.as_ref().map(|entered| Arc::clone(&entered.connection));
    let answer = {
        let connection = connection.clone();
        hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let (service, connection) = (service.clone(), connection.clone());
            async move {
                Ok::<_, std::convert::Infallible>(
                    answer(request.map(axum::body::Body::new), service, connection).await,
                )
            }
        })
    };
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head_limit).max_buf_size(HEAD_BYTES_MAX); // LISTEN2
    builder.keep_alive(entered.is_some());
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), answer));
    let leave = async {
        match &connection {
            Some(connection) => connection.leave.notified().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        result = served.as_mut() => return note(result),
        () = leave => return, // LISTEN1
        _ = stopped.wait_for(|stopped| *stopped) => served.as_mut().graceful_shutdown(), // LISTEN3
    }
    note(served.await);
}

fn note(result: hyper::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "an HTTP connection ended out of order");
    }
}

async fn answer(request: Request, service: Router, connection: Option<Arc<Connection>>) -> Response {
    let Some(connection) = connection else {
        let failure =
            Failure::new(Code::Failed, format!("{CONNECTIONS_MAX} HTTP requests are under way already"));
        let failure = failure.help("try again when some of them have ended");
        let mut response = super::reply::Refusal(failure).into_response();
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        return response;
    };
    connection.is_busy.store(true, SeqCst);
    let response = TowerToHyperService::new(service).call(request).await;
    connection.is_busy.store(false, SeqCst);
    response.unwrap_or_else(|never| match never {})
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

    fn run<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(test)
    }

    /// A service that answers when `go_on` is notified, and notifies `asked` of each request.
    fn service(asked: &Arc<Notify>, go_on: &Arc<Notify>) -> Router {
        let (asked, go_on) = (Arc::clone(asked), Arc::clone(go_on));
        let answer = async move || {
            asked.notify_one();
            go_on.notified().await;
            "done"
        };
        Router::new().route("/", get(answer))
    }

    #[test]
    fn the_connection_that_waits_longest_makes_room_and_none_that_is_at_work() {
        let connections = Connections::default();
        let all: Vec<Entered> = (0..CONNECTIONS_MAX).map(|_| connections.enter().expect("room")).collect();
        all[0].connection.is_busy.store(true, SeqCst);
        let one_more = connections.enter();
        assert!(one_more.is_some() && connections.open().len() == CONNECTIONS_MAX, "LISTEN1");
        let is_there = |entered: &Entered| {
            connections.open().iter().any(|connection| Arc::ptr_eq(connection, &entered.connection))
        };
        assert!(is_there(&all[0]) && !is_there(&all[1]) && is_there(&all[2]), "LISTEN1");
        connections.open().iter().for_each(|connection| connection.is_busy.store(true, SeqCst));
        assert!(connections.enter().is_none(), "LISTEN1: all are at work");
    }

    #[test]
    fn a_client_that_does_not_finish_its_head_is_left() {
        run(async {
            let ((mut client, server), (_stop, stopped)) = (duplex(4096), watch::channel(false));
            client.write_all(&REQUEST[..20]).await.expect("a pipe");
            let entered = Connections::default().enter();
            let nothing = Arc::default();
            serve(server, entered, Duration::from_millis(1), service(&nothing, &nothing), stopped).await;
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.expect("a pipe");
            assert!(!String::from_utf8_lossy(&answer).contains("200 OK"), "LISTEN2");
        });
    }

    #[test]
    fn a_request_under_way_is_answered_when_the_daemon_stops() {
        run(async {
            let ((mut client, server), (stop, stopped)) = (duplex(4096), watch::channel(false));
            let (asked, go_on) = (Arc::default(), Arc::default());
            let served =
                serve(server, Connections::default().enter(), HEAD_LIMIT, service(&asked, &go_on), stopped);
            let talk = async {
                client.write_all(REQUEST).await.expect("a pipe");
                asked.notified().await;
                stop.send(true).expect("it is served");
                tokio::task::yield_now().await;
                go_on.notify_one();
                let mut answer = String::new();
                client.read_to_string(&mut answer).await.expect("a pipe");
                assert!(
                    answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("done"),
                    "LISTEN3: {answer}"
                );
            };
            tokio::join!(served, talk);
        });
    }
}
