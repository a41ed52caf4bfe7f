//! The parts of the measurement of snapshots, by name.

use crate::options::{Medium, Options};
use crate::report::sheet::Sheet;
use crate::tables::snapshot::{
    bonnie, cache, cache_times, cost, daemon, distance, engine, management, management_daemon,
};

/// One part: its name, the medium that it needs if it needs one, and how it is measured.
type Part = (&'static str, Option<Medium>, fn(&Options, &mut Sheet) -> Result<(), String>);

/// All parts, in the order in which they are measured: what is exact and short comes first.
const PARTS: [Part; 17] = [
    ("cost: model disk", None, |_, sheet| cost::measure_model(sheet)),
    ("first touches: model disk", None, |_, sheet| engine::measure_model(sheet)),
    ("distance: model disk", None, |_, sheet| distance::measure_model(sheet)),
    ("cache: model disk", None, cache::measure_model),
    ("distance: memory", Some(Medium::Memory), distance::measure_memory),
    ("cache: memory", Some(Medium::Memory), |options, sheet| {
        cache_times::measure(options, Medium::Memory, sheet)
    }),
    ("cache: disk", Some(Medium::DiskDirect), |options, sheet| {
        cache_times::measure(options, Medium::DiskDirect, sheet)
    }),
    ("management: engine, memory", Some(Medium::Memory), |options, sheet| {
        management::measure(options, Medium::Memory, sheet)
    }),
    ("management: engine, disk", Some(Medium::DiskDirect), |options, sheet| {
        management::measure(options, Medium::DiskDirect, sheet)
    }),
    ("management: daemon, memory", Some(Medium::Memory), |options, sheet| {
        management_daemon::creating(options, Medium::Memory, sheet)
    }),
    ("management: daemon, disk", Some(Medium::DiskDirect), |options, sheet| {
        management_daemon::creating(options, Medium::DiskDirect, sheet)
    }),
    ("changes: daemon", Some(Medium::Memory), management_daemon::changing),
    ("deletions: daemon", Some(Medium::Memory), management_daemon::deleting),
    ("first touches: slow disk", Some(Medium::Memory), engine::measure_slow),
    ("first touches: daemon, memory", Some(Medium::Memory), |options, sheet| {
        daemon::measure(options, Medium::Memory, sheet)
    }),
    ("first touches: daemon, disk", Some(Medium::DiskDirect), |options, sheet| {
        daemon::measure(options, Medium::DiskDirect, sheet)
    }),
    ("bonnie", Some(Medium::DiskDirect), bonnie::measure),
];

/// Measures the parts that are wanted. A part that fails keeps none of the others from being measured.
pub(crate) fn measure(options: &Options, sheet: &mut Sheet) -> Result<(), String> {
    let mut failed = Vec::new();
    for (name, medium, part) in PARTS {
        if !options.wants(name) || !medium.is_none_or(|medium| options.has(medium)) {
            continue;
        }
        let watch = crate::programs::watch::Watch::start();
        if let Err(reason) = part(options, sheet) {
            eprintln!("{name}: {reason}");
            failed.push(format!("{name}: {reason}"));
        }
        eprintln!("{name}: {:.0} s", watch.seconds());
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_part_can_be_named_apart_from_the_others() {
        let names: BTreeSet<_> = PARTS.iter().map(|(name, ..)| *name).collect();
        assert_eq!(names.len(), PARTS.len());
        for name in &names {
            assert_eq!(names.iter().filter(|other| other.contains(name)).count(), 1, "{name}");
        }
    }
}
