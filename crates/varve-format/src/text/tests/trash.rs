//! Tests of the trash: its form in the text, and what is refused of it.

use super::*;

/// The sample, with what was its first volume in the trash.
fn trashed() -> Description {
    let mut description = sample();
    let volume = description.logical_volumes.remove(0);
    let (removed, until) = (UnixTime(1_750_000_200), UnixTime(1_750_086_600));
    description.trash.push(TrashEntry { removed, until, volume });
    description.group.trash_keep_s = Some(86_400 * 7);
    description
}

/// The same without snapshots, under another identity.
fn numbered(entry: &TrashEntry, number: u128) -> TrashEntry {
    let mut other = entry.clone();
    (other.volume.id, other.volume.store) = (Uuid::from_u128(0x1000 + number), None);
    other
}

#[test]
fn the_trash_stands_in_the_text_as_a_person_reads_it() {
    let text = trashed().encode();
    let expected = r#"
[[trash]]
removed = "2025-06-15T15:10:00Z"
until = "2025-06-16T15:10:00Z"

[trash.volume]
name = "vm1"
id = "00000000-0000-0000-0000-000000000002"
layout = "linear"
created = "2025-06-15T15:07:30Z"
extents = 30
segments = ["pv0:0+25", "pv1:100+5"]

[trash.volume.store]
"#;
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("trash_keep_s = 604800\n"), "{text}");
    assert_eq!(Description::decode(&text), Ok(trashed()));
}

#[test]
fn a_name_of_the_trash_is_free_and_its_id_and_extents_are_not() {
    let mut same_name = trashed();
    same_name.logical_volumes[0].name = "vm1".to_owned();
    assert_eq!(same_name.check(), Ok(()));
    let mut same_id = trashed();
    same_id.logical_volumes[0].id = Uuid::from_u128(2);
    assert_eq!(same_id.check(), Err(TextError::IdTwice(Uuid::from_u128(2))), "TEXT1");
    let mut overlaps = trashed();
    overlaps.logical_volumes[0].segments = vec![Segment { areas: vec![area(0, 20, 10), area(1, 0, 10)] }];
    assert!(matches!(overlaps.check(), Err(TextError::OwnedTwice { extent: 20, .. })), "TEXT5");
}

#[test]
fn every_broken_rule_of_the_trash_is_refused_and_named() {
    type Broken = (fn(&mut Description), &'static str);
    let broken: [Broken; 5] = [
        (|d| d.trash[0].volume.name = "a/b".into(), "trash"),
        (|d| d.trash[0].volume.extents = 31, "vm1"),
        (|d| d.group.trash_keep_s = Some(367 * 86_400), "366 days"),
        (
            |d| {
                let volume = &mut d.trash[0].volume;
                (volume.layout, volume.store) = (Layout::Zero, None);
                volume.segments.clear();
            },
            "is on disks",
        ),
        (|d| d.trash = (0..257).map(|number| numbered(&d.trash[0], number)).collect(), "at most 256"),
    ];
    for (change, word) in broken {
        let mut description = trashed();
        change(&mut description);
        let error = description.check().expect_err(word).to_string();
        assert!(error.contains(word), "TEXT28: {error} lacks {word}");
    }
}
