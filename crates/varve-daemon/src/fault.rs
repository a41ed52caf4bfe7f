//! Places at which a test lets the daemon die, as a crash would: only in builds that check their assertions.

/// Ends the process at once if `$VARVE_FAULT` names this place.
pub(crate) fn die_at(place: &str) {
    if cfg!(debug_assertions) && std::env::var_os("VARVE_FAULT").is_some_and(|named| named == place) {
        tracing::error!(place, "the daemon dies, as a test wants it");
        std::process::abort();
    }
}
