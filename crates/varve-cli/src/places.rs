//! Where the daemon's socket and state are by default, and whether a file can be made at a path.

use std::io;
use std::path::{Path, PathBuf};
use varve_api::{Code, Failure};

const ROOT_SOCKET: &str = "/run/varve/varve.sock";
const ROOT_STATE: &str = "/var/lib/varve";
const ROOT_CONFIG: &str = "/etc/varve/varve.toml";

/// The socket of a daemon that is to be reached: `given`, else `$VARVE_SOCKET`, else the first usual place that
/// exists, else the first usual place.
pub(crate) fn client_socket(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(path) = given.or_else(|| variable("VARVE_SOCKET")) {
        return Ok(path);
    }
    let places = sockets_of_clients(usual_sockets());
    let first = places.first().cloned().ok_or_else(no_place)?;
    Ok(places.into_iter().find(|path| path.exists()).unwrap_or(first))
}

/// Where a daemon may be that is to be reached: root's may let a group of other users in.
fn sockets_of_clients(mut own: Vec<PathBuf>) -> Vec<PathBuf> {
    let of_root = PathBuf::from(ROOT_SOCKET);
    if !own.contains(&of_root) {
        own.push(of_root);
    }
    own
}

/// The configuration file of a daemon that starts: `given`, else that of root if it is there.
pub(crate) fn daemon_config(given: Option<&Path>) -> Option<PathBuf> {
    let usual = || is_root().then(|| PathBuf::from(ROOT_CONFIG)).filter(|path| path.exists());
    given.map(Path::to_owned).or_else(usual)
}

/// Whether the environment says where the daemon's socket is.
pub(crate) fn is_socket_in_environment() -> bool {
    variable("VARVE_SOCKET").is_some()
}

/// The socket of a daemon that starts.
pub(crate) fn daemon_socket(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let named = given.or_else(|| variable("VARVE_SOCKET"));
    let path = named.or_else(|| usual_sockets().into_iter().next()).ok_or_else(no_place)?;
    rooted(&path)
}

/// The state directory of a daemon that starts.
pub(crate) fn daemon_state(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(path) = given {
        return rooted(&path);
    }
    if is_root() {
        return Ok(PathBuf::from(ROOT_STATE));
    }
    let base = variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")));
    let missing =
        || Failure::new(Code::Usage, "there is no home directory to keep state in").help("give --state DIR");
    base.map(|base| base.join("varve")).ok_or_else(missing)
}

/// `path` seen from the root directory, for a daemon that works elsewhere.
pub(crate) fn absolute(path: &str) -> Result<String, Failure> {
    rooted(Path::new(path))?.into_os_string().into_string().map_err(|path| {
        Failure::new(Code::Usage, format!("{} is not UTF-8", path.display()))
            .help("use a link with a plain name")
    })
}

fn rooted(path: &Path) -> Result<PathBuf, Failure> {
    let unusable =
        |error| Failure::new(Code::FileUnusable, format!("{} is no path: {error}", path.display()));
    std::path::absolute(path).map_err(unusable)
}

/// All of `paths` seen from the root directory.
pub(crate) fn absolute_all(paths: &[String]) -> Result<Vec<String>, Failure> {
    paths.iter().map(|path| absolute(path)).collect()
}

/// The same of paths that need not be UTF-8.
pub(crate) fn absolute_paths(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    paths.iter().map(|path| rooted(path)).collect()
}

/// Which events the daemon logs.
pub(crate) fn log_filter() -> Option<String> {
    variable("VARVE_LOG").and_then(|filter| filter.into_os_string().into_string().ok())
}

fn usual_sockets() -> Vec<PathBuf> {
    let runtime = variable("XDG_RUNTIME_DIR").map(|directory| directory.join("varve/varve.sock"));
    runtime.into_iter().chain(is_root().then(|| PathBuf::from(ROOT_SOCKET))).collect()
}

fn no_place() -> Failure {
    Failure::new(Code::Usage, "there is no usual place for the daemon's socket: $XDG_RUNTIME_DIR is not set")
        .help("give --socket PATH, or set $VARVE_SOCKET")
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a file could be made or written at `path`; nothing is changed.
pub(crate) fn check_place(path: &Path) -> io::Result<()> {
    if path.is_file() {
        return std::fs::OpenOptions::new().write(true).open(path).map(drop);
    }
    varve_os::check_folder(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_root_is_looked_for_after_the_own_and_once() {
        let (own, root) = (PathBuf::from("/run/user/7/varve/varve.sock"), PathBuf::from(ROOT_SOCKET));
        assert_eq!(sockets_of_clients(vec![own.clone()]), [own.clone(), root.clone()]);
        assert_eq!(sockets_of_clients(vec![own.clone(), root.clone()]), [own, root.clone()]);
        assert_eq!(sockets_of_clients(Vec::new()), [root]);
    }
}
