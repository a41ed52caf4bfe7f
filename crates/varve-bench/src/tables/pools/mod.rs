//! Thin volumes and pools: beside thick ones and rivals, and at their limits.

pub(crate) mod thin;
pub(crate) mod thin_rivals;
pub(crate) mod thin_scale;
