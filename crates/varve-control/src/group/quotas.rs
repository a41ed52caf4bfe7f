//! The memory for metadata: what a group declares, and how its budget is divided among its stores and pools.
//!
//! Invariants:
//! - QUOTA1. The quotas of all stores and pools of a group are together its budget at most, unless there are so many that
//!   each has only the least.
//! - QUOTA2. What is about to be opened is counted before it is: the quotas of the others shrink by what it gets. So is all
//!   that may be opened at the same time; what of that cannot be used then is left out again.

use super::change::shown as shown_plan;
use super::known_group::KnownGroup;
use crate::Control;
use crate::commands::options::ShownOption;
use crate::trash::Trash;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use uuid::Uuid;
use varve_api::{
    Changed, Code, Failure, Group as ShownGroup, GroupChange, GroupMetadata, MetadataMemory, MetadataWords,
};
use varve_block::GIB;
use varve_vg::Change;
use varve_vg::model::{CachePolicy, Metadata, MetadataOrder};
use varve_vg::size::parse_size;
use varve_volume::ShardHandle;
use varve_volume::opened::metadata;
use varve_volume::opened::quota::{CacheQuota, QUOTA_MIN};

/// The suffix of a budget that grows with what there is.
const PER_GIB: &str = "-per-gib";

/// A volume with its stores, or a pool: they share a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct User {
    volume: Uuid,
    /// Bytes of the volume or pool.
    bytes: u64,
    /// Stores; 1 for a pool.
    count: u64,
    /// Whether it is in use.
    is_open: bool,
}

/// By volume or pool, the quota of each of its stores.
type Quotas = BTreeMap<Uuid, CacheQuota>;

impl Control {
    /// Changes what a group declares, while its volumes are in use.
    pub async fn change_group(
        &self,
        name: &str,
        request: GroupChange,
    ) -> Result<Changed<ShownGroup>, Failure> {
        let id = self.find_group(name)?;
        let has_metadata = request.metadata != MetadataWords::default();
        if let Some(keep) = &request.trash {
            if has_metadata {
                let message = "--trash is changed by a command of its own";
                return Err(Failure::new(Code::Usage, message).help("leave the other options out"));
            }
            return match Trash::of(self).keep(id, keep, request.dry_run).await? {
                Some(plan) => Ok(Changed::Planned(plan)),
                None => self.show_group(&id.to_string()).await.map(Changed::Done),
            };
        }
        if !has_metadata {
            return Err(Failure::new(Code::Usage, "nothing to change is named")
                .help("--cache, --cache-policy, --metadata or --trash"));
        }
        let commits = self.commits(id).await;
        let group = commits.group(id)?;
        let metadata = declared(group.metadata(), &request.metadata)?;
        let words = format!("metadata of group {} changed", group.name());
        let planned = commits.plan(id, Change::SetMetadata { metadata }, &words)?;
        if request.dry_run {
            return Ok(Changed::Planned(shown_plan(&planned)));
        }
        commits.commit(id, planned, Vec::new()).await?;
        drop(commits);
        self.set_quotas(id).await;
        self.show_group(&id.to_string()).await.map(Changed::Done)
    }

    /// The quotas of those of a group that are in use.
    pub(crate) fn quotas(&self, group: Uuid) -> Quotas {
        self.with_group(group, |known| quotas(known, |user| user.is_open)).unwrap_or_default()
    }

    /// Sets the quotas of all stores and pools of a group.
    pub(crate) async fn set_quotas(&self, group: Uuid) {
        self.give(group, self.quotas(group)).await;
    }

    /// Sets quotas as if everything in the group were in use, before something comes to be (QUOTA2).
    pub(crate) async fn set_quotas_for_all(&self, group: Uuid) {
        let all = self.with_group(group, |known| quotas(known, |_| true));
        self.give(group, all.unwrap_or_default()).await;
    }

    async fn give(&self, group: Uuid, quotas: Quotas) {
        let told = self.by_shard(group).into_iter().map(async |(shard, volumes)| {
            let of_shard = volumes.into_iter().filter_map(|id| Some((id, *quotas.get(&id)?))).collect();
            // A shard that is gone has nothing to give a quota to.
            let _ = shard.give_quotas(of_shard).await;
        });
        join_all(told).await;
    }

    /// Sets quotas without waiting for it.
    pub(crate) fn set_quotas_soon(&self, group: Uuid) {
        let me = self.weak();
        self.context.spawner().spawn(async move {
            if let Some(control) = me.upgrade() {
                control.set_quotas(group).await;
            }
        });
    }

    /// Adds to what is shown of a group what its metadata takes in memory.
    pub(crate) async fn add_memory(&self, shown: &mut ShownGroup) {
        let Some(declared) = &mut shown.metadata else { return };
        let Ok(group) = Uuid::parse_str(&shown.id) else { return };
        let asked = self.by_shard(group).into_iter().map(async |(shard, volumes)| {
            let figures = shard.metadata_memory(volumes).await;
            figures.unwrap_or_default()
        });
        let all = join_all(asked).await.into_iter().fold(MetadataMemory::default(), metadata::sum);
        declared.memory = Some(all);
    }

    /// The volumes and pools of a group, by the shards that serve them.
    fn by_shard(&self, group: Uuid) -> Vec<(ShardHandle, Vec<Uuid>)> {
        let homes = self.with_group(group, |known| {
            let mut shards: BTreeMap<usize, (ShardHandle, Vec<Uuid>)> = BTreeMap::new();
            for (volume, home) in &known.homes {
                let entry = shards.entry(home.shard.index());
                entry.or_insert_with(|| (home.shard.clone(), Vec::new())).1.push(*volume);
            }
            shards.into_values().collect()
        });
        homes.unwrap_or_default()
    }
}

/// What a volume's stores, or a pool, may have when they are opened (QUOTA2).
pub(crate) fn first_quota(known: &KnownGroup, volume: Uuid) -> CacheQuota {
    let all = quotas(known, |_| true);
    let least = CacheQuota { cache_bytes: QUOTA_MIN, ..usual(known.group.metadata()) };
    all.get(&volume).copied().unwrap_or(least)
}

/// What a group declares, as it is shown.
pub(crate) fn shown(known: &KnownGroup) -> GroupMetadata {
    let (metadata, users) = (known.group.metadata(), users(known));
    let count = |is_open: bool| {
        let those = users.iter().filter(|user| user.is_open == is_open);
        u32::try_from(those.map(|user| user.count).sum::<u64>()).unwrap_or(u32::MAX)
    };
    let quotas = quotas(known, |user| user.is_open);
    let quota = |user: &User| quotas.get(&user.volume).map_or(0, |quota| quota.cache_bytes * user.count);
    GroupMetadata {
        cache_bytes: metadata.cache_bytes,
        per_gib: metadata.per_gib,
        cache_policy: metadata.cache_policy.shown(),
        order: metadata.order.shown(),
        budget: users.iter().map(quota).sum(),
        users: count(true),
        unusable: count(false),
        memory: None,
    }
}

/// `metadata` with what `words` say; what they do not say stays.
pub(crate) fn declared(metadata: Metadata, words: &MetadataWords) -> Result<Metadata, Failure> {
    let mut metadata = metadata;
    if let Some(text) = &words.cache {
        (metadata.cache_bytes, metadata.per_gib) = budget_text(text)?;
    }
    if let Some(policy) = words.cache_policy {
        metadata.cache_policy = CachePolicy::declared(policy);
    }
    if let Some(order) = words.order {
        metadata.order = MetadataOrder::declared(order);
    }
    match metadata.problem() {
        Some(problem) => Err(bad_cache(problem)),
        None => Ok(metadata),
    }
}

/// `64M`, `8K-per-GiB`.
fn budget_text(text: &str) -> Result<(u64, bool), Failure> {
    let lower = text.to_ascii_lowercase();
    let (size, per_gib) = lower.strip_suffix(PER_GIB).map_or((lower.as_str(), false), |size| (size, true));
    let bytes = parse_size(size).map_err(|_| bad_cache(&format!("{text:?} is no budget for metadata")))?;
    Ok((bytes, per_gib))
}

fn bad_cache(message: &str) -> Failure {
    Failure::new(Code::BadCache, message.to_owned())
        .help("--cache 64M or --cache 8K-per-GiB; how disks are reached is --disk-cache direct|buffered")
}

/// What the quotas of a group have in common: all but the bytes.
fn usual(metadata: Metadata) -> CacheQuota {
    let Metadata { cache_policy: policy, order, .. } = metadata;
    CacheQuota { policy, order, ..CacheQuota::default() }
}

/// What shares the budget of a group.
fn users(known: &KnownGroup) -> Vec<User> {
    let volumes = known.group.logical_volumes().iter().map(|volume| User {
        volume: volume.id,
        bytes: known.group.bytes(volume.extents),
        count: if volume.is_pool() { 1 } else { volume.stores().count() as u64 },
        is_open: known.homes.get(&volume.id).is_some_and(|home| home.unusable.is_none()),
    });
    volumes.filter(|user| user.count > 0).collect()
}

fn quotas(known: &KnownGroup, counts: impl Fn(&User) -> bool) -> Quotas {
    let users: Vec<User> = users(known).into_iter().filter(counts).collect();
    let metadata = known.group.metadata();
    let usual = usual(metadata);
    let each = divided(budget(metadata, &users), &users);
    let quota = |(user, cache_bytes): (&User, u64)| (user.volume, CacheQuota { cache_bytes, ..usual });
    users.iter().zip(each).map(quota).collect()
}

/// What all of them may keep.
fn budget(metadata: Metadata, users: &[User]) -> u64 {
    if !metadata.per_gib {
        return metadata.cache_bytes;
    }
    let bytes: u128 = users.iter().map(|user| u128::from(user.bytes)).sum();
    u64::try_from(bytes * u128::from(metadata.cache_bytes) / u128::from(GIB)).unwrap_or(u64::MAX)
}

/// What each store of each of them may keep: the least, and of the rest a part by size, so that of each map as large a part
/// is in memory.
fn divided(budget: u64, users: &[User]) -> Vec<u64> {
    let count: u64 = users.iter().map(|user| user.count).sum();
    let whole: u128 = users.iter().map(|user| u128::from(user.bytes) * u128::from(user.count)).sum();
    let rest = u128::from(budget.saturating_sub(count * QUOTA_MIN));
    let part = |user: &User| (rest * u128::from(user.bytes)).checked_div(whole).unwrap_or(0);
    let quotas: Vec<u64> = users
        .iter()
        .map(|user| QUOTA_MIN + u64::try_from(part(user)).expect("a part is no more than the budget"))
        .collect();
    let given: u64 = quotas.iter().zip(users).map(|(quota, user)| quota * user.count).sum();
    assert!(given <= budget.max(count * QUOTA_MIN), "QUOTA1");
    quotas
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_block::{KIB, MIB};

    fn user(gib: u64, count: u64) -> User {
        User { volume: Uuid::from_u128(u128::from(gib)), bytes: gib * GIB, count, is_open: true }
    }

    #[test]
    fn a_budget_is_divided_by_size_and_never_exceeded() {
        assert_eq!(divided(MIB, &[]), Vec::<u64>::new());
        assert_eq!(divided(MIB, &[user(24, 1)]), [MIB]);
        let users = [user(1, 1), user(3, 2)];
        let rest = MIB - 3 * QUOTA_MIN;
        assert_eq!(divided(MIB, &users), [QUOTA_MIN + rest / 7, QUOTA_MIN + rest * 3 / 7]);
        assert_eq!(divided(100 * KIB, &users), [QUOTA_MIN; 2], "QUOTA1: each has the least");
        for budget in [0, 1, 200_001, 300_007, u64::MAX] {
            let quotas = divided(budget, &users);
            assert!(quotas[0] + 2 * quotas[1] <= budget.max(3 * QUOTA_MIN), "QUOTA1");
        }
    }

    #[test]
    fn the_setting_of_esnap_follows_the_sizes() {
        let metadata = declared(
            Metadata::default(),
            &MetadataWords { cache: Some("8K-per-GiB".into()), ..MetadataWords::default() },
        );
        let metadata = metadata.expect("sound");
        assert_eq!((metadata.cache_bytes, metadata.per_gib), (8 * KIB, true));
        assert_eq!(budget(metadata, &[user(24, 1)]), 192 * KIB);
        assert_eq!(budget(metadata, &[user(24, 5), user(8, 1)]), 256 * KIB, "an origin counts once");
        assert_eq!(budget(Metadata::default(), &[user(24, 1)]), 64 * MIB);
    }

    #[test]
    fn budgets_are_read_as_people_write_them() {
        assert_eq!(budget_text("64M"), Ok((64 * MIB, false)));
        assert_eq!(budget_text("8KiB-per-GiB"), Ok((8 * KIB, true)));
        assert_eq!(budget_text("8k-PER-gib"), Ok((8 * KIB, true)));
        for wrong in ["", "direct", "buffered", "8K-per-TiB", "-per-GiB", "50%FREE", "-1"] {
            let refused = budget_text(wrong).map_err(|failure| failure.code);
            assert_eq!(refused, Err(Code::BadCache), "{wrong}");
        }
        for wrong in ["1K", "2T", "1-per-GiB", "2G-per-GiB"] {
            let words = MetadataWords { cache: Some(wrong.into()), ..MetadataWords::default() };
            let refused = declared(Metadata::default(), &words).map_err(|failure| failure.code);
            assert_eq!(refused, Err(Code::BadCache), "{wrong}");
        }
    }

    #[test]
    fn what_is_not_said_stays() {
        let words =
            MetadataWords { cache_policy: Some(varve_api::CachePolicy::Fifo), ..MetadataWords::default() };
        let one = declared(Metadata::default(), &words).expect("sound");
        assert_eq!(one, Metadata { cache_policy: CachePolicy::Fifo, ..Metadata::default() });
        let words =
            MetadataWords { order: Some(varve_api::MetadataOrder::WriteThrough), ..MetadataWords::default() };
        let two = declared(one, &words).expect("sound");
        assert_eq!(two, Metadata { order: MetadataOrder::WriteThrough, ..one });
        assert_eq!((usual(two).policy, usual(two).order), (CachePolicy::Fifo, MetadataOrder::WriteThrough));
    }
}
