//! One request to the daemon's interface over its Unix socket: without a program to start, so that it can be timed.

use crate::prelude::*;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Asks and returns the `data` of the answer.
pub(crate) fn call(socket: &Path, method: &str, path: &str, body: &Value) -> Outcome<Value> {
    let told = format!("{method} {path}");
    let complain = |error: std::io::Error| format!("{told}: {error}");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: varve\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = UnixStream::connect(socket).map_err(complain)?;
    stream.write_all((head + &body).as_bytes()).map_err(complain)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(complain)?;
    data(&answer).of(told)
}

/// The `data` of an answer that was received in full.
fn data(answer: &str) -> Outcome<Value> {
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer has no end of its head")?;
    if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        return Err("the answer comes in chunks".into());
    }
    let answer: Value = serde_json::from_str(body).map_err(|_| format!("no JSON: {body}"))?;
    match answer.get("error").filter(|error| !error.is_null()) {
        Some(error) => Err(Failed::from(error)),
        None => Ok(answer.get("data").cloned().unwrap_or(Value::Null)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_taken_out_and_errors_are_told() {
        let answer = |body: &str| format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{body}");
        assert_eq!(data(&answer(r#"{"schema":"varve.v1","data":[1]}"#)), Ok(serde_json::json!([1])));
        let refused = data(&answer(r#"{"schema":"varve.v1","error":{"code":"V0003"}}"#));
        assert!(refused.expect_err("an error").0.contains("V0003"));
        assert!(data(&answer("{")).is_err() && data("HTTP/1.1 200 OK").is_err());
        assert!(data("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n").is_err());
    }
}
