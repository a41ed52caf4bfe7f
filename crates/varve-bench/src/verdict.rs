//! What the figures say about the goals; pure.

use crate::results::{Contender, NbdRow, Role, SnapshotSeries};
use crate::stats::{Summary, ratio};

/// Throughput with 16 snapshots over that with one, as the chained prototype of 2006 had it.
pub(crate) const SNAPSHOT_GOAL: f64 = 0.97;

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
