//! The tables of the page, each described: which records it shows, in which columns, with which goals, and how it is drawn.

use crate::results::Record;

/// What a column shows of the records of a row.
#[derive(Clone, Copy)]
pub(super) enum Show {
    /// The median.
    Value,
    /// The least and the greatest.
    Spread,
    /// The ratio to what it is compared with.
    Ratio,
    /// The ratio to the one of these columns that is hardest to beat.
    To(&'static [&'static str]),
    /// What it has to keep. Of `*`: each record of the row.
    Goal,
    /// Whether it is kept.
    Verdict,
    /// Each column that has no other place: the ratio to what it is compared with, or the median if that is nothing.
    Others,
    /// The median, and each later column as a ratio to that.
    From,
}

/// How a picture shows records.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// As bars, each a ratio.
    Ratios,
    /// As bars, each a share of what is allowed.
    Shares,
    /// As curves of ratios to the column of this name, over the numbers that are the names of columns.
    Curves(&'static str),
}

/// A picture of a table, or of each world's.
pub(super) struct Plot {
    /// The name of its file, without the world.
    pub(super) file: &'static str,
    /// What stands above it; `{}` is the world.
    pub(super) title: &'static str,
    /// What the figures are a ratio to.
    pub(super) note: &'static str,
    /// What rings on the bars are: the column of another, or all that a record is compared with.
    pub(super) others: Option<&'static str>,
    /// Which records are drawn.
    pub(super) drawn: fn(&Record) -> bool,
    pub(super) kind: Kind,
}

/// A goal of the summary, and the records that it is for.
type SummaryGoal = (&'static str, fn(&Record) -> bool);

/// A table of the page.
pub(crate) struct Table {
    /// Its name on the page; and that of its records, unless `of` names others.
    pub(crate) key: &'static str,
    pub(super) of: &'static [&'static str],
    /// What stands above the table that each world has then for itself; `{}` is the world.
    pub(super) heading: Option<&'static str>,
    /// The head of the rows.
    pub(super) head: &'static str,
    /// Head, column of the records, and what of it is shown.
    pub(super) columns: &'static [(&'static str, &'static str, Show)],
    /// Decimals with which ratios are printed and judged.
    pub(super) decimals: usize,
    pub(super) goals: &'static [SummaryGoal],
    pub(super) plot: Option<Plot>,
}

/// Single figures.
const FIGURES: Table = Table {
    key: "",
    of: &[],
    heading: None,
    head: "what",
    columns: &[
        ("median", "", Show::Value),
        ("spread", "", Show::Spread),
        ("goal", "", Show::Goal),
        ("verdict", "", Show::Verdict),
    ],
    decimals: 3,
    goals: &[],
    plot: None,
};

/// Loads of ESnap's figures that are drawn for each setting.
const DRAWN: [&str; 5] = {
    use crate::tables::snapshot::cache::{
        ORIGIN_RANDOM, ORIGIN_SEQUENTIAL, SNAPSHOT_RANDOM, SNAPSHOT_SEQUENTIAL, SNAPSHOT_SKEWED,
    };
    [ORIGIN_SEQUENTIAL, SNAPSHOT_SEQUENTIAL, ORIGIN_RANDOM, SNAPSHOT_RANDOM, SNAPSHOT_SKEWED]
};
/// Numbers of snapshots whose cost is not drawn.
const NOT_DRAWN: [&str; 4] = [", 4 ", ", 8 ", ", 64 ", ", 256 "];

/// All tables, in the order of the page.
pub(super) const TABLES: &[Table] = &[
    Table {
        key: "nbd",
        heading: Some("NBD servers: {}"),
        head: "load",
        columns: &[
            ("Varve", "varve", Show::Value),
            ("x best like peer", "varve", Show::Ratio),
            ("goal", "varve", Show::Goal),
            ("verdict", "varve", Show::Verdict),
            ("x file", "varve", Show::To(&["file, psync", "file, io_uring"])),
            ("", "", Show::Others),
        ],
        decimals: 2,
        goals: &[
            ("NBD, 4 KiB random: at least 1.2 x the best like peer", |it| it.row.starts_with("random")),
            ("NBD, sequential: at least 1.0 x the best like peer", |it| it.row.starts_with("sequential")),
        ],
        plot: Some(Plot {
            file: "nbd",
            title: "NBD over a Unix socket, {}: throughput over the best like peer",
            note: "median of the ratios of the rounds; each other server stands at its own ratio to the best of them",
            others: Some("other servers"),
            drawn: |it| it.column == "varve",
            kind: Kind::Ratios,
        }),
        ..FIGURES
    },
    Table {
        key: "nbd CPU",
        head: "where, load",
        columns: &[
            ("Varve", "varve", Show::Value),
            ("x leanest like peer", "varve", Show::Ratio),
            ("verdict", "varve", Show::Verdict),
            ("", "", Show::Others),
        ],
        decimals: 2,
        goals: &[("no more server CPU a GiB than the leanest like peer", |_| true)],
        ..FIGURES
    },
    Table {
        key: "arrays",
        head: "array and load",
        columns: &[
            ("member", "member", Show::Value),
            ("array", "array", Show::Value),
            ("x member", "array", Show::Ratio),
            ("goal", "array", Show::Goal),
            ("verdict", "array", Show::Verdict),
        ],
        decimals: 2,
        goals: &[("mirrors and ddraid beside one raw member", |_| true)],
        ..FIGURES
    },
    Table {
        key: "exact arrays",
        head: "array and load, as a ratio to one member",
        goals: &[("mirrors and ddraid beside one raw member", |_| true)],
        ..FIGURES
    },
    Table {
        key: "array work",
        goals: &[("arrays rebuild, move and convert, and clients notice little", |_| true)],
        ..FIGURES
    },
    Table { key: "processor", head: "what is done with a GiB", ..FIGURES },
    Table {
        key: "images",
        goals: &[("qcow2 images beside QEMU, mapped volumes beside linear ones", |_| true)],
        ..FIGURES
    },
    Table {
        key: "neighbour",
        heading: Some("Neighbour: {}"),
        head: "flood",
        columns: &[
            ("quiet p50", "quiet p50", Show::Value),
            ("p50", "p50", Show::Value),
            ("x quiet", "p50", Show::Ratio),
            ("verdict", "p50", Show::Verdict),
            ("quiet p99", "quiet p99", Show::Value),
            ("p99", "p99", Show::Value),
            ("verdict", "p99", Show::Verdict),
            ("flood", "flood", Show::Value),
        ],
        decimals: 2,
        goals: &[
            ("reads beside a flood on another volume: a median of at most 10 times that in quiet", |it| {
                it.column == "p50"
            }),
            ("reads beside a flood on another volume: a 99th percentile of at most 20 ms", |it| {
                it.column == "p99"
            }),
        ],
        ..FIGURES
    },
    Table {
        key: "overlays",
        heading: Some("{}"),
        head: "disk",
        columns: &[
            ("time", "time", Show::Value),
            ("x raw", "time", Show::Ratio),
            ("goal", "time", Show::Goal),
            ("verdict", "time", Show::Verdict),
            ("CPU", "CPU", Show::Value),
            ("x raw", "CPU", Show::Ratio),
            ("requests", "requests", Show::Value),
            ("x raw", "requests", Show::Ratio),
        ],
        goals: &[("work on a copy-on-write image: at most its goal, as a ratio to a raw volume", |_| true)],
        ..FIGURES
    },
    Table {
        key: "first touches",
        head: "where, load",
        columns: &[("1 snapshot", "1", Show::From), ("verdict", "*", Show::Verdict)],
        goals: &[
            ("first-touch writes with 16 snapshots: at least 0.98 of those with one", |it| it.column == "16"),
            ("first-touch writes with 1024 snapshots: at least 0.95 of those with one", |it| {
                it.column == "1024"
            }),
        ],
        ..FIGURES
    },
    Table {
        key: "independent first touches",
        head: "where, load",
        columns: &[("1 snapshot", "1", Show::From)],
        ..FIGURES
    },
    Table {
        key: "first touches beside none",
        of: &["first touches", "independent first touches"],
        head: "where, load",
        columns: &[("no snapshot", "0", Show::From)],
        plot: Some(Plot {
            file: "snapshots",
            title: "First-touch writes to an origin, sequential 1 MiB",
            note: "throughput as a ratio to that with one snapshot",
            others: None,
            drawn: |it| it.row.starts_with("sequential"),
            kind: Kind::Curves("1"),
        }),
        ..FIGURES
    },
    Table {
        key: "bonnie",
        head: "load",
        columns: &[("no snapshot", "0", Show::From)],
        plot: Some(Plot {
            file: "bonnie",
            title: "Bonnie on ext4 under snapshots",
            note: "throughput as a ratio to that without snapshots",
            others: None,
            drawn: |_| true,
            kind: Kind::Curves("0"),
        }),
        ..FIGURES
    },
    Table {
        key: "cost",
        head: "writes",
        columns: &[
            ("of no snapshot", "of no snapshot", Show::Value),
            ("goal", "of no snapshot", Show::Goal),
            ("verdict", "of no snapshot", Show::Verdict),
            ("dm-snapshot", "dm-snapshot", Show::Value),
            ("", "", Show::Others),
        ],
        goals: &[("first touches and rewrites: at least their goal, as a ratio to no snapshot", |_| true)],
        plot: Some(Plot {
            file: "cost",
            title: "Writes to an origin under snapshots, on the model disk",
            note: "throughput as a ratio to that without snapshots; exact",
            others: Some("dm-snapshot"),
            drawn: |it| {
                it.column == "of no snapshot" && !NOT_DRAWN.iter().any(|count| it.row.contains(count))
            },
            kind: Kind::Ratios,
        }),
        ..FIGURES
    },
    Table {
        key: "distance",
        head: "where, load",
        columns: &[
            ("the newest", "the newest", Show::From),
            ("goal", "*", Show::Goal),
            ("verdict", "*", Show::Verdict),
        ],
        goals: &[("reads 1024 snapshots away: at least 0.95 of those of the newest", |_| true)],
        plot: Some(Plot {
            file: "distance",
            title: "Reads of the oldest of 1024 snapshots",
            note: "throughput as a ratio to that of the newest snapshot",
            others: None,
            drawn: |it| it.goal.is_some(),
            kind: Kind::Ratios,
        }),
        ..FIGURES
    },
    Table {
        key: "cache",
        head: "setting",
        columns: &[("", "", Show::Others), ("sequential work", "*", Show::Verdict)],
        goals: &[("sequential work with little memory for metadata: at least 0.9", |_| true)],
        plot: Some(Plot {
            file: "cache",
            title: "Metadata in little memory, on the model disk",
            note: "throughput as a ratio to that with all metadata in memory; exact",
            others: None,
            drawn: |it| DRAWN.contains(&it.column.as_str()),
            kind: Kind::Ratios,
        }),
        ..FIGURES
    },
    Table {
        key: "five snapshots",
        of: &["cache"],
        head: "setting",
        columns: &[
            ("5 dependent / 1", "9: sequential write, 5 dependent", Show::To(&["9: sequential write, 1"])),
            (
                "5 independent / 1",
                "9: sequential write, 5 independent",
                Show::To(&["9: sequential write, 1"]),
            ),
        ],
        ..FIGURES
    },
    Table {
        key: "metadata",
        head: "setting",
        columns: &[("", "", Show::Others), ("goal", "*", Show::Goal), ("verdict", "*", Show::Verdict)],
        goals: &[("metadata of sequential change: at most 10 bytes for each 64 KiB", |_| true)],
        ..FIGURES
    },
    Table {
        key: "cache in real time",
        heading: Some("Metadata in little memory, in real time: {}"),
        head: "setting",
        columns: &[("", "", Show::Others), ("sequential work", "*", Show::Verdict)],
        goals: &[("sequential work with little memory for metadata: at least 0.9", |_| true)],
        plot: Some(Plot {
            file: "cache",
            title: "Metadata in little memory: {}",
            note: "throughput as a ratio to that with all metadata in memory",
            others: None,
            drawn: |it| it.over.first().is_some_and(|base| base.starts_with("all in memory")),
            kind: Kind::Ratios,
        }),
        ..FIGURES
    },
    Table {
        key: "management",
        head: "where, what",
        goals: &[("snapshots are created and removed in the time allowed", |_| true)],
        plot: Some(Plot {
            file: "management",
            title: "Creating and removing snapshots under writes",
            note: "as a share of what is allowed: less is better",
            others: None,
            drawn: |it| it.goal.is_some(),
            kind: Kind::Shares,
        }),
        ..FIGURES
    },
    Table {
        key: "thin",
        head: "where, load, thin volume",
        columns: &[
            ("thick", "thick", Show::Value),
            ("thin", "thin", Show::Value),
            ("thin / thick", "thin", Show::Ratio),
            ("goal", "thin", Show::Goal),
            ("verdict", "thin", Show::Verdict),
            ("raw file", "raw file", Show::Value),
            ("qcow2", "qcow2", Show::Value),
            ("qcow2 / raw file", "qcow2", Show::Ratio),
            ("reflinked file on XFS", "reflinked file on XFS", Show::Value),
            ("reflinked file on XFS / raw file", "reflinked file on XFS", Show::Ratio),
        ],
        goals: &[("thin volumes: at least their goal, as a ratio to a thick one", |_| true)],
        ..FIGURES
    },
    Table {
        key: "pools",
        head: "where, what",
        goals: &[(
            "pools of 10 M mappings, 10,000 snapshots, 1000 generations: within what is allowed",
            |_| true,
        )],
        ..FIGURES
    },
    Table {
        key: "layers",
        head: "layer",
        goals: &[("a layer adds no more than its goal", |_| true)],
        ..FIGURES
    },
];
