//! What the pools of a group said last of their volumes.
//!
//! Invariant THINVOLUMES1: a volume is found by its name or its identity without a look at the others.

use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;
use varve_volume::content::thin::{ThinVolume, volume_number};

/// The volumes of each pool that was asked.
#[derive(Default)]
pub(crate) struct ThinVolumes {
    /// By pool and number.
    pools: BTreeMap<Uuid, BTreeMap<u64, ThinVolume>>,
    /// Two of one name are renamed (THINNAMES1 of `commands/thin.rs`).
    names: BTreeSet<(String, Uuid, u64)>,
}

impl ThinVolumes {
    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &ThinVolume> {
        self.pools.values().flat_map(BTreeMap::values)
    }

    /// Those of a pool.
    pub(crate) fn of(&self, pool: Uuid) -> impl Iterator<Item = &ThinVolume> {
        self.pools.get(&pool).into_iter().flat_map(BTreeMap::values)
    }

    /// The pools that were asked.
    pub(crate) fn pools(&self) -> impl Iterator<Item = &Uuid> {
        self.pools.keys()
    }

    /// Whether a pool was asked.
    pub(crate) fn knows(&self, pool: Uuid) -> bool {
        self.pools.contains_key(&pool)
    }

    /// The volume of a name.
    pub(crate) fn named(&self, name: &str) -> Option<&ThinVolume> {
        let (found, pool, number) = self.names.range((name.to_owned(), Uuid::nil(), 0)..).next()?;
        (found == name).then(|| &self.pools[pool][number])
    }

    /// The volume of an identity.
    pub(crate) fn get(&self, id: Uuid) -> Option<&ThinVolume> {
        self.pools.iter().find_map(|(pool, volumes)| volumes.get(&volume_number(*pool, id)?))
    }

    /// A pool has these volumes and no others.
    pub(crate) fn replace(&mut self, pool: Uuid, volumes: Vec<ThinVolume>) {
        self.forget(pool);
        self.names.extend(volumes.iter().map(|thin| (thin.name.clone(), pool, thin.number)));
        self.pools.insert(pool, volumes.into_iter().map(|thin| (thin.number, thin)).collect());
        self.check();
    }

    /// The volume of a pool that has this number was asked for.
    pub(crate) fn note(&mut self, pool: Uuid, number: u64, found: Option<ThinVolume>) {
        let volumes = self.pools.entry(pool).or_default();
        if let Some(before) = volumes.remove(&number) {
            self.names.remove(&(before.name, pool, number));
        }
        if let Some(thin) = found {
            self.names.insert((thin.name.clone(), pool, number));
            volumes.insert(number, thin);
        }
        self.check();
    }

    /// A pool is not served any more.
    pub(crate) fn forget(&mut self, pool: Uuid) {
        for (number, thin) in self.pools.remove(&pool).unwrap_or_default() {
            self.names.remove(&(thin.name, pool, number));
        }
    }

    fn check(&self) {
        debug_assert_eq!(
            self.names.len(),
            self.pools.values().map(BTreeMap::len).sum::<usize>(),
            "THINVOLUMES1"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_volume::content::thin::volume_id;

    fn thin(pool: Uuid, number: u64, name: &str) -> ThinVolume {
        let id = volume_id(pool, number);
        ThinVolume {
            id,
            pool,
            number,
            name: name.into(),
            bytes: 4096,
            created: 0,
            origin: None,
            is_served: true,
        }
    }

    #[test]
    fn volumes_are_found_by_name_and_identity_whatever_becomes_of_them() {
        let (one, other) = (Uuid::from_u128(1 << 70), Uuid::from_u128(9 << 70));
        let mut known = ThinVolumes::default();
        known.replace(one, vec![thin(one, 1, "a"), thin(one, 2, "b")]);
        known.replace(other, vec![thin(other, 1, "a")]);
        assert_eq!(
            known.named("a").map(|thin| thin.pool),
            Some(one),
            "the first of two that are to be renamed"
        );
        known.note(one, 1, Some(thin(one, 1, "c")));
        assert_eq!(known.named("a").map(|thin| thin.pool), Some(other));
        assert_eq!(known.get(volume_id(one, 1)).map(|thin| thin.name.as_str()), Some("c"));
        known.note(one, 3, Some(thin(one, 3, "d")));
        known.note(one, 2, None);
        assert_eq!(known.of(one).map(|thin| thin.number).collect::<Vec<_>>(), [1, 3]);
        assert!(known.named("b").is_none() && known.get(volume_id(one, 2)).is_none());
        known.forget(one);
        assert!(known.named("c").is_none() && !known.knows(one) && known.knows(other));
        assert_eq!(known.all().count(), 1);
    }
}
