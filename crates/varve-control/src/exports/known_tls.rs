//! The TLS credentials that the socket at an address uses.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;
use varve_api::Failure;
use varve_export::nbd::{TlsCredentials, TlsFiles, TlsServer};

/// How long before its end a certificate is in the status.
const EXPIRY_NOTICE: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// Credentials in use.
pub(crate) struct KnownTls {
    pub(super) folder: PathBuf,
    pub(super) server: TlsServer,
    /// What they were read from.
    pub(super) files: TlsFiles,
    /// When the certificate is valid, in seconds since 1970.
    pub(super) valid: Range<u64>,
    /// Why those that are in the folder now are not used, if so (EXPORTTLS2 of `tls.rs`).
    pub(super) trouble: Option<Failure>,
}

/// Credentials that can be used now.
pub(super) struct Checked {
    pub(super) folder: PathBuf,
    pub(super) files: TlsFiles,
    pub(super) credentials: TlsCredentials,
}

impl KnownTls {
    /// What the socket uses from now on, which may have used others `before`.
    pub(super) fn new(checked: Checked, before: Option<&Self>) -> Self {
        let Checked { folder, files, credentials } = checked;
        let server = match before {
            Some(before) => {
                before.server.set(&credentials);
                before.server.clone()
            }
            None => TlsServer::new(&credentials),
        };
        Self { folder, server, files, valid: credentials.valid, trouble: None }
    }

    /// What is wrong with them `now`, in seconds since 1970, and the remedy.
    pub(crate) fn problem(&self, now: u64) -> Option<(String, String)> {
        if let Some(trouble) = &self.trouble {
            let message = format!("goes on with the TLS credentials of before: {}", trouble.message);
            return Some((message, trouble.help.clone()));
        }
        let help = format!("put a new one into {}: it is read by itself", self.folder.display());
        if now >= self.valid.end {
            return Some(("has a TLS certificate that has expired".to_owned(), help));
        }
        let is_near = now.saturating_add(EXPIRY_NOTICE.as_secs()) >= self.valid.end;
        is_near.then(|| ("has a TLS certificate that expires within 14 days".to_owned(), help))
    }
}
