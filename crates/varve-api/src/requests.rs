//! What can be asked: the bodies of requests that change something.
//!
//! With `dry_run` the answer is a [`crate::Plan`]. Names and sizes are texts as on the command line (`VG/LV@SNAP`, `10G`, `50%FREE`).

use crate::metadata::MetadataWords;
use crate::words::{Cache, Discards, Door, Layout, OverCommit, ReadPolicy, SnapshotMode, WhenFull};
use serde::{Deserialize, Serialize};

macro_rules! requests {
    ($($(#[$meta:meta])* struct $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
            #[serde(deny_unknown_fields, default)]
            #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
            pub struct $name {
                $($(#[$field_meta])* pub $field: $type,)*
                /// Only tell what would be done.
                pub dry_run: bool,
            }

            impl DryRun for $name {
                fn is_dry_run(&self) -> bool {
                    self.dry_run
                }

                fn set_dry_run(&mut self) {
                    self.dry_run = true;
                }
            }
        )*
    };
}

pub(crate) use requests;

/// A request of which it can be asked what it would do.
pub trait DryRun {
    /// Whether it is only asked that.
    fn is_dry_run(&self) -> bool;

    /// Asks only that.
    fn set_dry_run(&mut self);
}

/// What a command says of what is done when snapshot stores, or a pool, fill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyWords {
    /// What becomes of writes for which there is no room; usually `pause`.
    pub when_full: Option<WhenFull>,
    /// How long they wait, such as `5m`; usually a minute.
    pub pause_timeout: Option<String>,
    /// When the stores, or the pool, grow and by how much: `80%:20%`, which is usual, or `off`.
    pub auto_extend: Option<String>,
    /// What becomes of discards, in a pool; usually `keep`.
    pub discards: Option<Discards>,
    /// Whether a pool may promise its volumes more than it has; usually `allow`.
    pub over_commit: Option<OverCommit>,
}

/// What a command says of the arrays of a volume or pool, those of its snapshot stores included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ArrayPolicyWords {
    /// How long a request on a member may take before the array goes on without it, such as `10s`; usually 30 seconds.
    pub slow_after: Option<String>,
    /// Bytes in which members are made equal in a second, at least while clients are served and at most always: `20M..200M`, or
    /// `20M`; usually 8 MiB and no bound.
    pub resync_rate: Option<String>,
    /// How long a region is idle before it is no longer dirty, such as `5s`, or `0`; usually a second.
    pub release_after: Option<String>,
}

requests! {
    /// Labels disks.
    struct PhysicalVolumeCreate {
        /// Absolute paths.
        paths: Vec<String>,
        /// Makes new sparse files of this size at the paths.
        size: Option<String>,
        /// How the disks are reached.
        cache: Option<Cache>,
        /// Whether a filesystem or another signature on a disk may be destroyed.
        overwrite: bool,
    }

    /// Takes labelled disks into use.
    struct PhysicalVolumeScan {
        /// Absolute paths; none: all that are remembered.
        paths: Vec<String>,
        /// How the disks are reached.
        cache: Option<Cache>,
        /// Whether the disk images that the texts of groups name may be opened.
        trust_images: bool,
    }

    /// Wipes the label of a disk that no group uses.
    struct PhysicalVolumeRemove {
        /// Path or identity.
        path: String,
    }

    /// Changes what a disk is for.
    struct PhysicalVolumeChange {
        /// Path or identity of the disk.
        disk: String,
        /// Whether it is kept for members of arrays whose disks fail; as it is if not given.
        spare: Option<bool>,
    }

    /// Uses more or less of a disk.
    struct PhysicalVolumeResize {
        /// Path or identity of the disk.
        disk: String,
        /// How much of it is used from now on; all that there is now if not given.
        size: Option<String>,
    }

    /// Puts members of arrays that lie on a disk on others of its group.
    struct PhysicalVolumeReplace {
        /// Path or identity of the disk, which may be missing.
        from: String,
        /// Path, identity or name of the disk that takes its place; any that has room if not given.
        to: Option<String>,
    }

    /// Changes what the arrays of a volume or pool declare; what is not given stays.
    struct ArrayChange {
        /// What they declare.
        policy: ArrayPolicyWords,
        /// What has the log of the volume's or pool's own array from then on: a disk, as its path, identity or name in the group, or
        /// `members`. Nothing else is changed by such a request.
        log: Option<String>,
    }

    /// Takes the members of a volume's arrays on a disk out of use.
    struct ArrayFail {
        /// Path, identity or name of the disk.
        disk: String,
    }

    /// Puts the members of a volume's arrays that lie on a disk on others.
    struct ArrayReplace {
        /// Path, identity or name of the disk, which may be missing.
        disk: String,
        /// The disk that takes its place; any that has room if not given.
        to: Option<String>,
    }

    /// Moves what is on a disk to others.
    struct PhysicalVolumeMove {
        /// Path or identity.
        from: String,
        /// The disks that take it, each as its path, identity or name in the group; any others if none is named.
        to: Vec<String>,
        /// Bytes that are copied in a second at most.
        rate: Option<String>,
    }

    /// Makes a group.
    struct GroupCreate {
        /// Its name.
        name: String,
        /// Its disks; those without a label get one.
        paths: Vec<String>,
        /// Bytes in an extent; 4 MiB if not given.
        extent_size: Option<String>,
        /// How disks without a label yet are reached.
        cache: Option<Cache>,
        /// Whether a filesystem or another signature on a disk may be destroyed.
        overwrite: bool,
        /// How the metadata of its snapshot stores and pools is kept; what is not given is as usual.
        metadata: MetadataWords,
    }

    /// Changes what a group declares; what is not given stays.
    struct GroupChange {
        /// How the metadata of its snapshot stores and pools is kept.
        metadata: MetadataWords,
        /// How long volumes and pools that are removed stay in the trash: `24h`, `7d`; `0` if they go at once.
        trash: Option<String>,
    }

    /// Adds disks to a group.
    struct GroupExtend {
        /// The disks; those without a label get one.
        paths: Vec<String>,
        /// How disks without a label yet are reached.
        cache: Option<Cache>,
        /// Whether a filesystem or another signature on a disk may be destroyed.
        overwrite: bool,
    }

    /// Takes an unused disk, or all missing ones, out of a group.
    struct GroupReduce {
        /// Path or identity; not given for the missing ones.
        path: Option<String>,
        /// Gives up the disks that are missing.
        missing: bool,
        /// And the volumes that lie on them.
        with_volumes: bool,
    }

    /// Gives a group, a volume or a pool another name.
    struct Rename {
        /// The new name.
        to: String,
        /// Whether it is done although clients are connected.
        force: bool,
    }

    /// Takes a volume, a pool or all of a group into use again.
    struct Activate {
        /// Take mirrors into use although members are missing that may have newer data: a person says that they have not.
        accept_missing: bool,
    }

    /// Takes a volume, a pool or all of a group out of use until it is activated.
    struct Deactivate {}

    /// Removes a group or a schedule.
    struct Remove {}

    /// Makes a volume.
    struct VolumeCreate {
        /// `VG/LV`.
        name: String,
        /// Its size; rounded up to whole extents, of a thin one to 4 KiB.
        size: String,
        /// The pool that a thin one takes its space from: `POOL` or `VG/POOL`.
        pool: Option<String>,
        /// What a thin one shows where nothing was written: `VG/LV@SNAP`, a read-only snapshot of the group, or `VG/LV`, a
        /// read-only volume. Its size is the volume's if none is given.
        origin: Option<String>,
        /// The absolute path of a file or disk of the host in which it is; or that a thin one shows instead, and that must not change.
        image: Option<String>,
        /// The format of the image: `raw` or `qcow2`. If it is not given, what begins as an image of another format is refused.
        format: Option<String>,
        /// The internal snapshot of a qcow2 image, by id or name, that a thin one shows instead of the image.
        image_snapshot: Option<String>,
        /// How it is laid out; linear if not given.
        layout: Option<Layout>,
        /// The program that says where its bytes lie, in layout `mapper`: `unix:PATH`, the socket at which it is asked.
        mapper: Option<String>,
        /// How long a request waits for an answer of that program: `30s` if not given.
        mapper_wait: Option<String>,
        /// Volumes of the group, `VG/LV`, that this program may name: its devices 0, 1, ... Nothing else uses them.
        devices: Vec<String>,
        /// Whether it is served at once even where its disks cannot be cleared cheaply; it may show then what others wrote.
        /// An array is cleared all the same.
        no_zero: bool,
        /// Disks side by side, for a striped one.
        stripes: Option<u32>,
        /// Bytes on one disk before the next one's turn; 64 KiB if not given.
        stripe_size: Option<String>,
        /// Copies of a mirror: 2 to 8.
        copies: Option<u32>,
        /// Order of ddraid: 1 to 3 for 2, 4 or 8 disks of data, and one of parity.
        order: Option<u32>,
        /// Bytes in a block of ddraid, 4 KiB to 64 KiB; if not given, as many as fit the sectors of its disks.
        array_block_size: Option<String>,
        /// From which members of an array data is read; a mirror's in turn and ddraid's all, to compare them, if not given.
        read_policy: Option<ReadPolicy>,
        /// Whether what the members of an array return is checked by checksums.
        checksums: bool,
        /// The disk that has the log of an array, as its path, identity or name in the group; the members have it if not given.
        log: Option<String>,
        /// The disks on which it is, each as its path, identity or name in the group; any if none is named.
        on: Vec<String>,
        /// What is done when its snapshot stores fill; what is not given is as usual.
        snapshot_policy: PolicyWords,
        /// What its arrays declare, if it is one; what is not given is as usual.
        array_policy: ArrayPolicyWords,
    }

    /// Changes what a volume declares; what is not given stays.
    struct VolumeChange {
        /// What is done when its snapshot stores fill.
        snapshot_policy: PolicyWords,
        /// Where its image is now, as an absolute path.
        image: Option<String>,
        /// Whether that is believed to be its image though nothing shows it.
        force: bool,
    }

    /// Grows or shrinks a volume.
    struct Resize {
        /// The new size, or the difference with a sign.
        size: String,
        /// The disks that what it gains is on, each as its path, identity or name in the group; any if none is named.
        on: Vec<String>,
    }

    /// Converts a volume or pool to another layout.
    struct Convert {
        /// The new layout.
        layout: Option<Layout>,
        /// Disks side by side, of stripes.
        stripes: Option<u32>,
        /// Bytes on one disk before the next one's turn; 64 KiB if not given.
        stripe_size: Option<String>,
        /// Copies of a mirror: 2 to 8.
        copies: Option<u32>,
        /// Order of ddraid: 1 to 3 for 2, 4 or 8 disks of data, and one of parity.
        order: Option<u32>,
        /// Bytes in a block of ddraid, 4 KiB to 64 KiB; if not given, as many as fit the sectors of its disks.
        array_block_size: Option<String>,
        /// From which members of an array data is read; a mirror's in turn and ddraid's all, to compare them, if not given.
        read_policy: Option<ReadPolicy>,
        /// Whether what the members of an array return is checked by checksums.
        checksums: bool,
        /// The disk that has the log of an array, as its path, identity or name in the group; the members have it if not given.
        log: Option<String>,
        /// The disks on which it is then, each as its path, identity or name in the group; any if none is named.
        on: Vec<String>,
        /// Bytes that are copied in a second at most.
        rate: Option<String>,
    }

    /// Lets a copy of a mirror go as a linear volume.
    struct Split {
        /// What the new volume is called: LV, or VG/LV of the same group.
        to: String,
    }

    /// Puts what the image of a volume holds into the image below it.
    struct Commit {}

    /// Asks a job to end.
    struct JobCancel {}

    /// Makes a thin volume need its origin no more.
    struct Flatten {}

    /// Compares all members of an array, and makes them equal.
    struct ArrayScrub {
        /// At most so many bytes of the array a second, such as `50M`; as fast as the disks if not given.
        rate: Option<String>,
        /// Whether what differs is only counted, and nothing is written.
        check_only: bool,
    }

    /// Fills the member on a disk anew, or accepts that regions of an array are lost; one of both.
    struct ArrayRebuild {
        /// Path, identity or name of the disk whose members are filled anew from the others.
        disk: Option<String>,
        /// Regions that cannot be known without a member that is missing, and are accepted as the others have them: `3`, `5-9`, `all`.
        accept_stale: Vec<String>,
    }

    /// Makes a thin pool.
    struct PoolCreate {
        /// `VG/POOL`.
        name: String,
        /// Its size; rounded up to whole extents.
        size: String,
        /// Bytes in a block; 64 KiB if not given.
        block_size: Option<String>,
        /// How it is laid out; linear if not given.
        layout: Option<Layout>,
        /// Disks side by side, for a striped one.
        stripes: Option<u32>,
        /// Bytes on one disk before the next one's turn; 64 KiB if not given.
        stripe_size: Option<String>,
        /// Copies of a mirror: 2 to 8.
        copies: Option<u32>,
        /// Order of ddraid: 1 to 3 for 2, 4 or 8 disks of data, and one of parity.
        order: Option<u32>,
        /// Bytes in a block of ddraid, 4 KiB to 64 KiB; if not given, as many as fit the sectors of its disks.
        array_block_size: Option<String>,
        /// From which members of an array data is read; a mirror's in turn and ddraid's all, to compare them, if not given.
        read_policy: Option<ReadPolicy>,
        /// Whether what the members of an array return is checked by checksums.
        checksums: bool,
        /// The disk that has the log of an array, as its path, identity or name in the group; the members have it if not given.
        log: Option<String>,
        /// The disks on which it is, each as its path, identity or name in the group; any if none is named.
        on: Vec<String>,
        /// What is done when it fills; what is not given is as usual.
        policy: PolicyWords,
        /// What it declares as an array, if it is one; what is not given is as usual.
        array_policy: ArrayPolicyWords,
    }

    /// Changes what a pool declares; what is not given stays.
    struct PoolChange {
        /// What is done when it fills.
        policy: PolicyWords,
    }

    /// Makes snapshots, all of one instant.
    struct SnapshotCreate {
        /// `VG/LV@SNAP` each.
        names: Vec<String>,
        /// The snapshot of which they are, `VG/LV@SNAP`, if they are not of the volume itself; only in a pool.
        of: Option<String>,
        /// How they keep old content; dependent if not given. In a pool every snapshot is thin.
        mode: Option<SnapshotMode>,
        /// Bytes in a chunk, chosen with the first snapshot of a volume; 64 KiB if not given.
        chunk_size: Option<String>,
        /// Whether they may not be written.
        read_only: bool,
    }

    /// Removes snapshots.
    struct SnapshotRemove {
        /// `VG/LV@SNAP` or `VG/LV@FIRST..@LAST` each.
        names: Vec<String>,
    }

    /// Protects snapshots against removal, or ends that.
    struct SnapshotHold {
        /// `VG/LV@SNAP` each.
        names: Vec<String>,
    }

    /// Gives a snapshot another name.
    struct SnapshotRename {
        /// `VG/LV@SNAP`.
        name: String,
        /// The new name, as `SNAP` or as `VG/LV@SNAP`.
        to: String,
    }

    /// Lets snapshots be written, or no more.
    struct SnapshotChange {
        /// `VG/LV@SNAP` each.
        names: Vec<String>,
        /// Whether they may not be written from now on.
        read_only: bool,
    }

    /// Makes a volume's content that of a snapshot.
    struct SnapshotRollback {
        /// `VG/LV@SNAP`.
        name: String,
        /// Whether what the volume shows before is given up, and not kept as a snapshot.
        no_snapshot: bool,
        /// Whether it is done although clients are connected, whose content changes under them.
        force: bool,
    }

    /// Opens a door onto a volume or snapshot.
    struct ExportCreate {
        /// `VG/LV` or `VG/LV@SNAP`.
        volume: String,
        /// The protocol.
        door: Option<Door>,
        /// `unix:PATH` or `tcp:HOST:PORT` for NBD; else a path.
        address: String,
        /// Whether clients may not write.
        read_only: bool,
        /// Whether the address may be one that other hosts reach, in the clear.
        insecure: bool,
        /// Most requests in a second, all clients together.
        iops: Option<String>,
        /// Most bytes in a second, as `30M`.
        bandwidth: Option<String>,
        /// Permissions of its socket or file, as `0660`.
        mode: Option<String>,
        /// Group of its socket or file: a name or a number.
        group: Option<String>,
        /// The folder of TLS credentials, if clients have to begin TLS.
        tls: Option<String>,
        /// An older snapshot of the volume: clients may ask what was changed since.
        since: Option<String>,
    }

    /// Gives an export other limits or permissions, while it is in use.
    struct ExportChange {
        /// Most requests in a second, all clients together; `none` for no limit. As it was if not given.
        iops: Option<String>,
        /// Most bytes in a second, as `30M`; `none` for no limit. As it was if not given.
        bandwidth: Option<String>,
        /// Permissions of its socket or file, as `0660`. As they were if not given.
        mode: Option<String>,
        /// Group of its socket or file: a name or a number. As it was if not given.
        group: Option<String>,
        /// The folder of its TLS credentials, which are read again. As it was if not given.
        tls: Option<String>,
    }

    /// Closes a door.
    struct ExportRemove {
        /// Whether it is done although clients are connected, whose requests fail from then on.
        force: bool,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_field_is_refused_rather_than_ignored() {
        let wrong = serde_json::from_str::<SnapshotRemove>(r#"{"names":["a/b@c"],"dryrun":true}"#);
        assert!(wrong.is_err(), "a dry run that is not one would destroy something");
        let right = serde_json::from_str::<SnapshotRemove>(r#"{"names":["a/b@c"],"dry_run":true}"#);
        assert!(right.is_ok_and(|request| request.dry_run));
    }
}
