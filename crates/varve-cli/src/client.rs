//! The daemon's HTTP interface, over its Unix socket.

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;
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

    /// One request and its answer.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Failure> {
        let stream =
            UnixStream::connect(&self.socket).await.map_err(|error| unreachable(&self.socket, &error))?;
        let body = match body {
            Some(body) => serde_json::to_vec(body).expect("the requests are plain data"),
            None => Vec::new(),
        };
        let bytes =
            exchange(stream, method, path, body).await.map_err(|error| self.broken(error.as_ref()))?;
        let envelope: Envelope<T> = serde_json::from_slice(&bytes).map_err(|error| self.broken(&error))?;
        envelope.into_result()
    }

    fn broken(&self, error: &dyn std::error::Error) -> Failure {
        let message = format!("the daemon at {} did not answer as expected: {error}", self.socket.display());
        Failure::new(Code::Protocol, message).help("look at the daemon's log")
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(stream: UnixStream, method: Method, path: &str, body: Vec<u8>) -> Result<Bytes, AnyError> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
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
                .help("run the command as the user who runs the daemon")
        }
        std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
            Failure::new(Code::NoDaemon, format!("no daemon listens at {socket}"))
                .help(format!("start one: varve daemon --socket {socket}"))
        }
        _ => Failure::new(Code::NoDaemon, format!("cannot reach the daemon at {socket}: {error}")),
    }
}

/// `text` as one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_one_segment() {
        assert_eq!(segment("data/home@mo.1"), "data%2Fhome%40mo%2E1");
        assert_eq!(segment(".."), "%2E%2E", "no path climbs");
    }
}
