//! `varve daemon`: the words of the command line as the daemon's configuration.

use crate::answer::Answer;
use crate::grammar::{DaemonOptions, IoChoice, LogChoice};
use crate::places;
use crate::settings::Settings;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;
use varve_api::{Code, Exit, Failure};
use varve_daemon::{Config, ControlSocket, IoMode, LogForm, TcpListeners};
use varve_os::FileAccess;

/// What a mode has to let the owner do: read and write.
const OWNER_MODE: u32 = 0o600;
/// The mode of a socket that a group has.
const SHARED_MODE: u32 = 0o660;

/// Runs the daemon until it ends; these words of the command line are its `options`.
pub(crate) fn run(options: &DaemonOptions, words: &[OsString]) -> Result<Answer, Failure> {
    let settings = Settings::read(options, words)?;
    let config = config(&settings.options, settings.socket.clone())?;
    if options.check_config {
        return Ok(settings.show(&config));
    }
    varve_daemon::run(&config, options.replace)?;
    Ok(Answer::silent(Exit::Ok))
}

fn config(options: &DaemonOptions, socket: Option<PathBuf>) -> Result<Config, Failure> {
    refuse_exposed(options)?;
    Ok(Config {
        state: places::daemon_state(options.state.clone())?,
        socket: ControlSocket { path: places::daemon_socket(socket)?, access: socket_access(options)? },
        tcp: TcpListeners {
            http: options.http,
            metrics: options.metrics,
            volume_metrics: options.metrics_volumes,
        },
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
    })
}

/// Who may connect to the daemon's socket. Who may, may do all that the daemon may: that is not to come about by an oversight.
fn socket_access(options: &DaemonOptions) -> Result<FileAccess, Failure> {
    let shared = if options.socket_group.is_some() { SHARED_MODE } else { FileAccess::OWNER.mode };
    let mode = options.socket_mode.map_or(shared, varve_api::FileMode::bits);
    let refused = |code: Code, why: &str| {
        Err(Failure::new(code, format!("--socket-mode {mode:04o} {why}"))
            .help("--socket-mode 0660 --socket-group GROUP"))
    };
    if mode & OWNER_MODE != OWNER_MODE {
        return refused(Code::Usage, "does not let the daemon's user read and write");
    }
    if mode & 0o007 != 0 {
        return refused(Code::Exposed, "lets every user of this host do what the daemon may");
    }
    let group = options.socket_group.as_deref().map(find_group).transpose()?;
    Ok(FileAccess { mode, group })
}

fn find_group(name: &str) -> Result<u32, Failure> {
    varve_os::find_group(name).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::new(Code::Usage, format!("--socket-group: there is no group {name}"))
            .help(format!("groupadd --system {name}; getent group lists all")),
        ErrorKind::PermissionDenied => {
            Failure::new(Code::Usage, format!("--socket-group: this user may not give files to group {name}"))
                .help("start the daemon as root or as a member of the group")
        }
        _ => Failure::new(Code::Usage, format!("--socket-group {name}: {error}")).help("getent group"),
    })
}

/// Refuses HTTP and metrics where other hosts reach it, unless that is accepted.
fn refuse_exposed(options: &DaemonOptions) -> Result<(), Failure> {
    let listeners = [
        ("HTTP", "--http", options.http, "may do everything"),
        ("metrics", "--metrics", options.metrics, "may read the names of disks, volumes and exports"),
    ];
    for (what, option, address, may) in listeners {
        let exposed = address.filter(|address| !address.ip().is_loopback() && !options.insecure);
        let Some(address) = exposed else { continue };
        let message = format!("other hosts reach {what} at {address} without encryption or authentication");
        return Err(Failure::new(Code::Exposed, message).help(format!(
            "{option} 127.0.0.1:PORT; or add --insecure, if all who reach the address {may}"
        )));
    }
    Ok(())
}
