//! The simulated world: disks with caches that crash, a clock that jumps, a seeded executor, the oracle.
