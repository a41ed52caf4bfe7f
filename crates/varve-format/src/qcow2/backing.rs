//! The file that an image names as its backing: which file of this host is meant, and how it is read. Nothing is opened here.

use crate::text::ImageFormat;
use std::path::{Path, PathBuf};

/// Images of the longest chain that is opened.
pub const LAYERS_MAX: usize = 1000;

/// The file below an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backing {
    /// Its path, relative to the image's folder unless it is absolute.
    pub name: String,
    /// Its format, if the image says it: `raw` or `qcow2`.
    pub format: Option<String>,
}

/// Why a backing file is not opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BackingError {
    /// It is no file of this host.
    #[error("the backing file {0} is no path of this host")]
    Elsewhere(String),
    /// It is read in a way that is not known.
    #[error("the format {format} of the backing file {name} is not supported")]
    Format {
        /// The file.
        name: String,
        /// What the image says of it.
        format: String,
    },
    /// How it is read is not said, and is not guessed.
    #[error("the format of the backing file {0} is not said")]
    NoFormat(String),
    /// It is not where the image says.
    #[error("the backing file {0} is not there")]
    Missing(PathBuf),
}

impl BackingError {
    /// The command with which the image at `image` names its backing file in another way.
    pub fn remedy(&self, image: &Path) -> String {
        let image = image.display();
        match self {
            Self::NoFormat(name) => format!("qemu-img rebase -u -b {name} -F FORMAT {image}"),
            Self::Elsewhere(_) => format!(
                "if it is a file of this host: qemu-img rebase -u -b FILE -F FORMAT {image}; else qemu-img convert -O qcow2 {image} \
                 {image}.flat"
            ),
            Self::Format { .. } => format!("qemu-img convert -O qcow2 {image} {image}.flat"),
            Self::Missing(named) => {
                let named = named.display();
                format!(
                    "bring {named} back, or name the place where it is: qemu-img rebase -u -b FILE -F FORMAT {image}"
                )
            }
        }
    }
}

impl Backing {
    /// The file, named by the image at `image`, and how it is read.
    pub fn file(&self, image: &Path) -> Result<(PathBuf, ImageFormat), BackingError> {
        let name = self.name.strip_prefix("file:").unwrap_or(&self.name);
        // As QEMU has it: what stands before a colon in front of all slashes says how to get there.
        let is_plain = name.len() == self.name.len();
        if is_plain && name.split('/').next().is_some_and(|first| first.contains(':')) {
            return Err(BackingError::Elsewhere(name.to_owned()));
        }
        let Some(said) = self.format.as_deref() else { return Err(BackingError::NoFormat(name.to_owned())) };
        let Some(format) = ImageFormat::named(said) else {
            return Err(BackingError::Format { name: name.to_owned(), format: said.to_owned() });
        };
        Ok((beside(image, name), format))
    }
}

/// The path of what the image at `image` calls `name`.
pub fn beside(image: &Path, name: &str) -> PathBuf {
    image.parent().unwrap_or(Path::new("")).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backing(name: &str, format: Option<&str>) -> Result<(PathBuf, ImageFormat), BackingError> {
        let backing = Backing { name: name.to_owned(), format: format.map(ToOwned::to_owned) };
        backing.file(Path::new("/srv/vm/top"))
    }

    #[test]
    fn a_backing_file_is_beside_the_image_and_its_format_is_said() {
        let raw = |path: &str| Ok((PathBuf::from(path), ImageFormat::Raw));
        assert_eq!(backing("base", Some("raw")), raw("/srv/vm/base"));
        assert_eq!(backing("file:/gold", Some("raw")), raw("/gold"));
        assert_eq!(backing("../b", Some("qcow2")), Ok(("/srv/vm/../b".into(), ImageFormat::Qcow2)));
        assert!(matches!(backing("base", None), Err(BackingError::NoFormat(_))));
        assert!(matches!(backing("base", Some("vmdk")), Err(BackingError::Format { .. })));
        assert_eq!(backing("./a:b", Some("raw")), raw("/srv/vm/./a:b"));
        for name in ["nbd://host/x", "json:{}", "nbd:unix:/s", "rbd:pool/x", "host_device:/dev/sda", "a:b"] {
            let Err(error @ BackingError::Elsewhere(_)) = backing(name, Some("raw")) else {
                panic!("{name}")
            };
            let remedy = error.remedy(Path::new("/srv/vm/top"));
            assert!(remedy.contains("qemu-img rebase -u -b FILE -F FORMAT /srv/vm/top; else "), "{remedy}");
            assert!(remedy.ends_with("qemu-img convert -O qcow2 /srv/vm/top /srv/vm/top.flat"), "{remedy}");
        }
    }
}
