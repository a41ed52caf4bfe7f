//! The control plane's nouns, serializable and versioned, and nothing else.
