//! What the daemon does for each call: what the control is asked.

use super::interface::Interface;
use std::time::Duration;
use varve_api::calls::*;
use varve_api::{Between, ByteRange, Code, Failure, InGroup, OfVolume, Timeout};
use varve_control::{Schedules, Trash};

/// The longest that one request waits.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// All calls.
pub(super) fn serve(interface: Interface) -> Interface {
    [disks, groups, volumes, pools, arrays, snapshots, schedules, trash, exports, jobs, program]
        .into_iter()
        .fold(interface, |interface, part| part(interface))
}

fn disks(interface: Interface) -> Interface {
    interface
        .on(async |control, ListDisks()| Ok(control.list_disks()))
        .on(async |control, CreateDisks(request)| control.create_disks(request).await)
        .on(async |control, ScanDisks(request)| control.scan_disks(request).await)
        .on(async |control, RemoveDisk(request)| control.remove_disk(request).await)
        .on(async |control, ForgetDisk(request)| control.forget_disk(request).await)
        .on(async |control, ChangeDisk(request)| control.change_disk(request).await)
        .on(async |control, ResizeDisk(request)| control.resize_disk(request).await)
        .on(async |control, ReplaceDisk(request)| control.replace_disk(request).await)
        .on(async |control, MoveDisk(request)| control.move_disk(request).await)
}

fn groups(interface: Interface) -> Interface {
    interface
        .on(async |control, ListGroups()| control.list_groups_with_health().await)
        .on(async |control, CreateGroup(request)| control.create_group(request).await)
        .on(async |control, ShowGroup(group)| control.show_group(&group).await)
        .on(async |control, RemoveGroup(group, request)| control.remove_group(&group, request).await)
        .on(async |control, ExtendGroup(group, request)| control.extend_group(&group, request).await)
        .on(async |control, ReduceGroup(group, request)| control.reduce_group(&group, request).await)
        .on(async |control, RenameGroup(group, request)| control.rename_group(&group, request).await)
        .on(async |control, ChangeGroup(group, request)| control.change_group(&group, request).await)
        .on(async |control, BackupGroup(group)| control.backup_group(&group))
        .on(async |control, RestoreGroup(group, request)| control.restore_group(&group, request).await)
        .on(async |control, UndoGroup(group, request)| control.undo_group(&group, request).await)
        .on(async |control, GroupHistory(group)| control.group_history(&group).await)
        .on(async |control, ActivateGroup(group, request)| {
            control.activate_whole_group(&group, request).await
        })
        .on(async |control, DeactivateGroup(group, request)| {
            control.deactivate_whole_group(&group, request).await
        })
}

fn volumes(interface: Interface) -> Interface {
    interface
        .on(async |control, ListVolumes(InGroup { group })| control.list_volumes(group.as_deref()).await)
        .on(async |control, CreateVolume(request)| control.create_volume(request).await)
        .on(async |control, ShowVolume(volume)| control.show_volume(&volume).await)
        .on(async |control, MapVolume(volume, ByteRange { offset, length })| {
            control.map_volume(&volume, offset.as_deref(), length.as_deref()).await
        })
        .on(async |control, RemoveVolume(volume, request)| control.remove_volume(&volume, request).await)
        .on(async |control, ExtendVolume(volume, request)| control.extend_volume(&volume, request).await)
        .on(async |control, ReduceVolume(volume, request)| control.reduce_volume(&volume, request).await)
        .on(async |control, RenameVolume(volume, request)| control.rename_volume(&volume, request).await)
        .on(async |control, ChangeVolume(volume, request)| control.change_volume(&volume, request).await)
        .on(async |control, CommitVolume(volume, request)| control.commit_volume(&volume, request).await)
        .on(async |control, FlattenVolume(volume, request)| control.flatten_volume(&volume, request).await)
        .on(async |control, ConvertVolume(volume, request)| control.convert_volume(&volume, request).await)
        .on(async |control, SplitVolume(volume, request)| control.split_volume(&volume, request).await)
        .on(async |control, ActivateVolume(volume, request)| control.activate_volume(&volume, request).await)
        .on(async |control, DeactivateVolume(volume, request)| {
            control.deactivate_volume(&volume, request).await
        })
}

fn pools(interface: Interface) -> Interface {
    interface
        .on(async |control, ListPools(InGroup { group })| control.list_pools(group.as_deref()).await)
        .on(async |control, CreatePool(request)| control.create_pool(request).await)
        .on(async |control, ShowPool(pool)| control.show_pool(&pool).await)
        .on(async |control, RemovePool(pool, request)| control.remove_pool(&pool, request).await)
        .on(async |control, ExtendPool(pool, request)| control.extend_pool(&pool, request).await)
        .on(async |control, ChangePool(pool, request)| control.change_pool(&pool, request).await)
        .on(async |control, RenamePool(pool, request)| control.rename_pool(&pool, request).await)
        .on(async |control, CheckPool(pool)| control.check_pool(&pool).await)
        .on(async |control, ConvertPool(pool, request)| control.convert_pool(&pool, request).await)
        .on(async |control, ActivatePool(pool, request)| control.activate_pool(&pool, request).await)
        .on(async |control, DeactivatePool(pool, request)| control.deactivate_pool(&pool, request).await)
}

fn arrays(interface: Interface) -> Interface {
    interface
        .on(async |control, ShowArrays(array)| control.show_arrays(&array).await)
        .on(async |control, ChangeArrays(array, request)| control.change_arrays(&array, request).await)
        .on(async |control, FailMembers(array, request)| control.fail_members(&array, request).await)
        .on(async |control, ReplaceMembers(array, request)| control.replace_members(&array, request).await)
        .on(async |control, RebuildArray(array, request)| control.rebuild_array(&array, request).await)
        .on(async |control, ScrubArray(array, request)| control.scrub_array(&array, request).await)
}

fn snapshots(interface: Interface) -> Interface {
    interface
        .on(async |control, ListSnapshots(OfVolume { volume })| {
            control.list_snapshots(volume.as_deref()).await
        })
        .on(async |control, CreateSnapshots(request)| control.create_snapshots(request).await)
        .on(async |control, DiffSnapshots(Between { from, to })| {
            control.diff_snapshots(&from, to.as_deref()).await
        })
        .on(async |control, RemoveSnapshots(request)| control.remove_snapshots(request).await)
        .on(async |control, RollbackSnapshot(request)| control.rollback_snapshot(request).await)
        .on(async |control, ChangeSnapshots(request)| control.change_snapshots(request).await)
        .on(async |control, RenameSnapshot(request)| control.rename_snapshot(request).await)
        .on(async |control, HoldSnapshots(request)| control.hold_snapshots(request, true).await)
        .on(async |control, ReleaseSnapshots(request)| control.hold_snapshots(request, false).await)
}

fn schedules(interface: Interface) -> Interface {
    interface
        .on(async |control, ListSchedules(InGroup { group })| Schedules::of(&control).list(group.as_deref()))
        .on(async |control, CreateSchedule(request)| Schedules::of(&control).create(request).await)
        .on(async |control, ShowSchedule(schedule)| Schedules::of(&control).show(&schedule).await)
        .on(async |control, ChangeSchedule(schedule, request)| {
            Schedules::of(&control).change(&schedule, request).await
        })
        .on(async |control, RemoveSchedule(schedule, request)| {
            Schedules::of(&control).remove(&schedule, request).await
        })
        .on(async |control, RunSchedule(schedule, request)| {
            Schedules::of(&control).run(&schedule, request).await
        })
}

fn trash(interface: Interface) -> Interface {
    interface
        .on(async |control, ListTrash(InGroup { group })| Trash::of(&control).list(group.as_deref()))
        .on(async |control, RestoreTrash(trash, request)| Trash::of(&control).restore(&trash, request).await)
        .on(async |control, EmptyTrash(trash, request)| Trash::of(&control).empty(&trash, request).await)
}

fn exports(interface: Interface) -> Interface {
    interface
        .on(async |control, ListExports()| control.list_exports().await)
        .on(async |control, CreateExport(request)| control.create_export(request).await)
        .on(async |control, ChangeExport(export, request)| control.change_export(&export, request).await)
        .on(async |control, RemoveExport(export, request)| control.remove_export(&export, request).await)
}

fn jobs(interface: Interface) -> Interface {
    interface
        .on(async |control, ListJobs()| Ok(control.jobs().all()))
        .on(async |control, ShowJob(id)| control.jobs().show(&id))
        .on(async |control, CancelJob(id, request)| control.jobs().cancel(&id, &request))
        .on_http(async |handle, WaitJob(id, Timeout { timeout_ms })| {
            let wait = timeout_ms.map_or(WAIT_MAX, Duration::from_millis).min(WAIT_MAX);
            let name = id.clone();
            let ended = handle.call(async move |control| control.jobs().ended(&name)).await?;
            let _ = tokio::time::timeout(wait, ended).await;
            handle.call(async move |control| control.jobs().show(&id)).await
        })
}

fn program(interface: Interface) -> Interface {
    interface.on(async |control, DaemonStatus()| control.status_with_problems().await).on_http(
        async |_, ExplainCode(code)| {
            let missing = || Failure::new(Code::CodeNotFound, format!("there is no error code {code:?}"));
            Ok(Code::parse(&code).ok_or_else(missing)?.explain())
        },
    )
}
