//! What one scrape remembers for the next: sums of volumes that never fall, and which volumes and exports are the busiest.
//!
//! Invariants:
//! - TALLY1. A sum of a group or pool only grows while that is there, whatever volumes are removed, renamed or opened anew: a counter
//!   that falls would be taken for one that began anew, and all of it for an increase.
//! - TALLY2. What was busy lately ranks before what was busy long ago, so that the series of a scrape change seldom, and the new load is
//!   among them soon.
//! - TALLY3. What does not answer now has the counters that it had, not zeros.
//! - TALLY4. Of groups and pools that are gone nothing is remembered: there may be new ones under new names for ever.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;
use varve_api::{Export, Group, LogicalVolume, Pool, Traffic};

/// After so long without requests the weight of those before is half (TALLY2).
const HALF_LIFE: Duration = Duration::from_secs(300);

/// Sums by group or pool.
pub(super) type Sums = BTreeMap<String, Traffic>;

/// What is remembered.
#[derive(Default)]
pub(crate) struct Tally {
    volumes: Ranking,
    exports: Ranking,
    groups: Sums,
    pools: Sums,
}

impl Tally {
    /// Takes in what there is `elapsed` after the last time.
    pub(super) fn take(&mut self, volumes: &mut [LogicalVolume], exports: &mut [Export], elapsed: Duration) {
        let all = exports.iter_mut().map(|export| (export.id.as_str(), &mut export.traffic));
        self.exports.take(all, elapsed);
        let all = volumes.iter_mut().map(|volume| (volume.id.as_str(), &mut volume.traffic));
        let increases = self.volumes.take(all, elapsed);
        for sums in [&mut self.groups, &mut self.pools] {
            sums.values_mut().for_each(|sum| sum.in_flight = 0);
        }
        for (volume, increase) in volumes.iter().zip(&increases) {
            self.groups.entry(volume.group.clone()).or_default().add(increase);
            if let Some(thin) = &volume.thin {
                self.pools.entry(thin.pool.clone()).or_default().add(increase);
            }
        }
    }

    /// Forgets all but these groups and pools (TALLY4).
    pub(super) fn keep(&mut self, groups: &[Group], pools: &[Pool]) {
        let groups: HashSet<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        self.groups.retain(|name, _| groups.contains(name.as_str()));
        let pools: HashSet<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
        self.pools.retain(|name, _| pools.contains(name.as_str()));
    }

    /// Sums of the volumes of each group (TALLY1).
    pub(super) fn groups(&self) -> &Sums {
        &self.groups
    }

    /// Sums of the volumes in each pool.
    pub(super) fn pools(&self) -> &Sums {
        &self.pools
    }

    /// Leaves the busiest `count` of each, in their order (TALLY2).
    pub(super) fn keep_busiest(
        &self,
        volumes: &mut Vec<LogicalVolume>,
        exports: &mut Vec<Export>,
        count: usize,
    ) {
        let busiest = self.volumes.busiest(count);
        volumes.retain(|volume| busiest.contains(volume.id.as_str()));
        let busiest = self.exports.busiest(count);
        exports.retain(|export| busiest.contains(export.id.as_str()));
    }
}

#[derive(Default)]
struct Ranking {
    seen: HashMap<String, Seen>,
}

/// What was seen of one noun.
struct Seen {
    traffic: Traffic,
    /// Its requests, those of long ago weighing less.
    weight: f64,
}

impl Ranking {
    /// What has come of each since it was seen last, in their order. What is not among them is forgotten.
    fn take<'a>(
        &mut self,
        all: impl Iterator<Item = (&'a str, &'a mut Traffic)>,
        elapsed: Duration,
    ) -> Vec<Traffic> {
        let fade = 0.5_f64.powf(elapsed.as_secs_f64() / HALF_LIFE.as_secs_f64());
        let (mut increases, mut seen) = (Vec::new(), HashMap::new());
        for (id, traffic) in all {
            let (before, nothing) = (self.seen.remove(id), Traffic::default());
            if let Some(before) = before.as_ref().filter(|_| traffic.requests() == 0) {
                *traffic = Traffic { in_flight: traffic.in_flight, ..before.traffic.clone() }; // TALLY3
            }
            let increase = traffic.since(before.as_ref().map_or(&nothing, |before| &before.traffic));
            let faded = before.map_or(0.0, |before| before.weight * fade);
            let weight = faded + f64::from(u32::try_from(increase.requests()).unwrap_or(u32::MAX));
            seen.insert(id.to_owned(), Seen { traffic: traffic.clone(), weight });
            increases.push(increase);
        }
        self.seen = seen;
        increases
    }

    fn busiest(&self, count: usize) -> HashSet<&str> {
        let mut all: Vec<(&str, f64)> =
            self.seen.iter().map(|(id, seen)| (id.as_str(), seen.weight)).collect();
        let rank = |(id, weight): &(&str, f64)| (Reverse(weight.to_bits()), (*id).to_owned());
        // Weights are not negative, so that their bits have their order.
        all.sort_by_cached_key(rank);
        all.into_iter().take(count).map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(reads: u64) -> Traffic {
        Traffic { reads, ..Traffic::default() }
    }

    fn volume(id: &str, count: u64) -> LogicalVolume {
        let shown = serde_json::json!({
            "name": format!("data/{id}"), "id": id, "group": "data", "layout": "thin", "stripes": 1, "stripe_size": 0, "size": 1,
            "state": "active", "created": 0, "shard": 0, "snapshots": 0, "snapshot_store": null,
            "snapshot_policy": {"when_full": "pause", "pause_timeout_ms": 0, "auto_extend": null},
            "thin": {"pool": "data/p", "mapped": 0, "exclusive": 0, "shared": 0},
            "exports": [], "segments": [], "traffic": reads(count),
        });
        serde_json::from_value(shown).expect("a volume")
    }

    #[test]
    fn sums_grow_while_volumes_come_go_and_are_opened_anew() {
        let mut tally = Tally::default();
        let mut sums = Vec::new();
        for mut volumes in [
            vec![volume("a", 100), volume("b", 10)],
            vec![volume("a", 120), volume("b", 10)],
            vec![volume("b", 15)],                // One was removed.
            vec![volume("b", 2), volume("c", 1)], // One was opened anew, one made.
            vec![],
        ] {
            tally.take(&mut volumes, &mut [], Duration::from_secs(15));
            assert_eq!(tally.groups()["data"], tally.pools()["data/p"]);
            sums.push(tally.groups()["data"].reads);
        }
        assert_eq!(sums, [110, 130, 135, 138, 138], "TALLY1");
        tally.keep(&[], &[]);
        assert!(tally.groups().is_empty() && tally.pools().is_empty(), "TALLY4");
    }

    #[test]
    fn the_busiest_are_those_of_lately() {
        let mut tally = Tally::default();
        let shown = |tally: &Tally, volumes: &[LogicalVolume], count| {
            let mut volumes = volumes.to_vec();
            tally.keep_busiest(&mut volumes, &mut Vec::new(), count);
            volumes.into_iter().map(|volume| volume.id).collect::<Vec<_>>()
        };
        let first = [volume("a", 1000), volume("b", 10), volume("c", 20)];
        tally.take(&mut first.clone(), &mut [], Duration::ZERO);
        assert_eq!(shown(&tally, &first, 2), ["a", "c"], "TALLY2");
        let mut next = [volume("a", 1000), volume("b", 600), volume("c", 20)];
        tally.take(&mut next.clone(), &mut [], Duration::from_secs(15));
        assert_eq!(shown(&tally, &next, 1), ["a"], "TALLY2");
        tally.take(&mut next, &mut [], HALF_LIFE);
        let later = [volume("a", 1000), volume("b", 1000), volume("c", 20)];
        tally.take(&mut later.clone(), &mut [], Duration::from_secs(15));
        assert_eq!(shown(&tally, &later, 1), ["b"], "TALLY2: a rests");
        assert_eq!(shown(&tally, &later, 0), [""; 0]);
    }

    #[test]
    fn a_volume_that_does_not_answer_has_the_counters_that_it_had() {
        let mut tally = Tally::default();
        let mut seen = Vec::new();
        for count in [100, 0, 105] {
            let mut volumes = [volume("a", count)];
            tally.take(&mut volumes, &mut [], Duration::from_secs(15));
            seen.push((volumes[0].traffic.reads, tally.groups()["data"].reads));
        }
        assert_eq!(seen, [(100, 100), (100, 100), (105, 105)], "TALLY3");
    }
}
