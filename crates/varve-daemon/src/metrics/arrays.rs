//! Arrays of volumes and pools, and their members.

use super::text::{Metric, Rows, labels};
use varve_api::{Array, ArrayMember, MemberState};
use varve_control::Figures;

/// All arrays, of the volumes that are shown and of pools.
pub(super) fn all(figures: &Figures) -> Vec<Metric> {
    let volumes = figures.volumes.iter().filter_map(|volume| Some((&*volume.name, volume.array.as_ref()?)));
    let pools = figures.pools.iter().filter_map(|pool| Some((&*pool.name, pool.array.as_ref()?)));
    let arrays: Vec<(&str, &Array)> = volumes.chain(pools).collect();
    let label = |name| labels(&[("volume", name)]);
    let rows: Rows<&Array> = arrays.iter().map(|(name, array)| (label(name), *array)).collect();
    let mut metrics = vec![
        rows.gauge("varve_array_members", "Members of the array.", |array| array.members.len() as u64),
        rows.gauge("varve_array_members_in_sync", "Members that are read and written.", |array| {
            let in_sync = |member: &&ArrayMember| member.state == MemberState::InSync;
            array.members.iter().filter(in_sync).count() as u64
        }),
        rows.gauge(
            "varve_array_dirty_bytes",
            "Bytes in which members may differ if the power fails now.",
            |array| array.dirty,
        ),
        rows.gauge(
            "varve_array_unsynced_bytes",
            "Bytes in which members may differ, and that are being made equal.",
            |array| array.unsynced,
        ),
        rows.gauge("varve_array_lost_bytes", "Bytes that cannot be read.", |array| array.lost),
        rows.gauge(
            "varve_array_resync_bytes_per_second",
            "How fast members are made equal and caught up now.",
            |array| array.rate.unwrap_or(0),
        ),
        rows.counter(
            "varve_array_mismatches_total",
            "Reads and scrubbed blocks in which members did not fit each other.",
            |array| array.mismatches,
        ),
    ];
    metrics.extend(members(&arrays));
    metrics
}

fn members(arrays: &[(&str, &Array)]) -> Vec<Metric> {
    let each = arrays.iter().flat_map(|(name, array)| array.members.iter().map(move |member| (name, member)));
    let label = |name: &str, member: &ArrayMember| {
        let disks = member.disks.join(",");
        labels(&[("volume", name), ("member", &member.id), ("disks", &disks)])
    };
    let rows: Rows<&ArrayMember> = each.map(|(name, member)| (label(name, member), member)).collect();
    vec![
        rows.gauge("varve_array_member_in_sync", "Whether the member is read and written.", |member| {
            u64::from(member.state == MemberState::InSync)
        }),
        rows.gauge("varve_array_member_behind_bytes", "Bytes that it lacks.", |member| member.behind),
        rows.counter("varve_array_member_errors_total", "Requests that it failed.", |member| member.errors),
        rows.counter(
            "varve_array_member_healed_total",
            "Blocks that it could not read, or held wrong, and that were written again.",
            |member| member.healed,
        ),
        rows.counter(
            "varve_array_member_corrupt_total",
            "Blocks of which it held something else than what was written, by their checksums.",
            |member| member.wrong,
        ),
    ]
}
