//! The calls of the HTTP interface: what each is named, where it is, what is sent with it, and what is answered.
//!
//! A line of the table says: name, method, path, the request in brackets if there is one, the answer. The request of a GET is its
//! query, that of others their body. An answer `Changed<…>` is a [`Plan`](crate::Plan) if the request has `dry_run`; a [`Job`] is work
//! that goes on after the answer. Servers and clients, routes and documents are made of this table alone.

use crate::{
    Activate, ArrayChange, ArrayFail, ArrayRebuild, ArrayReplace, ArrayScrub, Backup, Between, ByteRange,
    Changed, Commit, Convert, Deactivate, Empty, Explanation, Export, ExportChange, ExportCreate,
    ExportRemove, Flatten, Group, GroupChange, GroupCreate, GroupExtend, GroupReduce, GroupRestore,
    GroupUndo, History, InGroup, Job, JobCancel, LogicalVolume, OfVolume, PhysicalVolume,
    PhysicalVolumeChange, PhysicalVolumeCreate, PhysicalVolumeMove, PhysicalVolumeRemove,
    PhysicalVolumeReplace, PhysicalVolumeResize, PhysicalVolumeScan, Pool, PoolChange, PoolCreate, Remove,
    Removed, Rename, Resize, Restored, Schedule, ScheduleChange, ScheduleCreate, ScheduleRan, ScheduleRun,
    Snapshot, SnapshotChange, SnapshotCreate, SnapshotDiff, SnapshotHold, SnapshotRemove, SnapshotRename,
    SnapshotRollback, Split, Timeout, TrashEmpty, TrashItem, TrashRestore, TrashRestored, VolumeArray,
    VolumeChange, VolumeCreate, VolumeMap, VolumeRemove,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What is done to what is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// It is shown.
    Get,
    /// It is changed, or something is made.
    Post,
    /// It is removed.
    Delete,
}

/// What is declared of a call beside its types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Its name.
    pub name: &'static str,
    /// Its method.
    pub method: Method,
    /// Its path, with at most one parameter: `/v1/groups/{group}`.
    pub path: &'static str,
    /// The part of the interface that it belongs to.
    pub tag: &'static str,
    /// What it does, as a sentence.
    pub summary: &'static str,
}

/// What the parameters of paths are.
const PARAMETERS: [(&str, &str); 9] = [
    ("array", "VG/LV or VG/POOL, escaped as one segment"),
    ("code", "V0123"),
    ("export", "ID, URI, address or volume, escaped as one segment"),
    ("group", "Name or identity"),
    ("id", "The job"),
    ("pool", "VG/POOL, escaped as one segment"),
    ("schedule", "VG/NAME, escaped as one segment"),
    ("trash", "VG/NAME or VG/ID, or VG where all of its trash will do, escaped as one segment"),
    ("volume", "VG/LV, or VG/LV@SNAP where a snapshot will do, escaped as one segment"),
];

impl Declaration {
    /// The parameter of its path, and what that is.
    pub fn parameter(&self) -> Option<(&'static str, &'static str)> {
        let (_, rest) = self.path.split_once('{')?;
        let (name, _) = rest.split_once('}')?;
        PARAMETERS.into_iter().find(|(known, _)| *known == name)
    }
}

/// A call with all that is sent: what its path names, then its request.
pub trait Call: Sized + Send + 'static {
    /// What is sent.
    type Request: Clone + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// What is answered.
    type Answer: Serialize + DeserializeOwned + Send + 'static;
    /// What is declared of it.
    const DECLARED: Declaration;

    /// The call about `subject`, if its path names one, with `request`, if it has one.
    fn new(subject: Option<String>, request: Self::Request) -> Self;

    /// What its path names.
    fn subject(&self) -> Option<&str>;

    /// What is sent with it; an empty object if nothing is.
    fn request(&self) -> &Self::Request;

    /// Path and query, as they are sent.
    fn target(&self) -> String {
        let Declaration { method, path, .. } = Self::DECLARED;
        let filled = match (Self::DECLARED.parameter(), self.subject()) {
            (Some((name, _)), Some(subject)) => path.replace(&format!("{{{name}}}"), &segment(subject)),
            _ => path.to_owned(),
        };
        if method != Method::Get {
            return filled;
        }
        let request = serde_json::to_value(self.request()).expect("the requests are plain data");
        let fields = request.as_object().into_iter().flatten();
        let words: Vec<String> =
            fields.filter_map(|(name, value)| Some(format!("{name}={}", text(value)?))).collect();
        if words.is_empty() { filled } else { format!("{filled}?{}", words.join("&")) }
    }

    /// The body, as it is sent.
    fn body(&self) -> Vec<u8> {
        match Self::DECLARED.method {
            Method::Get => Vec::new(),
            Method::Post | Method::Delete => {
                serde_json::to_vec(self.request()).expect("the requests are plain data")
            }
        }
    }

    /// The same call with another request.
    #[must_use]
    fn with(&self, change: impl FnOnce(&mut Self::Request)) -> Self {
        let mut request = self.request().clone();
        change(&mut request);
        Self::new(self.subject().map(str::to_owned), request)
    }
}

/// A field of a query; `None` if it is not given.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(segment(text)),
        other => Some(segment(&other.to_string())),
    }
}

/// `text` as one segment of a path.
fn segment(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

macro_rules! calls {
    ($($tag:literal {$(
        #[doc = $summary:literal]
        $name:ident $method:ident $path:literal $({$subject:ident} $($rest:literal)?)? $(($request:ty))? -> $answer:ty;
    )*})*) => {
        /// All of them.
        pub const CALLS: &[Declaration] = &[$($($name::DECLARED),*),*];

        $($(
            #[doc = $summary]
            #[derive(Clone, Debug, PartialEq)]
            pub struct $name($(#[doc = stringify!($subject)] pub String,)? $(pub $request)?);

            impl Call for $name {
                type Request = calls!(@request $($request)?);
                type Answer = $answer;
                const DECLARED: Declaration = Declaration {
                    name: stringify!($name),
                    method: Method::$method,
                    path: concat!($path $(, "{", stringify!($subject), "}" $(, $rest)?)?),
                    tag: $tag,
                    summary: $summary.trim_ascii_start(),
                };

                fn new(subject: Option<String>, request: Self::Request) -> Self {
                    let _ = (&subject, &request);
                    Self($({ let $subject = subject; $subject.unwrap_or_default() },)? $(<$request>::from(request))?)
                }

                fn subject(&self) -> Option<&str> {
                    calls!(@first self $($subject)?)
                }

                fn request(&self) -> &Self::Request {
                    calls!(@last self $($subject)?, $($request)?)
                }
            }
        )*)*
    };
    (@request) => { Empty };
    (@request $request:ty) => { $request };
    (@first $self:ident) => { None };
    (@first $self:ident $subject:ident) => { Some(&$self.0) };
    (@last $self:ident $($subject:ident)?,) => { &Empty {} };
    (@last $self:ident, $request:ty) => { &$self.0 };
    (@last $self:ident $subject:ident, $request:ty) => { &$self.1 };
}

calls! {
    "physical volumes" {
        /// List the disks that the daemon knows.
        ListDisks        Get    "/v1/pvs"                              -> Vec<PhysicalVolume>;
        /// Label disks.
        CreateDisks      Post   "/v1/pvs"                              (PhysicalVolumeCreate) -> Changed<Vec<PhysicalVolume>>;
        /// Take labelled disks into use.
        ScanDisks        Post   "/v1/pvs/scan"                         (PhysicalVolumeScan) -> Changed<Vec<PhysicalVolume>>;
        /// Wipe the label of a disk that no group uses.
        RemoveDisk       Post   "/v1/pvs/remove"                       (PhysicalVolumeRemove) -> Changed<Empty>;
        /// Release a disk that no group uses, and leave what is on it as it is.
        ForgetDisk       Post   "/v1/pvs/forget"                       (PhysicalVolumeRemove) -> Changed<Empty>;
        /// Change what a disk is for.
        ChangeDisk       Post   "/v1/pvs/change"                       (PhysicalVolumeChange) -> Changed<Vec<PhysicalVolume>>;
        /// Use a disk up to where it ends now, or less of it.
        ResizeDisk       Post   "/v1/pvs/resize"                       (PhysicalVolumeResize) -> Changed<Vec<PhysicalVolume>>;
        /// Put the members of arrays that lie on a disk on others, which are rebuilt while the volumes serve.
        ReplaceDisk      Post   "/v1/pvs/replace"                      (PhysicalVolumeReplace) -> Changed<Vec<VolumeArray>>;
        /// Move what is on a disk to others; the answer is a job.
        MoveDisk         Post   "/v1/pvs/move"                         (PhysicalVolumeMove) -> Changed<Job>;
    }

    "groups" {
        /// List groups.
        ListGroups       Get    "/v1/groups"                           -> Vec<Group>;
        /// Make a group of disks.
        CreateGroup      Post   "/v1/groups"                           (GroupCreate) -> Changed<Group>;
        /// Show a group and its disks.
        ShowGroup        Get    "/v1/groups/" {group}                  -> Group;
        /// Give up an empty group.
        RemoveGroup      Delete "/v1/groups/" {group}                  (Remove) -> Changed<Empty>;
        /// Add disks to a group.
        ExtendGroup      Post   "/v1/groups/" {group} "/extend"        (GroupExtend) -> Changed<Group>;
        /// Take an unused disk out of a group.
        ReduceGroup      Post   "/v1/groups/" {group} "/reduce"        (GroupReduce) -> Changed<Group>;
        /// Give a group another name.
        RenameGroup      Post   "/v1/groups/" {group} "/rename"        (Rename) -> Changed<Group>;
        /// Change how a group keeps the metadata of its snapshot stores and pools.
        ChangeGroup      Post   "/v1/groups/" {group} "/change"        (GroupChange) -> Changed<Group>;
        /// The group's description as text.
        BackupGroup      Get    "/v1/groups/" {group} "/backup"        -> Backup;
        /// Write a description back to the group's disks.
        RestoreGroup     Post   "/v1/groups/" {group} "/restore"       (GroupRestore) -> Changed<Restored>;
        /// Take back the last changes of a group's description.
        UndoGroup        Post   "/v1/groups/" {group} "/undo"          (GroupUndo) -> Changed<Restored>;
        /// The changes that the group's disks remember.
        GroupHistory     Get    "/v1/groups/" {group} "/history"       -> History;
        /// Take everything in a group into use again.
        ActivateGroup    Post   "/v1/groups/" {group} "/activate"      (Activate) -> Changed<Group>;
        /// Take everything in a group out of use until it is activated.
        DeactivateGroup  Post   "/v1/groups/" {group} "/deactivate"    (Deactivate) -> Changed<Group>;
    }

    "volumes" {
        /// List volumes.
        ListVolumes      Get    "/v1/volumes"                          (InGroup) -> Vec<LogicalVolume>;
        /// Make a volume.
        CreateVolume     Post   "/v1/volumes"                          (VolumeCreate) -> Changed<LogicalVolume>;
        /// Show a volume and where it is.
        ShowVolume       Get    "/v1/volumes/" {volume}                -> LogicalVolume;
        /// List where the bytes of a volume or snapshot lie. There may be more than one answer lists: ask again from its end on.
        MapVolume        Get    "/v1/volumes/" {volume} "/map"         (ByteRange) -> VolumeMap;
        /// Remove a volume and its content.
        RemoveVolume     Delete "/v1/volumes/" {volume}                (VolumeRemove) -> Changed<Removed>;
        /// Grow a volume while it is in use.
        ExtendVolume     Post   "/v1/volumes/" {volume} "/extend"      (Resize) -> Changed<LogicalVolume>;
        /// Shrink a volume.
        ReduceVolume     Post   "/v1/volumes/" {volume} "/reduce"      (Resize) -> Changed<LogicalVolume>;
        /// Give a volume another name in its group.
        RenameVolume     Post   "/v1/volumes/" {volume} "/rename"      (Rename) -> Changed<LogicalVolume>;
        /// Change what a volume declares for its snapshot stores.
        ChangeVolume     Post   "/v1/volumes/" {volume} "/change"      (VolumeChange) -> Changed<LogicalVolume>;
        /// Put what the image of a volume holds into the image below it, in which the volume is then; the answer is a job.
        CommitVolume     Post   "/v1/volumes/" {volume} "/commit"      (Commit) -> Changed<Job>;
        /// Copy what a thin volume or snapshot shows of its origin into its pool, so that it needs that no more; the answer is a job.
        FlattenVolume    Post   "/v1/volumes/" {volume} "/flatten"     (Flatten) -> Changed<Job>;
        /// Convert a volume to another layout while it is in use; the answer is a job.
        ConvertVolume    Post   "/v1/volumes/" {volume} "/convert"     (Convert) -> Changed<Job>;
        /// Let a copy of a mirror go as a linear volume, with the content of one instant.
        SplitVolume      Post   "/v1/volumes/" {volume} "/split"       (Split) -> Changed<LogicalVolume>;
        /// Take a volume into use again.
        ActivateVolume   Post   "/v1/volumes/" {volume} "/activate"    (Activate) -> Changed<LogicalVolume>;
        /// Take a volume out of use until it is activated.
        DeactivateVolume Post   "/v1/volumes/" {volume} "/deactivate"  (Deactivate) -> Changed<LogicalVolume>;
    }

    "pools" {
        /// List thin pools.
        ListPools        Get    "/v1/pools"                            (InGroup) -> Vec<Pool>;
        /// Make a thin pool.
        CreatePool       Post   "/v1/pools"                            (PoolCreate) -> Changed<Pool>;
        /// Show a pool and where it is.
        ShowPool         Get    "/v1/pools/" {pool}                    -> Pool;
        /// Remove a pool that holds no volume.
        RemovePool       Delete "/v1/pools/" {pool}                    (VolumeRemove) -> Changed<Removed>;
        /// Make a pool larger while it is in use.
        ExtendPool       Post   "/v1/pools/" {pool} "/extend"          (Resize) -> Changed<Pool>;
        /// Change what a pool does when it fills.
        ChangePool       Post   "/v1/pools/" {pool} "/change"          (PoolChange) -> Changed<Pool>;
        /// Give a pool another name.
        RenamePool       Post   "/v1/pools/" {pool} "/rename"          (Rename) -> Changed<Pool>;
        /// Check the last commit of a pool while it serves; the answer is a job, which fails if anything is damaged.
        CheckPool        Post   "/v1/pools/" {pool} "/check"           -> Job;
        /// Convert a pool to another layout while it is in use; the answer is a job.
        ConvertPool      Post   "/v1/pools/" {pool} "/convert"         (Convert) -> Changed<Job>;
        /// Take a pool and its volumes into use again.
        ActivatePool     Post   "/v1/pools/" {pool} "/activate"        (Activate) -> Changed<Pool>;
        /// Take a pool and its volumes out of use until it is activated.
        DeactivatePool   Post   "/v1/pools/" {pool} "/deactivate"      (Deactivate) -> Changed<Pool>;
    }

    "arrays" {
        /// Show the arrays of a volume or pool, those of its snapshot stores included.
        ShowArrays       Get    "/v1/arrays/" {array}                  -> Vec<VolumeArray>;
        /// Change what the arrays of a volume or pool declare.
        ChangeArrays     Post   "/v1/arrays/" {array} "/change"        (ArrayChange) -> Changed<Vec<VolumeArray>>;
        /// Take the members on a disk out of use.
        FailMembers      Post   "/v1/arrays/" {array} "/fail"          (ArrayFail) -> Changed<Vec<VolumeArray>>;
        /// Put the members that lie on a disk on others, which are rebuilt while the volume serves.
        ReplaceMembers   Post   "/v1/arrays/" {array} "/replace"       (ArrayReplace) -> Changed<Vec<VolumeArray>>;
        /// Fill a member anew, or accept as lost the regions that only a missing member has.
        RebuildArray     Post   "/v1/arrays/" {array} "/rebuild"       (ArrayRebuild) -> Changed<Vec<VolumeArray>>;
        /// Compare all members of an array and make them equal; the answer is a job, which says what was found.
        ScrubArray       Post   "/v1/arrays/" {array} "/scrub"         (ArrayScrub) -> Changed<Job>;
    }

    "snapshots" {
        /// List snapshots, the oldest first.
        ListSnapshots    Get    "/v1/snapshots"                        (OfVolume) -> Vec<Snapshot>;
        /// Keep the present state of volumes, all of one instant.
        CreateSnapshots  Post   "/v1/snapshots"                        (SnapshotCreate) -> Changed<Vec<Snapshot>>;
        /// List the extents that differ between two states of a volume, or any two volumes of a pool; no content is read.
        DiffSnapshots    Get    "/v1/snapshots/diff"                   (Between) -> SnapshotDiff;
        /// Remove snapshots; the answer is a job.
        RemoveSnapshots  Post   "/v1/snapshots/remove"                 (SnapshotRemove) -> Changed<Job>;
        /// Make a volume's content that of a snapshot; the answer is a job.
        RollbackSnapshot Post   "/v1/snapshots/rollback"               (SnapshotRollback) -> Changed<Job>;
        /// Let snapshots be written, or no more.
        ChangeSnapshots  Post   "/v1/snapshots/change"                 (SnapshotChange) -> Changed<Vec<Snapshot>>;
        /// Give a snapshot another name.
        RenameSnapshot   Post   "/v1/snapshots/rename"                 (SnapshotRename) -> Changed<Snapshot>;
        /// Protect snapshots against removal.
        HoldSnapshots    Post   "/v1/snapshots/hold"                   (SnapshotHold) -> Changed<Vec<Snapshot>>;
        /// End the protection of snapshots.
        ReleaseSnapshots Post   "/v1/snapshots/release"                (SnapshotHold) -> Changed<Vec<Snapshot>>;
    }

    "schedules" {
        /// List schedules of snapshots.
        ListSchedules    Get    "/v1/schedules"                        (InGroup) -> Vec<Schedule>;
        /// Have snapshots of volumes made again and again, and old ones of these removed.
        CreateSchedule   Post   "/v1/schedules"                        (ScheduleCreate) -> Changed<Schedule>;
        /// Show a schedule and the snapshots that it made.
        ShowSchedule     Get    "/v1/schedules/" {schedule}            -> Schedule;
        /// Change when a schedule runs, how many of its snapshots stay, or its name.
        ChangeSchedule   Post   "/v1/schedules/" {schedule} "/change"  (ScheduleChange) -> Changed<Schedule>;
        /// Remove a schedule; the snapshots that it made stay.
        RemoveSchedule   Delete "/v1/schedules/" {schedule}            (Remove) -> Changed<Empty>;
        /// Run a schedule now: make its snapshots, and remove those of its own that are not to stay.
        RunSchedule      Post   "/v1/schedules/" {schedule} "/run"     (ScheduleRun) -> Changed<ScheduleRan>;
    }

    "trash" {
        /// List the volumes and pools that were removed and can be brought back.
        ListTrash        Get    "/v1/trash"                            (InGroup) -> Vec<TrashItem>;
        /// Bring a volume or pool back.
        RestoreTrash     Post   "/v1/trash/" {trash} "/restore"        (TrashRestore) -> Changed<TrashRestored>;
        /// Give up what is in the trash of a group, or one thing of it.
        EmptyTrash       Delete "/v1/trash/" {trash}                   (TrashEmpty) -> Changed<Empty>;
    }

    "exports" {
        /// List exports.
        ListExports      Get    "/v1/exports"                          -> Vec<Export>;
        /// Open a door onto a volume or snapshot.
        CreateExport     Post   "/v1/exports"                          (ExportCreate) -> Changed<Export>;
        /// Give an export other limits or permissions.
        ChangeExport     Post   "/v1/exports/" {export} "/change"      (ExportChange) -> Changed<Export>;
        /// Close a door; what is in flight is finished first.
        RemoveExport     Delete "/v1/exports/" {export}                (ExportRemove) -> Changed<Export>;
    }

    "jobs" {
        /// List jobs.
        ListJobs         Get    "/v1/jobs"                             -> Vec<Job>;
        /// Show a job.
        ShowJob          Get    "/v1/jobs/" {id}                       -> Job;
        /// Wait until a job has ended, or for a while; the answer is how it stands then.
        WaitJob          Get    "/v1/jobs/" {id} "/wait"               (Timeout) -> Job;
        /// Ask a job to end.
        CancelJob        Post   "/v1/jobs/" {id} "/cancel"             (JobCancel) -> Changed<Job>;
    }

    "program" {
        /// The daemon itself, and what happened last.
        DaemonStatus     Get    "/v1/status"                           -> crate::DaemonStatus;
        /// What an error code means.
        ExplainCode      Get    "/v1/explain/" {code}                  -> Explanation;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_become_one_segment_and_queries_have_what_is_given() {
        assert_eq!(segment("data/home@mo.1"), "data%2Fhome%40mo%2E1");
        assert_eq!(segment(".."), "%2E%2E", "no path climbs");
        let range = ByteRange { offset: None, length: Some("1 M".to_owned()) };
        let map = MapVolume("data/a".to_owned(), range);
        assert_eq!(map.target(), "/v1/volumes/data%2Fa/map?length=1%20M");
        assert_eq!(
            WaitJob("7".to_owned(), Timeout { timeout_ms: Some(250) }).target(),
            "/v1/jobs/7/wait?timeout_ms=250"
        );
        assert_eq!((ListPools(InGroup::default()).target().as_str(), map.body()), ("/v1/pools", Vec::new()));
    }

    #[test]
    fn a_call_is_made_of_its_parts_and_changed_in_its_request_alone() {
        let call = RemoveGroup::new(Some("data".to_owned()), Remove::default());
        assert_eq!(call, RemoveGroup("data".to_owned(), Remove { dry_run: false }));
        let planned = call.with(|request| request.dry_run = true);
        assert_eq!((planned.target().as_str(), planned.subject()), ("/v1/groups/data", Some("data")));
        assert_eq!(planned.body(), br#"{"dry_run":true}"#);
        assert_eq!(CheckPool("data/p".to_owned()).body(), b"{}");
    }

    #[test]
    fn each_call_has_a_place_of_its_own_and_says_what_its_path_names() {
        let places: BTreeSet<String> =
            CALLS.iter().map(|call| format!("{:?} {}", call.method, call.path)).collect();
        let names: BTreeSet<&str> = CALLS.iter().map(|call| call.name).collect();
        assert_eq!((places.len(), names.len()), (CALLS.len(), CALLS.len()));
        for call in CALLS {
            assert_eq!(call.parameter().is_some(), call.path.contains('{'), "{}", call.path);
            assert!(call.summary.ends_with('.'), "{}", call.name);
        }
    }
}
