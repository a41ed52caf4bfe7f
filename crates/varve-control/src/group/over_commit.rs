//! Pools that promise no more than they can hold.
//!
//! Invariant OVERCOMMIT1: while over-commitment is forbidden, the sizes of all volumes and snapshots of a pool together do not come
//! to exceed what they may take of it; all of it can be written. What was promised before stays.

use crate::Control;
use crate::commands::snapshots::Batch;
use std::collections::BTreeMap;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::MIB;
use varve_vg::model::OverCommit;
use varve_vg::size::format_size;

impl Control {
    /// OVERCOMMIT1: refuses to promise `more` bytes of a pool.
    pub(crate) async fn refuse_over_commit(&self, group: Uuid, pool: Uuid, more: u64) -> Result<(), Failure> {
        let name = self.with_group(group, |known| {
            let mut volumes = known.group.logical_volumes().iter();
            let entry = volumes.find(|entry| entry.id == pool)?;
            let policy = entry.store_policy.unwrap_or_default();
            let full = format!("{}/{}", known.group.name(), entry.name);
            (policy.over_commit == OverCommit::Forbid).then_some(full)
        })?;
        let Some(name) = name else { return Ok(()) };
        let missing = || Failure::new(Code::PoolNotFound, "the pool is gone").help("varve pool list");
        let home = self.home_of(pool).ok_or_else(missing)?;
        let asked = home.pool(pool).promises().await;
        let (most, promised) = self.answered(pool, asked)?;
        match excess(most, promised, more) {
            None => Ok(()),
            Some(excess) => {
                let (most, promised) = (format_size(most), format_size(promised));
                let message = format!(
                    "{name} can keep promises of {most}, has made {promised}, and may not promise {} more",
                    format_size(more)
                );
                // The pool's own part of what it grows by is less than an eighth.
                let by = (excess.saturating_add(excess / 8)).div_ceil(MIB);
                let help = format!(
                    "varve pool extend {name} --size +{by}M, or varve pool change {name} --over-commit allow"
                );
                Err(Failure::new(Code::OverCommitted, message).help(help))
            }
        }
    }

    /// OVERCOMMIT1, for snapshots: each may come to differ from its volume in every byte.
    pub(crate) async fn refuse_snapshots_beyond(&self, batches: &[Batch]) -> Result<(), Failure> {
        let mut more: BTreeMap<(Uuid, Uuid), u64> = BTreeMap::new();
        for batch in batches.iter().filter(|batch| batch.located.thin.is_some()) {
            let size = match &batch.of {
                Some(of) => {
                    let facts = self.facts_called(&batch.located, std::slice::from_ref(of)).await;
                    facts.first().map_or(0, |facts| facts.size)
                }
                None => batch.located.size(),
            };
            let key = (batch.located.group, batch.located.pool());
            let sum = more.entry(key).or_default();
            *sum = sum.saturating_add(size.saturating_mul(batch.names.len() as u64));
        }
        for ((group, pool), bytes) in more {
            self.refuse_over_commit(group, pool, bytes).await?;
        }
        Ok(())
    }
}

/// How many bytes are missing to promise `more`.
fn excess(most: u64, promised: u64, more: u64) -> Option<u64> {
    let wanted = promised.saturating_add(more);
    (wanted > most).then(|| wanted - most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_kept_is_promised_and_no_byte_more() {
        assert_eq!(excess(100, 40, 60), None);
        assert_eq!(excess(100, 40, 61), Some(1));
        assert_eq!(excess(100, 120, 1), Some(21));
        assert_eq!(excess(100, u64::MAX, u64::MAX), Some(u64::MAX - 100));
    }
}
