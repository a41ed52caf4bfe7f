//! The structured log on stderr.

use crate::config::{Config, LogForm};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// What is logged by default. The library below the FUSE door warns of what is no trouble here: questions
/// that it answers with "not supported", and that its mount is gone when it ends (the door unmounts by itself).
const FILTER_DEFAULT: &str = "info,fuser=error";

/// Starts logging. A second start in one process (tests) changes nothing.
pub(crate) fn start(config: &Config) {
    let wanted = config.log_filter.as_deref().unwrap_or(FILTER_DEFAULT);
    let (filter, refused) = match EnvFilter::try_new(wanted) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(FILTER_DEFAULT), Some(error)),
    };
    let registry = tracing_subscriber::registry().with(filter);
    let started = match config.log {
        LogForm::Json => registry.with(fmt::layer().json().with_writer(std::io::stderr)).try_init(),
        LogForm::Text => {
            let colour = std::io::stderr().is_terminal();
            registry.with(fmt::layer().with_ansi(colour).with_writer(std::io::stderr)).try_init()
        }
    };
    if started.is_ok()
        && let Some(error) = refused
    {
        tracing::warn!(filter = wanted, %error, "the log filter is not valid; the default is used");
    }
}
