//! Where an export is reached, as its kind of door has read it.

use crate::host::path_calls::at_path;
use std::path::{Path, PathBuf};
use varve_api::{Code, Failure};
use varve_vg::names::VolumeName;
use varve_volume::Host;

/// Where an export is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The one way in which it is written; it is read as this address again, without a look-up.
    pub(crate) text: String,
    /// The file of its socket or mount.
    pub(crate) file: Option<PathBuf>,
    /// The file or device to use.
    pub(crate) path: Option<PathBuf>,
    /// What is before and behind the name of an export in its URI.
    pub(crate) uri: Option<[String; 2]>,
    /// Whether several exports may be here, each with its own name.
    pub(crate) is_shared: bool,
    /// Whether the folder of its file is made with the file.
    pub(crate) makes_folder: bool,
    /// Whether other hosts reach it, in the clear.
    pub(crate) is_exposed: bool,
    /// Whether users choose the permissions of its file.
    pub(crate) has_permissions: bool,
}

impl Address {
    /// A file that only one export can be at.
    pub(super) fn of_file(path: &Path) -> Self {
        let (text, file) = (path.display().to_string(), Some(path.to_owned()));
        let (is_shared, makes_folder, is_exposed, has_permissions) = (false, false, false, true);
        Self {
            text,
            path: file.clone(),
            file,
            uri: None,
            is_shared,
            makes_folder,
            is_exposed,
            has_permissions,
        }
    }

    /// What a client connects to, to reach `name`, through TLS if that `is_encrypted`.
    pub(crate) fn uri(&self, name: &VolumeName, is_encrypted: bool) -> Option<String> {
        let [before, behind] = self.uri.as_ref()?;
        let uri = format!("{before}{}{behind}", escape(&name.to_string()));
        Some(if is_encrypted { uri.replacen("nbd", "nbds", 1) } else { uri })
    }

    /// Whether it is one of NBD: the protocol that has URIs, TLS and metadata contexts.
    pub(super) fn is_nbd(&self) -> bool {
        self.uri.is_some()
    }

    /// Refuses an address that other hosts reach in the clear, unless a user agreed to that or TLS is required; `help` says how.
    pub(super) fn check_exposure(
        &self,
        is_agreed: bool,
        help: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        if is_agreed || !self.is_exposed {
            return Ok(());
        }
        let message = format!("other hosts reach {} without encryption or authentication", self.text);
        Err(Failure::new(Code::Exposed, message).help(help()))
    }

    /// Refuses an address in a folder that is not there.
    pub(crate) async fn check_folder(&self, host: &Host) -> Result<(), Failure> {
        let Some(path) = self.file.as_ref().filter(|_| !self.makes_folder) else { return Ok(()) };
        let Some(folder) = path.parent().map(Path::to_owned) else { return Ok(()) };
        let asked = folder.clone();
        if at_path(host, &folder, move |files| files.is_folder(&asked)).await? {
            return Ok(());
        }
        let message = format!("{}: there is no folder {}", path.display(), folder.display());
        Err(Failure::new(Code::DoorFailed, message).help(format!("mkdir -p {}", folder.display())))
    }
}

/// The failure of a text that is no address.
pub(crate) fn bad(text: &str, why: &str) -> Failure {
    Failure::new(Code::BadAddress, format!("{text:?} is no address: {why}"))
        .help("--nbd unix:PATH, --nbd tcp:HOST:PORT, --fuse FILE, --vhost-user PATH")
}

/// `text` as one segment of a URI's path.
fn escape(text: &str) -> String {
    escape_keeping(text, b"-._~")
}

/// `text` as the value of a URI's query.
pub(crate) fn escape_path(text: &str) -> String {
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
