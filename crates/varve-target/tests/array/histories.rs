//! Arrays in the simulated world: random histories, members that fail and return, a crash at any moment.

mod boot;
mod host;
mod log_disk;
mod watch;

use boot::Boot;
use host::{Host, Kind, Plan};
use varve_sim::{CrashAt, CrashKind, caught_share, run_seeds, test_name};
use varve_target::array::InjectedBug;
use watch::{Counts, Event};

/// One history: some boots, each ended by a crash or not; at the end all faults stop, and the array becomes whole.
fn history(seed: u64, kind: Kind, bug: Option<InjectedBug>, counts: &'static Counts) {
    let host = Host::new(seed, kind, bug, counts);
    let mut random = host.world.random();
    for _ in 0..random.between(1, if kind == Kind::Absences { 7 } else { 4 }) {
        let crash = if random.chance(1, 4) { CrashKind::Process } else { CrashKind::Power };
        let spread = *random.pick(match kind {
            Kind::Absences => &[30, 60, 300],
            Kind::Copies => &[600, 1200],
            _ => &[90, 360, 1200],
        });
        host.world.schedule(CrashAt::Event(random.between(1, spread)), crash);
        let mut choices = random.fork();
        let plan = host.plan(&mut choices);
        let ran = host.world.run_until_crash(async {
            let boot = Boot::begin(&host, plan, &mut choices).await;
            if !boot.prepare(&mut choices).await {
                return;
            }
            if choices.chance(1, 2) {
                boot.look().await;
            }
            if kind == Kind::Losses {
                boot.accept_loss(&mut choices).await;
            }
            for _ in 0..choices.between(1, if kind == Kind::Copies { 14 } else { 6 }) {
                boot.round(&mut choices).await;
            }
            if choices.chance(1, if kind == Kind::Copies { 2 } else { 3 }) {
                boot.close().await;
            }
        });
        host.end((!ran.crashed()).then_some(crash));
    }
    host.world.run(async {
        let mut plan = Plan::default();
        plan.older = host.plan(&mut random).older;
        let boot = Boot::begin(&host, plan, &mut random).await;
        boot.recover(&mut random).await;
    });
}

/// Runs histories of a kind, and prints what they went through.
fn histories(name: varve_sim::TestName, seeds: u64, kind: Kind, counts: &'static Counts) {
    run_seeds(name, seeds, |seed| history(seed, kind, None, counts));
    counts.say(name.function);
}

#[test]
fn an_array_survives_every_crash() {
    static COUNTS: Counts = Counts::new();
    histories(test_name!("an_array_survives_every_crash"), 5000, Kind::Crashes, &COUNTS);
}

/// A scrub makes a mirror of three equal, and the power fails: the one that had rotted has the newest stamp, and would decide if the region were dirty.
#[test]
fn what_has_rotted_does_not_count_after_a_crash_during_the_scrub_that_mends_it() {
    static COUNTS: Counts = Counts::new();
    history(16_699, Kind::Crashes, None, &COUNTS);
}

/// All members have called a region clean, of which something has rotted; two openings are cut short one after the other, the first while its stamp is
/// on some members only. What is right can be computed, and is not to be made of what has rotted.
#[test]
fn a_region_that_was_clean_is_no_dirty_one_after_two_openings_that_were_cut_short() {
    static COUNTS: Counts = Counts::new();
    history(10_490, Kind::Crashes, None, &COUNTS);
}

#[test]
fn members_fail_and_return_at_any_moment() {
    static COUNTS: Counts = Counts::new();
    histories(test_name!("members_fail_and_return_at_any_moment"), 7000, Kind::Members, &COUNTS);
    assert!(COUNTS.get(Event::Stale) > 0 || COUNTS.get(Event::Opened) < 1000);
}

/// Two of three copies are in sync. One fails, and the crash comes when the superblock that says so is on the one alone that catches up.
#[test]
fn a_mirror_opens_though_only_a_member_that_catches_up_knows_that_another_one_failed() {
    static COUNTS: Counts = Counts::new();
    history(12_780, Kind::Members, None, &COUNTS);
    assert!(COUNTS.get(Event::Opened) > 1, "it crashes, and is opened again");
}

#[test]
fn failing_disks_cost_members_but_no_content() {
    static COUNTS: Counts = Counts::new();
    histories(test_name!("failing_disks_cost_members_but_no_content"), 5000, Kind::Faults, &COUNTS);
}

#[test]
fn other_members_are_missing_at_every_boot() {
    static COUNTS: Counts = Counts::new();
    histories(test_name!("other_members_are_missing_at_every_boot"), 4000, Kind::Absences, &COUNTS);
}

#[test]
fn members_come_back_as_copies_that_were_made_of_them() {
    static COUNTS: Counts = Counts::new();
    histories(test_name!("members_come_back_as_copies_that_were_made_of_them"), 2500, Kind::Copies, &COUNTS);
    assert!(COUNTS.get(Event::Copied) > 0 || COUNTS.get(Event::Opened) < 1000);
}

/// A member refuses a fast zero that another one has done, and a data member is lost before they are equal there: of the region whose loss is
/// accepted the blocks of the zero are lost.
#[test]
fn a_zero_that_was_refused_before_a_data_member_was_lost_costs_its_blocks_alone() {
    static COUNTS: Counts = Counts::new();
    history(2913, Kind::Copies, None, &COUNTS);
}

#[test]
fn what_is_lost_with_a_member_is_accepted_and_nothing_else_is() {
    static COUNTS: Counts = Counts::new();
    histories(
        test_name!("what_is_lost_with_a_member_is_accepted_and_nothing_else_is"),
        1200,
        Kind::Losses,
        &COUNTS,
    );
    assert!(COUNTS.get(Event::AcceptedInPart) > 0 || COUNTS.get(Event::Opened) < 1000);
}

/// Asserts that a bug is noticed by at least so many percent of some histories.
fn noticed(bug: InjectedBug, kind: Kind, percent_min: u64) {
    static COUNTS: Counts = Counts::new();
    caught_share(&format!("{bug:?}"), 200, percent_min, |seed| history(seed, kind, Some(bug), &COUNTS));
}

/// Breaks ARRAYIO1.
#[test]
fn a_member_written_before_its_region_is_marked_is_noticed() {
    noticed(InjectedBug::WriteBeforeMark, Kind::Crashes, 10);
}

/// Breaks ARRAYIO2.
#[test]
fn a_region_called_clean_before_a_flush_is_noticed() {
    noticed(InjectedBug::ClearBeforeFlush, Kind::Crashes, 5);
}

#[test]
fn a_region_made_equal_beside_its_writers_is_noticed() {
    noticed(InjectedBug::ResyncBesideWriters, Kind::Members, 2);
}

/// Breaks ARRAYIO5.
#[test]
fn a_dirty_block_that_is_reconstructed_is_noticed() {
    noticed(InjectedBug::ReconstructDirty, Kind::Absences, 1);
}

#[test]
fn a_stale_member_that_is_believed_is_noticed() {
    noticed(InjectedBug::BelieveStale, Kind::Members, 10);
}

/// Breaks STAMP3 and STAMP4.
#[test]
fn a_copy_that_is_believed_for_its_number_is_noticed() {
    noticed(InjectedBug::NumbersAlone, Kind::Copies, 5);
}

/// Breaks STAMP1.
#[test]
fn what_is_clean_without_a_stamp_is_noticed() {
    noticed(InjectedBug::StampMarksAlone, Kind::Copies, 1);
}

/// Breaks ARRAYIO3.
#[test]
fn a_write_acknowledged_before_the_ejection_is_durable_is_noticed() {
    noticed(InjectedBug::AcknowledgeBeforeEjection, Kind::Members, 5);
}

/// Breaks ARRAYIO6 and ARRAYOPEN2.
#[test]
fn a_write_without_its_content_in_the_log_is_noticed() {
    noticed(InjectedBug::SkipContent, Kind::Members, 2);
}

/// Breaks PAGES2.
#[test]
fn a_stale_log_disk_that_is_believed_is_noticed() {
    noticed(InjectedBug::BelieveStaleLog, Kind::Crashes, 5);
}

#[test]
fn a_lost_log_that_counts_as_empty_is_noticed() {
    noticed(InjectedBug::ForgetLostLog, Kind::Crashes, 5); // LOGDISK3
}

#[test]
fn a_region_made_equal_without_its_checksums_is_noticed() {
    noticed(InjectedBug::ResyncWithoutChecksums, Kind::Crashes, 5);
}
