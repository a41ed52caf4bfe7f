//! The command: `varve-cowd IMAGE --socket PATH`.

use clap::Parser;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::ExitCode;
use varve_cowd::{Cow, Settings};
use varve_mapper::serve;
use varve_os::{FileAccess, bind_unix};
use varve_vg::size::parse_size;

/// Connections that may wait: there is one volume.
const BACKLOG: i32 = 8;

/// Decide by a qcow2 image where the bytes of a volume lie.
///
/// Varve connects to the socket: `varve lv create VG/LV --mapper unix:PATH --size SIZE`. It moves all data itself; this program
/// reads and writes the image's tables.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// The qcow2 image. It is written; what is below it is read.
    image: PathBuf,
    /// Where to listen. Only this user may connect.
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Tell where all data is as soon as a volume connects.
    #[arg(long)]
    prime: bool,
    /// Let answers to reads reach so many bytes further than what was asked.
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = size)]
    read_ahead: u64,
    /// Bytes of the image's tables kept in memory.
    #[arg(long, value_name = "SIZE", default_value = "4M", value_parser = size)]
    cache: u64,
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let settings = Settings {
        primes: arguments.prime,
        read_ahead: arguments.read_ahead,
        cache_bytes: arguments.cache,
        ..Settings::new(arguments.image)
    };
    let mut cow = Cow::new(settings);
    if let Err(error) = cow.check() {
        tracing::error!(%error, "the image cannot be used");
        return ExitCode::FAILURE;
    }
    let listener = match bind_unix(&arguments.socket, FileAccess::OWNER, BACKLOG) {
        Ok(socket) => UnixListener::from(socket),
        Err(error) => {
            tracing::error!(socket = %arguments.socket.display(), %error, "cannot listen");
            return ExitCode::FAILURE;
        }
    };
    for engine in listener.incoming() {
        let served = engine.map_err(Into::into).and_then(|engine| serve(engine, &mut cow));
        if let Err(error) = served {
            tracing::error!(%error, "a connection has ended");
        }
        if let Err(error) = cow.disconnected() {
            tracing::error!(%error, "the image was not closed");
        }
    }
    ExitCode::SUCCESS
}
