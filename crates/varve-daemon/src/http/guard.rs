//! What a request over TCP must show, where any client that reaches the address may do everything: that no browser was led to it
//! by a page from elsewhere.
//!
//! Invariants:
//! - GUARD1. A request with an `Origin` is refused: a page in a browser on this machine could reach the address too.
//! - GUARD2. A request has a `Host` that names this machine by loopback or by the address that was configured. A name that
//!   another party resolves to this address (DNS rebinding) is refused.

use super::reply::Refusal;
use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, SocketAddr};
use varve_api::{Code, Failure};

/// Lets a request through or refuses it.
pub(crate) async fn check(address: SocketAddr, request: Request, next: Next) -> Response {
    let why = if request.headers().contains_key(ORIGIN) {
        "a request from a browser's page is not served" // GUARD1
    } else if !names_this_machine(address, request.uri(), request.headers()) {
        "the request's Host names neither loopback nor the address that is listened at" // GUARD2
    } else {
        return next.run(request).await;
    };
    let failure = Failure::new(Code::Usage, why).help(format!("use http://{address}, or --socket"));
    let mut response = Refusal(failure).into_response();
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}

/// Whether the `Host` of a request names this machine (GUARD2).
fn names_this_machine(address: SocketAddr, uri: &Uri, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let in_line = uri.authority().is_none_or(|authority| is_ours(address, authority.as_str()));
    in_line && host.to_str().is_ok_and(|host| is_ours(address, host))
}

fn is_ours(address: SocketAddr, host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    // Where every address of this machine is listened at, any address is one; a numeric address is never resolved.
    bare.parse::<IpAddr>()
        .is_ok_and(|ip| ip.is_loopback() || ip == address.ip() || address.ip().is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_the_configured_address_are_ours_and_names_of_others_are_not() {
        let address: SocketAddr = "192.0.2.7:9000".parse().expect("an address");
        for host in [
            "localhost",
            "LOCALHOST:9000",
            "127.0.0.1",
            "127.0.0.1:1",
            "[::1]:9000",
            "[::1]",
            "192.0.2.7:9000",
        ] {
            assert!(is_ours(address, host), "GUARD2: {host}");
        }
        for host in [
            "",
            ":9000",
            "evil.example",
            "evil.example:9000",
            "192.0.2.8",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
        ] {
            assert!(!is_ours(address, host), "GUARD2: {host}");
        }
        let any: SocketAddr = "[::]:9000".parse().expect("an address");
        assert!(is_ours(any, "192.0.2.8:9000") && !is_ours(any, "evil.example"), "GUARD2");
    }

    #[test]
    fn a_request_without_a_host_or_with_two_is_not_ours() {
        let address: SocketAddr = "127.0.0.1:9000".parse().expect("an address");
        let with = |hosts: &[&str], uri: &str| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(HOST, host.parse().expect("a value"));
            }
            names_this_machine(address, &uri.parse().expect("a URI"), &headers)
        };
        assert!(with(&["localhost"], "/v1/status"));
        assert!(!with(&[], "/v1/status") && !with(&["localhost", "evil.example"], "/v1/status"), "GUARD2");
        assert!(!with(&["localhost"], "http://evil.example/v1/status"), "GUARD2");
    }
}
