//! Why a measurement failed, in words: whatever can be shown becomes that by `?`.

use std::fmt::Display;

/// The reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failed(pub(crate) String);

/// What was measured or made, or why not.
pub(crate) type Outcome<T> = Result<T, Failed>;

// It cannot be shown itself, or this would overlap with the conversion of each type into itself.
impl<E: Display> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Says of what a failure was.
pub(crate) trait Of<T> {
    /// The failure of `what`.
    fn of(self, what: impl Display) -> Outcome<T>;
}

impl<T, E: Into<Failed>> Of<T> for Result<T, E> {
    fn of(self, what: impl Display) -> Outcome<T> {
        self.map_err(|error| Failed(format!("{what}: {}", error.into().0)))
    }
}
