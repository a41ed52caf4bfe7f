//! What the pools of a group said last of their volumes.
//!
//! Invariant THINVOLUMES1: a volume is found by its name or its identity without a look at the others.

use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;
use varve_volume::content::thin::{InTrash, ThinVolume, volume_number};

/// The volumes of each pool that was asked.
#[derive(Default)]
pub(crate) struct ThinVolumes {
    /// By pool and number; those in the trash among them.
    pools: BTreeMap<Uuid, BTreeMap<u64, ThinVolume>>,
    /// Of those outside of the trash. Two of one name are renamed (THINNAMES1 of `commands/thin.rs`).
    names: BTreeSet<(String, Uuid, u64)>,
}

impl ThinVolumes {
    /// All of them that are not in the trash.
    pub(crate) fn all(&self) -> impl Iterator<Item = &ThinVolume> {
        self.all_and_trash().filter(|thin| thin.trash.is_none())
    }

    /// All of them.
    pub(crate) fn all_and_trash(&self) -> impl Iterator<Item = &ThinVolume> {
        self.pools.values().flat_map(BTreeMap::values)
    }

    /// Those in the trash.
    pub(crate) fn trash(&self) -> impl Iterator<Item = (&ThinVolume, InTrash)> {
        self.all_and_trash().filter_map(|thin| Some((thin, thin.trash?)))
    }

    /// Those of a pool that are not in the trash.
    pub(crate) fn of(&self, pool: Uuid) -> impl Iterator<Item = &ThinVolume> {
        let all = self.pools.get(&pool).into_iter().flat_map(BTreeMap::values);
        all.filter(|thin| thin.trash.is_none())
    }

    /// The pools that were asked.
    pub(crate) fn pools(&self) -> impl Iterator<Item = &Uuid> {
        self.pools.keys()
    }

    /// Whether a pool was asked.
    pub(crate) fn knows(&self, pool: Uuid) -> bool {
        self.pools.contains_key(&pool)
    }

    /// The volume of a name, outside of the trash.
    pub(crate) fn named(&self, name: &str) -> Option<&ThinVolume> {
        let (found, pool, number) = self.names.range((name.to_owned(), Uuid::nil(), 0)..).next()?;
        (found == name).then(|| &self.pools[pool][number])
    }

    /// The volume of an identity, in the trash or not.
    pub(crate) fn get(&self, id: Uuid) -> Option<&ThinVolume> {
        self.pools.iter().find_map(|(pool, volumes)| volumes.get(&volume_number(*pool, id)?))
    }

    /// A pool has these volumes and no others.
    pub(crate) fn replace(&mut self, pool: Uuid, volumes: Vec<ThinVolume>) {
        self.forget(pool);
        let named = volumes.iter().filter(|thin| thin.trash.is_none());
        self.names.extend(named.map(|thin| (thin.name.clone(), pool, thin.number)));
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
            if thin.trash.is_none() {
                self.names.insert((thin.name.clone(), pool, number));
            }
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
        debug_assert_eq!(self.names.len(), self.all().count(), "THINVOLUMES1");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_target::thin::Trashed;
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
            trash: None,
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
        let time = Trashed { removed: 1, until: 2 };
        let trash = Some(InTrash { time, snapshots: 0, mapped: 0, promised: 4096 });
        known.note(one, 3, Some(ThinVolume { trash, ..thin(one, 3, "d") }));
        assert!(known.named("d").is_none() && known.get(volume_id(one, 3)).is_some(), "its name is free");
        assert_eq!(known.trash().map(|(thin, _)| thin.number).collect::<Vec<_>>(), [3]);
        assert_eq!((known.of(one).count(), known.all().count(), known.all_and_trash().count()), (1, 2, 3));
        known.forget(one);
        assert!(known.named("c").is_none() && !known.knows(one) && known.knows(other));
        assert_eq!(known.all().count(), 1);
    }
}
