//! Why volumes and pools are closed.

/// Why a volume or pool is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It is taken out of use in order.
    Deactivated,
    /// It is to be opened anew, and its doors wait for that.
    Reopened,
    /// It is not to be written any more: it is another one, or a disk of it is.
    Fenced,
    /// Something in it panicked.
    Failed,
}

impl Reason {
    /// What a test calls it that injects a panic.
    pub(crate) const fn verb(self) -> &'static str {
        match self {
            Reason::Deactivated => "deactivate",
            Reason::Reopened => "reopen",
            Reason::Fenced | Reason::Failed => "retire",
        }
    }
}
