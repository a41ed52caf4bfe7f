//! Listens on a Unix socket that only its owner may connect to.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Listens at `path`; a socket that an earlier mapper left there is replaced. The file's mode is 0600 from the moment when
/// it has its name.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let new = Path::new(&new);
    let _ = std::fs::remove_file(new);
    let listener = UnixListener::bind(new)?;
    std::fs::set_permissions(new, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(new, path)?;
    Ok(listener)
}
