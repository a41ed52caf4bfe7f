//! The files of TLS credentials.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use varve_export::nbd::TlsFiles;

/// Bytes that such a file has, at most.
const LENGTH_MAX: u64 = 1 << 20;

/// What is in `folder`; an error names the file.
pub(crate) fn read(folder: &Path) -> Result<TlsFiles, (PathBuf, io::Error)> {
    let read = |name: &str| {
        let path = folder.join(name);
        contents(&path).map_err(|error| (path, error))
    };
    let [authorities, certificate, key, revoked] = TlsFiles::NAMES;
    let revoked = match read(revoked) {
        Err((_, error)) if error.kind() == io::ErrorKind::NotFound => None,
        read => Some(read?),
    };
    Ok(TlsFiles {
        authorities: read(authorities)?,
        certificate: read(certificate)?,
        key: read(key)?,
        revoked,
    })
}

fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    let mut contents = Vec::new();
    file.take(LENGTH_MAX + 1).read_to_end(&mut contents)?;
    if contents.len() as u64 > LENGTH_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it has more than 1 MiB"));
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, length) in [("ca-cert.pem", 1), ("server-cert.pem", 2), ("server-key.pem", 3)] {
            let missing = read(folder.path()).err().map(|(path, error)| (path, error.kind()));
            assert_eq!(missing, Some((folder.path().join(name), io::ErrorKind::NotFound)));
            std::fs::write(folder.path().join(name), vec![b'x'; length]).expect("written");
        }
        let files = read(folder.path()).unwrap_or_else(|(path, error)| panic!("{}: {error}", path.display()));
        let lengths = [files.authorities.len(), files.certificate.len(), files.key.len()];
        assert_eq!((lengths, files.revoked), ([1, 2, 3], None));
        std::fs::write(folder.path().join("ca-crl.pem"), vec![b'x'; (1 << 20) + 1]).expect("written");
        let long = read(folder.path()).err().map(|(path, error)| (path, error.kind()));
        assert_eq!(long, Some((folder.path().join("ca-crl.pem"), io::ErrorKind::InvalidData)));
        std::fs::remove_file(folder.path().join("ca-crl.pem")).expect("it is there");
        std::fs::create_dir(folder.path().join("ca-crl.pem")).expect("made");
        assert!(read(folder.path()).is_err(), "a list that cannot be read is not ignored");
    }
}
