//! Where an export is reached: the texts of the command line, parsed.

use crate::failures;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use varve_api::{Code, Door, Failure};
use varve_vg::names::VolumeName;
use varve_volume::world::Place;

/// Where an export is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// At a socket.
    Nbd(Place),
    /// As a file.
    Fuse(PathBuf),
}

impl Address {
    /// Parses what stands behind `--nbd` or `--fuse`. Host names are looked up, which may wait.
    pub(crate) fn parse(door: Door, text: &str) -> Result<Self, Failure> {
        match door {
            Door::Nbd => nbd_place(text).map(Address::Nbd),
            Door::Fuse if Path::new(text).is_absolute() => Ok(Address::Fuse(PathBuf::from(text))),
            Door::Fuse => Err(bad(text, "the path of a file is absolute")),
            Door::Ublk | Door::VhostUser => {
                Err(Failure::new(Code::NotBuilt, format!("exports through {door}: not built yet"))
                    .help("use --nbd or --fuse"))
            }
        }
    }

    /// The one way in which an address is written.
    pub(crate) fn text(&self) -> String {
        match self {
            Address::Nbd(Place::Unix(path)) => format!("unix:{}", path.display()),
            Address::Nbd(Place::Tcp(address)) => format!("tcp:{address}"),
            Address::Fuse(path) => path.display().to_string(),
        }
    }

    /// What an NBD client connects to, to reach `name`.
    pub(crate) fn uri(&self, name: &VolumeName) -> Option<String> {
        let name = escape(&name.to_string());
        match self {
            Address::Nbd(Place::Unix(path)) => {
                Some(format!("nbd+unix:///{name}?socket={}", escape_path(&path.display().to_string())))
            }
            Address::Nbd(Place::Tcp(address)) => Some(format!("nbd://{address}/{name}")),
            Address::Fuse(_) => None,
        }
    }

    /// The file of its socket or mount.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        match self {
            Address::Nbd(Place::Unix(path)) | Address::Fuse(path) => Some(path.clone()),
            Address::Nbd(Place::Tcp(_)) => None,
        }
    }

    /// The file to use.
    pub(crate) fn path(&self) -> Option<String> {
        match self {
            Address::Fuse(path) => Some(path.display().to_string()),
            Address::Nbd(_) => None,
        }
    }
}

fn nbd_place(text: &str) -> Result<Place, Failure> {
    if let Some(path) = text.strip_prefix("unix:") {
        failures::socket_path(Path::new(path))?;
        return Ok(Place::Unix(PathBuf::from(path)));
    }
    let Some(place) = text.strip_prefix("tcp:") else {
        return Err(bad(text, "it begins neither with unix: nor with tcp:"));
    };
    // A port alone means this machine only.
    let (host, port) = place.rsplit_once(':').unwrap_or(("", place));
    let host = if host.is_empty() { "127.0.0.1" } else { host.trim_matches(['[', ']']) };
    let port: std::num::NonZeroU16 =
        port.parse().map_err(|_| bad(text, "the port is a number from 1 to 65535"))?;
    let port = port.get();
    let resolved = (host, port).to_socket_addrs().map_err(|error| bad(text, &error.to_string()))?;
    let resolved: Vec<SocketAddr> = resolved.collect();
    let address = resolved.iter().find(|address| address.is_ipv4()).or(resolved.first());
    address.map(|address| Place::Tcp(*address)).ok_or_else(|| bad(text, "the host has no address"))
}

fn bad(text: &str, why: &str) -> Failure {
    Failure::new(Code::BadAddress, format!("{text:?} is no address: {why}"))
        .help("--nbd unix:PATH, --nbd tcp:HOST:PORT, --fuse FILE")
}

/// `text` as one segment of a URI's path.
fn escape(text: &str) -> String {
    escape_keeping(text, b"-._~")
}

/// `text` as the value of a URI's query.
fn escape_path(text: &str) -> String {
    escape_keeping(text, b"-._~/")
}

fn escape_keeping(text: &str, kept: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_in_one_way() {
        for (text, written) in [
            ("unix:/run/a.sock", "unix:/run/a.sock"),
            ("tcp:127.0.0.1:10809", "tcp:127.0.0.1:10809"),
            ("tcp:10809", "tcp:127.0.0.1:10809"),
            ("tcp::10809", "tcp:127.0.0.1:10809"),
            ("tcp:[::1]:10809", "tcp:[::1]:10809"),
        ] {
            let address = Address::parse(Door::Nbd, text).expect(text);
            assert_eq!(address.text(), written);
            assert_eq!(Address::parse(Door::Nbd, written), Ok(address));
        }
        let long = format!("unix:/{}", "x".repeat(107));
        for wrong in [
            "",
            "/run/a.sock",
            "unix:",
            "unix:a.sock",
            "tcp:localhost",
            "tcp:h:99999",
            "tcp:localhost:0",
            &long,
        ] {
            let code = Address::parse(Door::Nbd, wrong).map_err(|failure| failure.code);
            assert_eq!(code.err(), Some(Code::BadAddress), "{wrong}");
        }
    }

    #[test]
    fn uris_are_escaped_as_clients_expect() {
        let name: VolumeName = "data/home@mo.1".parse().expect("a name");
        let address = Address::parse(Door::Nbd, "unix:/tmp/a b.sock").expect("an address");
        let wanted = "nbd+unix:///data%2Fhome%40mo.1?socket=/tmp/a%20b.sock";
        assert_eq!(address.uri(&name).as_deref(), Some(wanted));
        let address = Address::parse(Door::Nbd, "tcp:10809").expect("an address");
        assert_eq!(address.uri(&name).as_deref(), Some("nbd://127.0.0.1:10809/data%2Fhome%40mo.1"));
    }
}
