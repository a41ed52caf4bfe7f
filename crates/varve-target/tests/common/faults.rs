//! What goes wrong with the disks of random histories.

use varve_sim::{FaultPlan, Random, Struck};

/// A disk that loses so many of a million nodes, and writes a fifth as many over others. A node that is written again in
/// its transaction is spared: what is lost then is not noticed (`docs/decisions/0051-lost-writes-of-nodes.md`).
pub(crate) const fn loses_nodes(lost: u32) -> FaultPlan {
    FaultPlan {
        lost,
        misdirected: lost / 5,
        only: Some(Struck { magic: *b"VNOD", version: 16 }),
        latent: 0,
        rot: 0,
        write_error: 0,
        no_space: 0,
        flush_error: 0,
        flush_loss: 0,
        stall: 0,
        vanish: 0,
        spares_content: true,
        spared: None,
    }
}

/// What goes wrong in one history: a bit of everything, or much of one thing; `stall` of a million requests hang a while.
pub(crate) fn random_faults(stall: u32, random: &mut Random) -> FaultPlan {
    let quiet = FaultPlan { stall, spares_content: true, ..FaultPlan::default() };
    let loud = FaultPlan { latent: 2000, write_error: 4000, flush_error: 4000, ..quiet };
    match random.below(7) {
        0 | 1 => loud,
        2 => FaultPlan { no_space: 8000, ..loud },
        3 => FaultPlan { flush_loss: 8000, ..loud },
        4 => FaultPlan { vanish: 1500, ..loud },
        5 => FaultPlan { rot: 20_000, ..quiet },
        _ => FaultPlan { rot: 2000, no_space: 2000, flush_loss: 2000, vanish: 500, ..loud },
    }
}
