//! Places at which a test lets the daemon die, as a crash would, and what it takes from it: only in builds that check their assertions.

/// Whether `$VARVE_FAULT` says that `what` does not work.
pub(crate) fn lacks(what: &str) -> bool {
    cfg!(debug_assertions) && std::env::var_os("VARVE_FAULT").is_some_and(|named| named == what)
}

/// Ends the process at once if `$VARVE_FAULT` names this place.
pub(crate) fn die_at(place: &str) {
    if cfg!(debug_assertions) && std::env::var_os("VARVE_FAULT").is_some_and(|named| named == place) {
        tracing::error!(place, "the daemon dies, as a test wants it");
        std::process::abort();
    }
}
