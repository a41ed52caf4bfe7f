//! Why bytes are no qcow2 image that can be used.

/// What is wrong with an image, or is not supported.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Qcow2Error {
    /// The file does not begin as a qcow2 image does.
    #[error("no qcow2 image: it does not begin with `QFI\\xfb`")]
    Magic,
    /// Neither version 2 nor 3.
    #[error("version {0} of qcow2 is not supported; 2 and 3 are")]
    Version(u32),
    /// The image ends within a structure.
    #[error("the image is truncated: {0} lies behind its end")]
    Truncated(&'static str),
    /// A field has a value that it cannot have.
    #[error("field {field} of the {structure} is {value}, {expected}")]
    Field {
        /// In which structure.
        structure: &'static str,
        /// Which field.
        field: &'static str,
        /// What it is.
        value: u64,
        /// What it may be.
        expected: &'static str,
    },
    /// The image is encrypted.
    #[error("the image is encrypted ({0}); decrypt it with qemu-img convert")]
    Encrypted(&'static str),
    /// A feature without which the image cannot be read.
    #[error("the image needs the feature {0}, which is not supported")]
    Feature(String),
    /// A name is not in UTF-8.
    #[error("the {0} is not in UTF-8")]
    Name(&'static str),
}

/// An error unless `holds`.
pub(super) fn require(
    holds: bool,
    structure: &'static str,
    field: &'static str,
    value: u64,
    expected: &'static str,
) -> Result<(), Qcow2Error> {
    if holds { Ok(()) } else { Err(Qcow2Error::Field { structure, field, value, expected }) }
}
