//! `varve daemon`: the words of the command line as the daemon's configuration.

use crate::answer::Answer;
use crate::grammar::{DaemonOptions, IoChoice, LogChoice};
use crate::places;
use std::path::PathBuf;
use std::time::Duration;
use varve_api::{Code, Exit, Failure};
use varve_daemon::{Config, IoMode, LogForm};

/// Runs the daemon until it ends.
pub(crate) fn run(options: DaemonOptions, socket: Option<PathBuf>) -> Result<Answer, Failure> {
    refuse_exposed(&options)?;
    let config = Config {
        state: places::daemon_state(options.state)?,
        socket: places::daemon_socket(socket)?,
        http: options.http,
        shards: options.shards.map(usize::from),
        io: match options.io {
            IoChoice::Ring => IoMode::Ring,
            IoChoice::Pool => IoMode::Pool,
            IoChoice::Auto => IoMode::Auto,
        },
        cache: options.cache,
        memory: usize::try_from(options.memory_mib).unwrap_or(64) << 20,
        connections: usize::from(options.connections),
        client_timeout: Duration::from_secs(options.client_timeout.into()),
        stop_timeout: Duration::from_secs(options.stop_timeout),
        spare_after: Duration::from_secs(60 * u64::from(options.spare_after)),
        image_dirs: places::absolute_paths(&options.image_dirs)?,
        log: match options.log {
            LogChoice::Json => LogForm::Json,
            LogChoice::Auto | LogChoice::Text => LogForm::Text,
        },
        log_filter: places::log_filter(),
    };
    varve_daemon::run(&config)?;
    Ok(Answer::silent(Exit::Ok))
}

/// Refuses HTTP where other hosts reach it, unless that is accepted.
fn refuse_exposed(options: &DaemonOptions) -> Result<(), Failure> {
    let exposed = options.http.filter(|address| !address.ip().is_loopback() && !options.insecure);
    let Some(address) = exposed else { return Ok(()) };
    let message = format!("other hosts reach HTTP at {address} without encryption or authentication");
    Err(Failure::new(Code::Exposed, message)
        .help("--http 127.0.0.1:PORT; or add --insecure, if all who reach the address may do everything"))
}
