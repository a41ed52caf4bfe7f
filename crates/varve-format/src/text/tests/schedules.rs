//! Tests of schedules: their form in the text, and what is refused of them.

use super::*;

/// The sample, with a schedule of its first volume and of a thin one.
fn scheduled() -> Description {
    let made =
        |store, numbers: &[u64]| MadeSnapshots { store: Uuid::from_u128(store), numbers: numbers.to_vec() };
    let volumes = vec![
        ScheduledVolume { id: Uuid::from_u128(2), pool: None, made: vec![made(3, &[4, 9])] },
        ScheduledVolume { id: Uuid::from_u128(0x50), pool: Some(Uuid::from_u128(0x51)), made: Vec::new() },
    ];
    let schedule = ScheduleEntry {
        name: "vm1".to_owned(),
        id: Uuid::from_u128(0x60),
        created: UnixTime(1_750_000_200),
        every_s: 3600,
        keep: "24h,7d".parse().expect("it says how many"),
        last_run: Some(UnixTime(1_750_003_200)),
        volumes,
    };
    Description { schedules: vec![schedule], ..sample() }
}

#[test]
fn schedules_stand_in_the_text_as_a_person_reads_them() {
    let text = scheduled().encode();
    let expected = r#"
[[schedule]]
name = "vm1"
id = "00000000-0000-0000-0000-000000000060"
created = "2025-06-15T15:10:00Z"
every_s = 3600
keep = "24h,7d"
last_run = "2025-06-15T16:00:00Z"

[[schedule.volume]]
id = "00000000-0000-0000-0000-000000000002"

[[schedule.volume.made]]
store = "00000000-0000-0000-0000-000000000003"
numbers = [4, 9]

[[schedule.volume]]
id = "00000000-0000-0000-0000-000000000050"
pool = "00000000-0000-0000-0000-000000000051"
"#;
    assert!(text.ends_with(expected), "{text}");
    assert_eq!(Description::decode(&text), Ok(scheduled()));
    let mut new = scheduled();
    new.schedules[0].last_run = None;
    assert_eq!(Description::decode(&new.encode()), Ok(new), "it has not run yet");
}

#[test]
fn every_broken_rule_of_schedules_is_refused_and_named() {
    type Broken = (fn(&mut Description), &'static str);
    fn twice(d: &mut Description, change: fn(&mut ScheduleEntry)) {
        let mut other = d.schedules[0].clone();
        (other.id, other.name) = (Uuid::from_u128(0x61), "other".to_owned());
        other.volumes.iter_mut().for_each(|volume| volume.made.clear());
        change(&mut other);
        d.schedules.push(other);
    }
    let broken: &[Broken] = &[
        (|_| {}, ""),
        (|d| twice(d, |_| {}), ""),
        (|d| twice(d, |other| other.name = "vm1".to_owned()), "two of them are called vm1"),
        (|d| twice(d, |other| other.id = Uuid::from_u128(0x60)), "two things have the id"),
        (
            |d| {
                twice(d, |other| {
                    let number = MadeSnapshots { store: Uuid::from_u128(3), numbers: vec![9] };
                    other.volumes[0].made.push(number);
                });
            },
            "the schedule \"other\": a snapshot is made by one schedule, once",
        ),
        (|d| d.schedules[0].name = "a/b".to_owned(), "the schedule \"a/b\": a name is made of"),
        (|d| d.schedules[0].id = Uuid::nil(), "the schedule \"vm1\" has no id"),
        (|d| d.schedules[0].every_s = 0, "the schedule \"vm1\": `every_s` is"),
        (|d| d.schedules[0].every_s = EVERY_S_MAX + 1, "the schedule \"vm1\": `every_s` is"),
        (|d| d.schedules[0].volumes.clear(), "the schedule \"vm1\": it is of 1 to 64 volumes"),
        (
            |d| d.schedules[0].volumes[1].id = Uuid::from_u128(2),
            "the schedule \"vm1\": it is of 1 to 64 volumes",
        ),
        (
            |d| d.schedules[0].volumes[0].made[0].numbers = vec![0],
            "the schedule \"vm1\": a snapshot is made by",
        ),
        (
            |d| d.schedules[0].volumes[0].made[0].numbers = (1..=MADE_MAX as u64 + 1).collect(),
            "the group: its schedules have made at most 16384",
        ),
    ];
    for (change, message) in broken {
        let mut description = scheduled();
        change(&mut description);
        let found = description.check().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(found.starts_with(message) && found.is_empty() == message.is_empty(), "{message}: {found}");
    }
}
