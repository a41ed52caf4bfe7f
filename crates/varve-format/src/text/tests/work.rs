//! Tests of moves, conversions and clearings: jobs that hold extents.

use super::*;

/// The sample, in which this work goes on, each by a job.
fn working(works: impl IntoIterator<Item = JobWork>) -> Description {
    let (subject, started) = ("data".to_owned(), UnixTime(1_750_000_200));
    let job = |(id, work)| JobEntry { id, subject: subject.clone(), started, groups: Vec::new(), work };
    let jobs: Vec<JobEntry> = (1..).zip(works).map(job).collect();
    Description { last_job: jobs.len() as u64, jobs, ..sample() }
}

fn step(of: u128, old: Area, new: Area) -> MoveStep {
    MoveStep { of: Uuid::from_u128(of), old, new }
}

/// The first disk is emptied to the second one.
fn emptied(step: Option<MoveStep>) -> JobWork {
    JobWork::Move(MoveEntry { from: PvName(0), to: vec![PvName(1)], rate: Some(1 << 20), step })
}

#[test]
fn moves_stand_in_the_text_as_a_person_reads_them() {
    let description = working([emptied(Some(step(2, area(0, 5, 10), area(1, 200, 10))))]);
    let text = description.encode();
    let expected = r#"
[[job]]
id = 1
subject = "data"
started = "2025-06-15T15:10:00Z"

[job.work.move]
from = "pv0"
to = ["pv1"]
rate = 1048576

[job.work.move.step]
of = "00000000-0000-0000-0000-000000000002"
old = "pv0:5+10"
new = "pv1:200+10"
"#;
    assert!(text.ends_with(expected), "{text}");
    assert_eq!(Description::decode(&text), Ok(description));
}

#[test]
fn a_step_of_a_move_owns_the_place_that_its_volume_does_not() {
    let owned = |step| working([emptied(Some(step))]).areas_of_jobs().collect::<Vec<_>>();
    let of_job = |area| vec![("job 1".to_owned(), area)];
    assert_eq!(
        owned(step(2, area(0, 5, 10), area(1, 200, 10))),
        of_job(area(1, 200, 10)),
        "it is being copied"
    );
    assert_eq!(owned(step(2, area(0, 200, 2), area(1, 101, 2))), of_job(area(0, 200, 2)), "it has switched");
    assert_eq!(owned(step(3, area(0, 30, 5), area(1, 200, 5))), of_job(area(1, 200, 5)), "that of a store");
    let taken = working([emptied(Some(step(2, area(0, 5, 10), area(1, 95, 10))))]).check();
    assert!(matches!(taken, Err(TextError::OwnedTwice { .. })), "TEXT5: {taken:?}");
}

/// The first volume is converted to stripes.
fn converted(parts: Vec<ConvertedPart>) -> ConversionEntry {
    let (id, volume) = (Uuid::from_u128(0xc0), Uuid::from_u128(2));
    ConversionEntry { id, volume, rate: Some(1 << 20), switched: false, parts }
}

fn striped_part(of: u128, count: u64) -> ConvertedPart {
    let segments = vec![Segment { areas: vec![area(0, 200, count), area(1, 200, count)] }];
    ConvertedPart { of: Uuid::from_u128(of), layout: Layout::Striped { stripe_size: 65_536 }, segments }
}

#[test]
fn conversions_stand_in_the_text_as_a_person_reads_them() {
    let description = working([JobWork::Convert(converted(vec![striped_part(2, 15)]))]);
    let text = description.encode();
    let expected = r#"
[job.work.convert]
id = "00000000-0000-0000-0000-0000000000c0"
volume = "00000000-0000-0000-0000-000000000002"
rate = 1048576

[[job.work.convert.part]]
of = "00000000-0000-0000-0000-000000000002"
segments = ["pv0:200+15 pv1:200+15"]

[job.work.convert.part.layout.striped]
stripe_size = 65536
"#;
    assert!(text.ends_with(expected), "{text}");
    assert_eq!(Description::decode(&text), Ok(description));
}

#[test]
fn moves_conversions_and_clearings_that_make_no_sense_are_refused() {
    let entry = |from, to: &[u32]| {
        let to = to.iter().map(|pv| PvName(*pv)).collect();
        MoveEntry { from: PvName(from), to, rate: None, step: None }
    };
    let steps = [
        step(2, area(0, 5, 10), area(1, 200, 9)),
        step(2, area(1, 100, 5), area(1, 200, 5)),
        step(2, area(0, 5, 5), area(0, 200, 5)),
        step(2, area(0, 29, 5), area(1, 200, 5)),
        step(9, area(0, 5, 5), area(1, 200, 5)),
    ];
    let steps =
        steps.map(|step| ("TEXT17", vec![JobWork::Move(MoveEntry { step: Some(step), ..entry(0, &[]) })]));
    let moves = |entries: Vec<MoveEntry>| ("TEXT17", entries.into_iter().map(JobWork::Move).collect());
    let part = || striped_part(2, 15);
    let conversion = |parts| ("TEXT20", vec![JobWork::Convert(converted(parts))]);
    let of = |entry| ("TEXT20", vec![JobWork::Convert(entry)]);
    let clear = |volume, from| JobWork::Clear { volume: Uuid::from_u128(volume), from };
    let wrong: [(&str, Vec<JobWork>); 15] = [
        moves(vec![entry(0, &[]), entry(0, &[1])]),
        moves(vec![entry(7, &[])]),
        moves(vec![entry(0, &[7])]),
        moves(vec![entry(0, &[0])]),
        moves(vec![MoveEntry { rate: Some(0), ..entry(0, &[]) }]),
        conversion(Vec::new()),
        conversion(vec![striped_part(2, 14)]),
        conversion(vec![striped_part(9, 15)]),
        conversion(vec![part(), part()]),
        conversion(vec![ConvertedPart { layout: Layout::Zero, segments: Vec::new(), ..part() }]),
        of(ConversionEntry { volume: Uuid::from_u128(9), ..converted(vec![part()]) }),
        of(ConversionEntry { rate: Some(0), ..converted(vec![part()]) }),
        ("TEXT26", vec![clear(2, 30)]),
        ("TEXT26", vec![clear(9, 0)]),
        ("TEXT26", vec![clear(2, 5), clear(2, 6)]),
    ];
    for (rule, works) in wrong.into_iter().chain(steps) {
        let refused = working(works.clone()).check();
        let is_of_job = matches!(&refused, Err(TextError::Shape { place, .. }) if place == "job 1");
        assert!(is_of_job, "{rule}: {refused:?} of {works:?}");
    }
    let mut on_no_disk = working([clear(4, 0)]);
    assert_eq!(on_no_disk.check(), Ok(()));
    self::on_no_disk(&mut on_no_disk, Layout::Zero);
    assert!(matches!(on_no_disk.check(), Err(TextError::Shape { .. })), "TEXT26");
    let mut taken = converted(vec![part()]);
    taken.parts[0].segments[0].areas[0].start = 0;
    let taken = working([JobWork::Convert(taken)]).check();
    assert!(matches!(taken, Err(TextError::OwnedTwice { .. })), "TEXT5");
    let twice = |entry| working([JobWork::Convert(entry)]).check();
    let id = ConversionEntry { id: Uuid::from_u128(2), ..converted(vec![part()]) };
    assert_eq!(twice(id), Err(TextError::IdTwice(Uuid::from_u128(2))), "TEXT1");
    let other = ConversionEntry { id: Uuid::from_u128(0xc1), ..converted(vec![striped_part(2, 15)]) };
    let both = working([JobWork::Convert(converted(vec![part()])), JobWork::Convert(other)]).check();
    assert!(
        matches!(both, Err(TextError::Shape { problem: "a volume is converted once at a time", .. })),
        "TEXT20"
    );
}
