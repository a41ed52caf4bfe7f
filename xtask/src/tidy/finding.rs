//! What breaks a rule, and where.

use std::fmt;

/// One breach of one rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Finding {
    /// Path from the root of the tree.
    pub(super) path: String,
    /// Line, counted from one.
    pub(super) line: usize,
    /// The rule's name.
    pub(super) rule: &'static str,
    /// What is wrong, and what to do.
    pub(super) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.message)
    }
}
