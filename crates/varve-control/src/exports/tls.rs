//! TLS of exports: credentials are read from a folder when an export is opened, and again when its files change.
//!
//! Invariants:
//! - EXPORTTLS1. Exports at one address share its socket, and so the folder of its credentials.
//! - EXPORTTLS2. Credentials that cannot be used leave those of before in use, and are in the status until they can.

use super::address::Address;
use super::known_exports::Exports;
use super::known_tls::{Checked, KnownTls};
use crate::Control;
use crate::host::path_calls::at_path;
use crate::host::remembered::RememberedExport;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use varve_api::{Code, Failure};
use varve_export::nbd::{TlsCredentials, TlsFiles, TlsServer};
use varve_volume::Host;
use varve_volume::world::Files;

/// What is in a folder, if it can be used now.
pub(super) async fn read(host: &Host, folder: &Path) -> Result<Checked, Failure> {
    let place = folder.to_owned();
    let read = at_path(host, folder, move |files| read_files(files, &place)).await?;
    check(host, folder, read)
}

fn read_files(files: &dyn Files, folder: &Path) -> Result<TlsFiles, Failure> {
    files.read_tls(folder).map_err(|(file, error)| {
        let [ca, certificate, key, _] = TlsFiles::NAMES;
        Failure::new(Code::DoorFailed, format!("{}: {error}", file.display()))
            .help(format!("the folder has {ca}, {certificate} and {key}, which the daemon's user may read"))
    })
}

fn check(host: &Host, folder: &Path, files: Result<TlsFiles, Failure>) -> Result<Checked, Failure> {
    let files = files?;
    let failed = |message: String, help: &str| {
        Failure::new(Code::DoorFailed, format!("{}: {message}", folder.display())).help(help)
    };
    let read = TlsCredentials::read(&files);
    let credentials = read.map_err(|error| {
        failed(
            error.to_string(),
            "certificates are X.509 version 3 in PEM, the key is one without a password",
        )
    })?;
    let now = host.clock().date().0;
    if now < credentials.valid.start {
        return Err(failed("server-cert.pem is not valid yet".to_owned(), "look at the host's clock: date"));
    }
    if now >= credentials.valid.end {
        return Err(failed("server-cert.pem has expired".to_owned(), "put a new one there"));
    }
    Ok(Checked { folder: folder.to_owned(), files, credentials })
}

/// What a socket with TLS is to use instead of what it has.
pub(super) async fn changed(
    host: &Host,
    before: &RememberedExport,
    folder: &Path,
) -> Result<Checked, Failure> {
    if before.tls.is_some() {
        return read(host, folder).await;
    }
    let RememberedExport { id, name, door, address, .. } = before;
    let message = format!("export {id} is without TLS, which holds until it is closed");
    let folder = folder.display();
    Err(Failure::new(Code::Usage, message).help(format!(
        "varve export remove {id}; varve export create {name} --{door} {address} --tls {folder}"
    )))
}

/// Refuses TLS where no protocol has it.
pub(super) fn check_protocol(address: &Address, folder: Option<&str>) -> Result<(), Failure> {
    match folder {
        Some(_) if !address.is_nbd() => Err(Failure::new(Code::Usage, "--tls is for NBD")
            .help("--nbd tcp:HOST:PORT or --nbd unix:PATH; or leave it out")),
        Some("") => Err(Failure::new(Code::Usage, "--tls names no folder").help("--tls /etc/pki/qemu")),
        _ => Ok(()),
    }
}

impl Exports {
    /// Refuses a new export whose credentials are not those of the socket at its address (EXPORTTLS1).
    pub(super) fn check_tls(&self, address: &Address, folder: Option<&Path>) -> Result<(), Failure> {
        let known = self.known.borrow();
        let there = known.values().find(|export| export.remembered.address == address.text);
        let Some(there) = there.filter(|there| there.remembered.tls.as_deref() != folder) else {
            return Ok(());
        };
        let id = &there.remembered.id;
        let (message, help) = match &there.remembered.tls {
            Some(folder) => {
                let folder = folder.display();
                (
                    format!("export {id} has the same socket, with TLS from {folder}"),
                    format!("--tls {folder}"),
                )
            }
            None => (
                format!("export {id} has the same socket, without TLS"),
                "leave --tls out, or choose another address".to_owned(),
            ),
        };
        Err(Failure::new(Code::Usage, message).help(help))
    }

    /// Has the socket at an address use these from now on.
    pub(super) fn use_tls(&self, address: &str, checked: Checked) -> TlsServer {
        let mut tls = self.tls.borrow_mut();
        let known = KnownTls::new(checked, tls.get(address));
        let server = known.server.clone();
        tls.insert(address.to_owned(), known);
        server
    }

    /// Until when the certificate at an address is valid, in seconds since 1970.
    pub(super) fn tls_valid_until(&self, address: &str) -> Option<u64> {
        Some(self.tls.borrow().get(address)?.valid.end)
    }
}

/// Looks at the files of all credentials in use, and uses what has changed (EXPORTTLS2).
pub(super) fn watch(control: &Control) {
    let folders: BTreeSet<PathBuf> =
        control.exports.tls.borrow().values().map(|known| known.folder.clone()).collect();
    for folder in folders {
        let place = folder.clone();
        control.look_at(
            &folder,
            move |files| read_files(files, &place),
            |control, folder, found| {
                take(control, folder, &found);
            },
        );
    }
}

/// A folder has these files now.
fn take(control: &Control, folder: &Path, found: &Result<TlsFiles, Failure>) {
    let mut changed = Vec::new();
    for (address, known) in control.exports.tls.borrow_mut().iter_mut() {
        if known.folder != folder {
            continue;
        }
        match found {
            Ok(files) if *files == known.files => known.trouble = None,
            _ => changed.push(address.clone()),
        }
    }
    for address in changed {
        match check(&control.context, folder, found.clone()) {
            Ok(checked) => {
                control.exports.use_tls(&address, checked);
                control.event(&address, "new TLS credentials are in use");
            }
            Err(failure) => {
                if let Some(known) = control.exports.tls.borrow_mut().get_mut(&address) {
                    known.trouble = Some(failure);
                }
            }
        }
    }
}
