//! What is refused of the log disk of an array.

use super::*;

fn log(description: &mut Description) -> &mut LogEntry {
    let log = description.logical_volumes[0].layout.log_mut().expect("a mirror");
    log.as_mut().expect("it has one")
}

const BROKEN_LOGS: &[BrokenArray] = &[
    ("TEXT24", |d| log(d).area = area(1, 100, 1), "vm1: the log of an array lies on no disk of its members"),
    ("TEXT24", |d| log(d).area = area(2, 100, 1), ""),
    ("TEXT24", |d| log(d).area.count = 0, "vm1: the log of an array has as much room as the log of a member"),
    ("TEXT4", |d| log(d).area = area(9, 0, 1), "vm1"),
    ("TEXT1", |d| log(d).id = Uuid::from_u128(0x200), "two things have the id"),
    ("TEXT1", |d| log(d).id = Uuid::nil(), "the log of vm1 has no id"),
    ("TEXT5", |d| d.logical_volumes[1].segments[0].areas[2] = area(3, 0, 10), "extent 0 of pv3 belongs to"),
];

#[test]
fn every_broken_rule_of_log_disks_is_refused_and_named() {
    assert_eq!(arrays().logical_volumes[0].layout.log().map(|log| log.area), Some(area(3, 0, 1)));
    for (rule, change, message) in BROKEN_LOGS {
        let mut broken = arrays();
        change(&mut broken);
        let found = broken.check().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(found.starts_with(message) && found.is_empty() == message.is_empty(), "{rule}: {found}");
    }
}
