//! What the figures say about the goals; pure.

pub(crate) use crate::report::goal::Goal;
use crate::report::stats::{Summary, ratio};
use crate::results::{Contender, NbdRow, Role, SnapshotSeries};

/// Throughput of first touches with so many dependent snapshots over that with one, at least.
pub(crate) const SNAPSHOT_GOALS: [(u32, f64); 2] = [(16, 0.98), (1024, 0.95)];
/// Throughput of first touches on the model disk over that without snapshots, at least, by the size of a write; the
/// limit with copying is 1/3, and less than a chunk is copied for a small write.
pub(crate) const COST_GOALS: [(&str, f64); 3] =
    [("sequential 1 MiB", 0.32), ("random 64 KiB", 0.30), ("random 4 KiB", 0.42)];
/// Throughput of writes to preserved chunks over that without snapshots, at least.
pub(crate) const REWRITE_GOAL: f64 = 0.99;
/// Throughput of reads from afar over that from near, at least.
pub(crate) const DISTANCE_GOAL: f64 = 0.95;
/// Throughput of sequential work with a bounded metadata cache over that with all in memory, at least.
pub(crate) const CACHE_GOAL: f64 = 0.90;
/// Bytes of metadata for each 64 KiB of sequential change, at most.
pub(crate) const METADATA_GOAL_BYTES: f64 = 10.0;

/// What the median of a neighbour's reads may be beside a flood, over that in quiet.
pub(crate) const NEIGHBOUR_GOAL: Goal = Goal::AtMost(10.0);
/// What their 99th percentile may be, in milliseconds.
pub(crate) const NEIGHBOUR_P99_GOAL_MS: Goal = Goal::AtMost(20.0);

/// What first touches of this load have to keep on the model disk.
pub(crate) fn cost_goal(load: &str) -> Option<Goal> {
    COST_GOALS.iter().find(|(name, _)| load.starts_with(name)).map(|(_, goal)| Goal::AtLeast(*goal))
}

/// A comparison with the contender that is hardest to beat.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Against {
    /// Its name.
    pub(crate) name: String,
    /// Ours over theirs.
    pub(crate) ratio: Summary,
}

/// What one load says.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct NbdVerdict {
    /// Throughput against the best like peer.
    pub(crate) peer: Option<Against>,
    /// CPU a GiB against the leanest like peer.
    pub(crate) cpu: Option<Against>,
    /// Throughput against the file itself.
    pub(crate) limit: Option<Against>,
}

/// Our own figures in `row`.
pub(crate) fn varve(row: &NbdRow) -> Option<&Contender> {
    row.contenders.iter().find(|contender| contender.role == Role::Varve && !contender.samples.is_empty())
}

fn hardest(
    row: &NbdRow,
    role: Role,
    compare: impl Fn(&Contender, &Contender) -> Option<Summary>,
    harder: impl Fn(f64, f64) -> bool,
) -> Option<Against> {
    let ours = varve(row)?;
    let mut hardest: Option<Against> = None;
    for theirs in row.contenders.iter().filter(|contender| contender.role == role) {
        let Some(ratio) = compare(ours, theirs) else { continue };
        if hardest.as_ref().is_none_or(|hardest| harder(ratio.median, hardest.ratio.median)) {
            hardest = Some(Against { name: theirs.name.clone(), ratio });
        }
    }
    hardest
}

/// Judges one load.
pub(crate) fn judge(row: &NbdRow) -> NbdVerdict {
    let throughput = |ours: &Contender, theirs: &Contender| ratio(&ours.throughput(), &theirs.throughput());
    let cpu = |ours: &Contender, theirs: &Contender| ratio(&ours.server_cpu(), &theirs.server_cpu());
    NbdVerdict {
        peer: hardest(row, Role::Peer, throughput, |new, old| new < old),
        cpu: hardest(row, Role::Peer, cpu, |new, old| new > old),
        limit: hardest(row, Role::Limit, throughput, |new, old| new < old),
    }
}

impl NbdVerdict {
    /// Whether the throughput reaches `goal`; nothing without a peer.
    pub(crate) fn is_fast(&self, goal: f64) -> Option<bool> {
        self.peer.as_ref().map(|peer| as_printed(peer.ratio.median) >= goal)
    }

    /// Whether no like peer is leaner; nothing without a peer.
    pub(crate) fn is_lean(&self) -> Option<bool> {
        self.cpu.as_ref().map(|cpu| as_printed(cpu.ratio.median) <= 1.0)
    }
}

/// Two decimals: what is judged is what is printed, and a thousandth is noise.
pub(crate) fn as_printed(ratio: f64) -> f64 {
    (ratio * 100.0).round() / 100.0
}

/// Throughput with `snapshots` over that with `base` of them, round by round.
pub(crate) fn snapshot_ratio(series: &SnapshotSeries, snapshots: u32, base: u32) -> Option<Summary> {
    ratio(series.rounds(snapshots), series.rounds(base))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Sample, SnapshotPoint};
    use crate::work::Work;

    fn contender(name: &str, role: Role, figures: &[(f64, f64)]) -> Contender {
        let sample = |&(bytes_per_second, server_cpu_per_gib): &(f64, f64)| Sample {
            iops: 0.0,
            bytes_per_second,
            server_cpu_per_gib,
            client_cpu_per_gib: 1.0,
            latency_us_p99: 0.0,
        };
        let samples = figures.iter().map(sample).collect();
        Contender { name: name.to_owned(), role, samples, absent: None }
    }

    #[test]
    fn the_fastest_peer_and_the_leanest_may_be_different_ones() {
        let contenders = vec![
            contender("varve", Role::Varve, &[(120.0, 2.0), (130.0, 2.0), (110.0, 2.0)]),
            contender("fast", Role::Peer, &[(100.0, 4.0), (100.0, 4.0), (100.0, 4.0)]),
            contender("lean", Role::Peer, &[(50.0, 1.0), (50.0, 1.0), (50.0, 1.0)]),
            contender("file", Role::Limit, &[(480.0, 0.0), (520.0, 0.0), (440.0, 0.0)]),
            contender("absent", Role::Peer, &[]),
        ];
        let verdict = judge(&NbdRow { work: Work::random(false, 4, 1, 1), contenders });
        let peer = verdict.peer.clone().expect("a peer");
        assert_eq!((peer.name.as_str(), peer.ratio.median), ("fast", 1.2));
        let cpu = verdict.cpu.clone().expect("a peer");
        assert_eq!((cpu.name.as_str(), cpu.ratio.median), ("lean", 2.0));
        assert_eq!(verdict.limit.as_ref().expect("a limit").ratio.median, 0.25);
        assert_eq!((verdict.is_fast(1.2), verdict.is_fast(1.3)), (Some(true), Some(false)));
        assert_eq!(verdict.is_lean(), Some(false));
    }

    #[test]
    fn a_goal_says_by_how_much_it_is_missed() {
        assert_eq!(Goal::AtLeast(0.98).judged(0.9796), "holds");
        assert_eq!(Goal::AtLeast(0.8).judged(0.6), "**missed by 25.0 %**");
        assert_eq!((Goal::AtMost(2.0).judged(2.0), Goal::AtMost(2.0).told()), ("holds".into(), "≤ 2".into()));
        assert_eq!(Goal::AtMost(2.0).judged(5.0), "**missed by 150 %**");
        assert_eq!(Goal::AtMost(2.0).judged(f64::NAN), "–");
        assert_eq!(cost_goal("random 4 KiB QD8"), Some(Goal::AtLeast(0.42)));
        assert_eq!(cost_goal("random read"), None);
    }

    #[test]
    fn without_us_or_without_peers_there_is_no_verdict() {
        let contenders = vec![contender("fast", Role::Peer, &[(1.0, 1.0)])];
        let verdict = judge(&NbdRow { work: Work::random(false, 4, 1, 1), contenders });
        assert_eq!(verdict, NbdVerdict { peer: None, cpu: None, limit: None });
        assert_eq!(verdict.is_fast(1.0), None);
    }

    #[test]
    fn what_is_judged_is_what_is_printed() {
        let contenders = vec![
            contender("varve", Role::Varve, &[(99.6, 1.004)]),
            contender("peer", Role::Peer, &[(100.0, 1.0)]),
        ];
        let verdict = judge(&NbdRow { work: Work::sequential(false, 64, 8, 1), contenders });
        assert_eq!((verdict.is_fast(1.0), verdict.is_lean()), (Some(true), Some(true)));
    }

    #[test]
    fn snapshots_are_compared_round_by_round() {
        let point =
            |snapshots, rounds: [f64; 3]| SnapshotPoint { snapshots, bytes_per_second: rounds.to_vec() };
        let points = vec![point(1, [100.0, 10.0, 50.0]), point(16, [97.0, 9.7, 48.5])];
        let series = SnapshotSeries { load: String::new(), points };
        let ratio = snapshot_ratio(&series, 16, 1).expect("both were measured");
        assert!((ratio.lowest - 0.97).abs() < 1e-9 && (ratio.highest - 0.97).abs() < 1e-9);
        assert_eq!(snapshot_ratio(&series, 8, 1), None);
    }
}
