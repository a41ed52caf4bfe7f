//! The trash of a group: what is put there, brought back, and given up for what needs its space.

use super::*;

fn put(name: &str) -> Change {
    Change::Trash(TrashStep::Put { name: name.to_owned() })
}

fn id_of(group: &Group, name: &str) -> Uuid {
    let found = group.trash().iter().find(|entry| entry.volume.name == name);
    found.unwrap_or_else(|| panic!("{name} is in the trash")).volume.id
}

fn restore(group: &Group, name: &str, to: &str) -> Change {
    Change::Trash(TrashStep::Restore { id: id_of(group, name), name: to.to_owned() })
}

fn in_trash(group: &Group) -> Vec<&str> {
    group.trash().iter().map(|entry| entry.volume.name.as_str()).collect()
}

/// A volume of one extent with this name.
fn other(name: &str, number: u128) -> Change {
    let mut change = linear(name, 1);
    if let Change::CreateVolume { id, .. } = &mut change {
        *id = Uuid::from_u128(number);
    }
    change
}

/// A snapshot store of a volume, of so many extents.
fn store_of(volume: &str, number: u128, extents: u64) -> Change {
    let (volume, id, kind) = (volume.to_owned(), store_id(volume, number), StoreKind::Dependent);
    Change::CreateStore { volume, id, size: extents * MIB4, chunk_size: 65_536, kind }
}

/// A group of 20 extents with `a` of 6 and `b` of 8 in its trash, `a` the older one, and `c` of 2.
fn with_trash() -> Group {
    let mut group = group(&[20]);
    for (name, extents) in [("a", 6), ("b", 8), ("c", 2)] {
        group = made(&group, linear(name, extents));
    }
    let at = |seconds| Stamp { date: UnixTime(seconds), change: "lv remove".into() };
    group = plan(&group, put("a"), &at(100)).expect("possible").after;
    plan(&group, put("b"), &at(200)).expect("possible").after
}

#[test]
fn what_is_removed_comes_back_with_its_extents_and_snapshots() {
    let group = made(&group(&[20]), linear("vm1", 6));
    let before = made(&group, store_of("vm1", 7, 2));
    let plan = planned(&before, put("vm1")).expect("possible");
    assert_eq!(plan.steps, ["move data/vm1 (24.0 MiB) to the trash, where it stays for 1d"]);
    assert_eq!((plan.bytes_taken, plan.bytes_freed), (0, 0));
    let gone = plan.after;
    assert_eq!((gone.lv("vm1"), in_trash(&gone)), (None, vec!["vm1"]));
    assert_eq!(gone.trash()[0].until.0 - gone.trash()[0].removed.0, 86_400);
    assert_eq!(gone.usage().free, before.usage().free);
    assert_eq!(gone.usage().trash + gone.usage().free, gone.usage().size);
    assert_eq!(Group::from_text(&gone.text()), Ok(gone.clone()));
    let back = made(&gone, restore(&gone, "vm1", "vm1"));
    assert_eq!(back.logical_volumes(), before.logical_volumes(), "PLANTRASH1");
    assert!(back.trash().is_empty());
}

#[test]
fn a_name_of_the_trash_is_free_and_a_taken_one_needs_another() {
    let group = with_trash();
    let taken = made(&group, other("a", 0x77));
    assert_eq!(refusal(&taken, restore(&taken, "a", "a")).0, ErrorKind::Exists);
    let back = made(&taken, restore(&taken, "a", "old"));
    assert_eq!(back.lv("old").map(|lv| lv.extents), Some(6));
    assert_eq!(back.lv("a").map(|lv| lv.extents), Some(1));
    let unknown = Change::Trash(TrashStep::Restore { id: Uuid::from_u128(9), name: "x".into() });
    assert_eq!(refusal(&back, unknown).0, ErrorKind::NotFound);
}

#[test]
fn a_change_that_lacks_space_empties_the_oldest_and_no_more_than_it_needs() {
    let group = with_trash();
    assert_eq!(group.usage().free, 4 * MIB4);
    let fits = planned(&group, linear("new", 4)).expect("possible");
    assert_eq!((fits.emptied.len(), in_trash(&fits.after)), (0, vec!["a", "b"]));
    let plan = planned(&group, linear("new", 5)).expect("possible");
    assert_eq!(plan.emptied, [id_of(&group, "a")], "PLANTRASH2");
    assert_eq!(in_trash(&plan.after), ["b"]);
    assert_eq!(plan.steps[0], "empty the trash of data/a (24.0 MiB)");
    assert_eq!((plan.bytes_taken, plan.bytes_freed), (5 * MIB4, 6 * MIB4));
    let all = planned(&group, linear("new", 18)).expect("possible");
    assert!(all.after.trash().is_empty() && all.after.usage().free == 0);
    let (kind, message) = refusal(&group, linear("new", 19));
    assert_eq!(kind, ErrorKind::NoSpace);
    assert!(message.contains("72.0 MiB"), "what is in the trash counts as free: {message}");
}

#[test]
fn a_share_of_what_is_free_counts_the_trash() {
    let group = with_trash();
    let whole = |name: &str, percent| {
        let Change::CreateVolume { id, role, layout, policy, disks, .. } = linear(name, 1) else { panic!() };
        let size = SizeArgument { relative: true, amount: Amount::PercentFree(percent) };
        Change::CreateVolume { name: name.into(), id, size, role, layout, policy, disks }
    };
    let all = planned(&group, whole("new", 100)).expect("possible");
    assert_eq!(all.after.lv("new").map(|lv| lv.extents), Some(18));
    let half = planned(&group, whole("new", 50)).expect("possible");
    assert_eq!((half.after.lv("new").map(|lv| lv.extents), in_trash(&half.after)), (Some(9), vec!["b"]));
}

#[test]
fn a_store_empties_the_trash_before_it_grows_into_the_last_extents() {
    let group = made(&with_trash(), store_of("c", 1, 1));
    let grow = |by: u64| Change::ExtendStore { volume: "c".into(), store: store_id("c", 1), by: by * MIB4 };
    let left = planned(&group, grow(2)).expect("possible");
    assert_eq!(in_trash(&left.after), ["a", "b"]);
    let last = planned(&group, grow(3)).expect("possible");
    assert_eq!((in_trash(&last.after), last.after.usage().free), (vec!["b"], 6 * MIB4));
}

#[test]
fn what_keeps_a_disk_in_a_group_is_given_up_with_it() {
    let on = |name: &str, disk: u32| {
        let mut change = linear(name, 3);
        if let Change::CreateVolume { disks, .. } = &mut change {
            disks.on = vec![PvName(disk)];
        }
        change
    };
    let mut group = group(&[10, 10]);
    for (name, disk) in [("a", 0), ("b", 1)] {
        group = made(&group, on(name, disk));
        group = made(&group, put(name));
    }
    let reduced = planned(&group, Change::RemoveDisk { id: disk(1, 0).id }).expect("possible");
    assert_eq!((in_trash(&reduced.after), reduced.emptied.len()), (vec!["a"], 1), "PLANTRASH3");
    let spare = Change::SetSpare { disk: disk(0, 0).id, is_spare: true };
    assert_eq!(in_trash(&planned(&group, spare).expect("possible").after), ["b"], "PLANTRASH3");
    let missing = made(&group, Change::MarkMissing { missing: vec![disk(1, 0).id], returned: vec![] });
    let left = planned(&missing, Change::RemoveMissing { with_volumes: false }).expect("possible");
    assert_eq!(in_trash(&left.after), ["a"], "PLANTRASH3");
}

#[test]
fn a_backup_brings_back_what_is_in_the_trash_and_keeps_the_rest_of_it() {
    let backup = made(&group(&[20]), linear("a", 6));
    let now = made(&made(&made(&backup, linear("b", 4)), put("a")), put("b"));
    let back = restored(&now, &backup).after;
    assert_eq!((back.lv("a"), in_trash(&back)), (backup.lv("a"), vec!["b"]), "PLANTRASH4");
}

#[test]
fn the_time_in_the_trash_is_declared_and_its_end_is_not_moved() {
    let keep = |seconds| Change::Trash(TrashStep::Keep { seconds });
    let group = with_trash();
    let week = made(&group, keep(7 * 86_400));
    assert_eq!((week.trash_keep_s(), week.trash()), (7 * 86_400, group.trash()));
    assert_eq!(refusal(&group, keep(367 * 86_400)).0, ErrorKind::Usage);
    let gone = made(&week, put("c"));
    assert_eq!(gone.trash()[2].until.0 - gone.trash()[2].removed.0, 7 * 86_400);
    let ids = vec![id_of(&gone, "a"), id_of(&gone, "c")];
    let emptied = planned(&gone, Change::Trash(TrashStep::Empty { ids })).expect("possible");
    assert_eq!((in_trash(&emptied.after), emptied.bytes_freed), (vec!["b"], 8 * MIB4));
}

#[test]
fn a_disk_that_loses_its_end_takes_from_the_trash_what_is_there_and_no_more() {
    // `a` is on the extents 0 to 5, `b` on 6 to 13.
    let group = made(&with_trash(), Change::RemoveVolume { name: "c".into() });
    let resized = |extents: u64| {
        let disk = disk(0, extents);
        planned(&group, Change::ResizeDisk { id: disk.id, size: disk.size }).expect("nothing in use is there")
    };
    assert_eq!(in_trash(&resized(14).after), ["a", "b"], "b ends where the disk does");
    assert_eq!(in_trash(&resized(13).after), ["a"], "PLANTRASH3: an extent of b is lost");
    assert_eq!(in_trash(&resized(6).after), ["a"], "a ends where the disk does");
    assert_eq!(in_trash(&resized(5).after), [""; 0], "PLANTRASH3");
}
