//! Physical volumes, groups and logical volumes: who owns which extent, committed atomically.
