//! The daemon's HTTP interface, over its Unix socket.

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;
use varve_api::calls::{self, Call};
use varve_api::{Code, Envelope, Failure};

/// A daemon at a socket.
pub(crate) struct Client {
    socket: PathBuf,
}

impl Client {
    /// The daemon that listens at `socket`.
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// One call and its answer.
    pub(crate) async fn call<C: Call>(&self, call: &C) -> Result<C::Answer, Failure> {
        let method = match C::DECLARED.method {
            calls::Method::Get => Method::GET,
            calls::Method::Post => Method::POST,
            calls::Method::Delete => Method::DELETE,
        };
        let bytes = self.exchange(method, &call.target(), call.body()).await?;
        let envelope: Envelope<C::Answer> =
            serde_json::from_slice(&bytes).map_err(|error| self.broken(&error))?;
        envelope.into_result()
    }

    /// The text at `path`.
    pub(crate) async fn text(&self, path: &str) -> Result<String, Failure> {
        let bytes = self.exchange(Method::GET, path, Vec::new()).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn exchange(&self, method: Method, target: &str, body: Vec<u8>) -> Result<Bytes, Failure> {
        let stream =
            UnixStream::connect(&self.socket).await.map_err(|error| unreachable(&self.socket, &error))?;
        exchange(stream, method, target, body).await.map_err(|error| self.broken(error.as_ref()))
    }

    fn broken(&self, error: &dyn std::error::Error) -> Failure {
        let message = format!("the daemon at {} did not answer as expected: {error}", self.socket.display());
        Failure::new(Code::Protocol, message).help("look at the daemon's log")
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(
    stream: UnixStream,
    method: Method,
    target: &str,
    body: Vec<u8>,
) -> Result<Bytes, AnyError> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header("host", "varve")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))?;
    let response = sender.send_request(request).await?;
    let bytes = response.into_body().collect().await?.to_bytes();
    drop(sender);
    driver.abort();
    Ok(bytes)
}

fn unreachable(socket: &Path, error: &std::io::Error) -> Failure {
    let socket = socket.display();
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            Failure::new(Code::NoDaemon, format!("you may not use the daemon's socket {socket}"))
                .help("run the command as the user who runs the daemon, or as a member of the group of its --socket-group")
        }
        std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
            Failure::new(Code::NoDaemon, format!("no daemon listens at {socket}"))
                .help(format!("start one: varve daemon --socket {socket}"))
        }
        _ => Failure::new(Code::NoDaemon, format!("cannot reach the daemon at {socket}: {error}")),
    }
}
