//! What a TLS server shows and whom it lets in, read from text.

use super::validity::validity;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// The text of the files of a folder, as QEMU and libvirt name them.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// `ca-cert.pem`: the authorities that vouch for clients.
    pub authorities: Vec<u8>,
    /// `server-cert.pem`, and those above it.
    pub certificate: Vec<u8>,
    /// `server-key.pem`.
    pub key: Vec<u8>,
    /// `ca-crl.pem`: certificates of clients that are no longer valid.
    pub revoked: Option<Vec<u8>>,
}

impl TlsFiles {
    /// The names of the files, in the order of the fields. The last one may be missing.
    pub const NAMES: [&str; 4] = ["ca-cert.pem", "server-cert.pem", "server-key.pem", "ca-crl.pem"];
}

/// Why files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is no PEM.
    #[error("{0} has no certificate or key that can be read: {1}")]
    Pem(&'static str, PemError),
    /// An authority is none.
    #[error("ca-cert.pem: {0}")]
    Authority(rustls::Error),
    /// The authorities or what they revoked cannot be used.
    #[error("ca-cert.pem or ca-crl.pem: {0}")]
    Verifier(#[from] VerifierBuilderError),
    /// Certificate and key cannot be used, or not together.
    #[error("server-cert.pem with server-key.pem: {0}")]
    Pair(rustls::Error),
    /// It is not known when the certificate is valid.
    #[error("server-cert.pem does not say until when it is valid")]
    Validity,
}

/// What a server shows, and whom it lets in.
pub struct TlsCredentials {
    config: Arc<ServerConfig>,
    /// When its certificate is valid, in seconds since 1970.
    pub valid: Range<u64>,
}

impl TlsCredentials {
    /// What the files say.
    pub fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let [ca, certificate, key, revoked] = TlsFiles::NAMES;
        let mut authorities = RootCertStore::empty();
        for authority in certificates(ca, &files.authorities)? {
            authorities.add(authority).map_err(TlsError::Authority)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(&provider));
        if let Some(text) = &files.revoked {
            let lists = CertificateRevocationListDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
            let lists = lists.map_err(|error| TlsError::Pem(revoked, error))?;
            clients = clients.with_crls(lists).allow_unknown_revocation_status();
        }
        let clients = clients.build()?;
        let chain = certificates(certificate, &files.certificate)?;
        let valid = validity(&chain[0]).ok_or(TlsError::Validity)?;
        let key = PrivateKeyDer::from_pem_slice(&files.key).map_err(|error| TlsError::Pem(key, error))?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(TlsError::Pair)?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key);
        let mut config = config.map_err(TlsError::Pair)?;
        (config.session_storage, config.send_tls13_tickets) = (Arc::new(NoServerSessionStorage {}), 0);
        assert!(!config.session_storage.can_cache() && !config.ticketer.enabled(), "TLS4");
        Ok(Self { config: Arc::new(config), valid })
    }
}

/// At least one.
fn certificates(file: &'static str, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
    match read {
        Ok(read) if read.is_empty() => Err(TlsError::Pem(file, PemError::NoItemsFound)),
        read => read.map_err(|error| TlsError::Pem(file, error)),
    }
}

/// The credentials of a door, which clients see that come after they were set. Cloning shares it.
#[derive(Clone)]
pub struct TlsServer {
    config: Arc<Mutex<Arc<ServerConfig>>>,
}

impl TlsServer {
    /// With these, at first.
    pub fn new(credentials: &TlsCredentials) -> Self {
        Self { config: Arc::new(Mutex::new(Arc::clone(&credentials.config))) }
    }

    /// Connections stay as they are.
    pub fn set(&self, credentials: &TlsCredentials) {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&credentials.config);
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
