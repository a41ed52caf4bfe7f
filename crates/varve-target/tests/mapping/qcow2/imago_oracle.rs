//! The crate imago, which knows the format from another hand than QEMU's.

use imago::file::File;
use imago::qcow2::Qcow2;
use imago::{FormatAccess, FormatDriverBuilder, PermissiveImplicitOpenGate};
use std::path::Path;

/// What it says of an image whose features it does not know: extended L2 entries, another compression.
const UNKNOWN: &str = "Unrecognized incompatible feature";

fn open(path: &Path, writable: bool) -> Option<FormatAccess<File>> {
    let image = Qcow2::<File>::builder_path(path).write(writable).open(PermissiveImplicitOpenGate::default());
    match image {
        Ok(image) => Some(FormatAccess::new(image)),
        Err(error) if error.to_string().contains(UNKNOWN) => None,
        Err(error) => panic!("imago: {}: {error}", path.display()),
    }
}

/// The disk that an image shows, with its backing chain; nothing if imago does not know one of its features.
pub(crate) fn read_all(path: &Path) -> Option<Vec<u8>> {
    let image = open(path, false)?;
    let mut content = vec![1; usize::try_from(image.size()).expect("small")];
    image
        .read(content.as_mut_slice(), 0)
        .unwrap_or_else(|error| panic!("imago: {}: {error}", path.display()));
    Some(content)
}

/// Writes runs of one byte; zeros without data where that is possible.
pub(crate) fn write(path: &Path, runs: &[(u64, usize, u8)]) {
    let image = open(path, true).expect("it knows the features");
    for (offset, length, value) in runs {
        let written = match value {
            0 => image.write_zeroes(*offset, *length as u64),
            _ => image.write(vec![*value; *length].as_slice(), *offset),
        };
        written.unwrap_or_else(|error| panic!("imago: {} at {offset}: {error}", path.display()));
    }
    image.flush().expect("flushed");
}
