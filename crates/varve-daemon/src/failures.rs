//! Errors of the rooms below as errors of the control plane: a code, the sentence, and the command that helps.

use crate::shard::NoAnswer;
use std::path::Path;
use varve_api::{Code, Failure};
use varve_block::IoError;
use varve_export::fuse::FuseError;
use varve_os::OpenError;
use varve_target::array::ArrayError;
use varve_target::snapshot::StoreError;
use varve_target::thin::PoolError;
use varve_vg::create::CreateProblem;
use varve_vg::names::{NamesError, VolumeName};
use varve_vg::plan::ConversionError;
use varve_vg::size::SizeError;
use varve_vg::tree::TreeError;
use varve_vg::{CommitError, PlanError};

/// A name that is none.
pub(crate) fn bad_name(error: &NamesError) -> Failure {
    Failure::new(Code::BadName, error.to_string()).help("names are VG, VG/LV and VG/LV@SNAP")
}

/// A size that is none.
pub(crate) fn bad_size(error: &SizeError) -> Failure {
    Failure::new(Code::BadSize, error.to_string()).help("sizes are 10G, 10GiB, 10GB, plain bytes")
}

/// A shard that does not answer: it has ended, or a volume on it has failed meanwhile.
pub(crate) fn gone(error: impl Into<NoAnswer>) -> Failure {
    match error.into() {
        NoAnswer::Gone => Failure::new(Code::Stopping, "the daemon is stopping"),
        NoAnswer::Failed => Failure::new(Code::VolumeFailed, "the volume failed while it was worked on")
            .help("varve status says which; varve lv activate VG/LV, varve pool activate VG/POOL"),
    }
}

/// A volume or pool that is out of use since something in it panicked.
pub(crate) fn failed(name: &str, is_pool: bool, reason: &str) -> Failure {
    let noun = if is_pool { "pool" } else { "lv" };
    Failure::new(Code::VolumeFailed, format!("{name} failed and is out of use: {reason}")).help(format!(
        "report this with the daemon's log; varve {noun} activate {name} takes it into use again"
    ))
}

/// A disk that cannot be opened anew because something holds it still.
pub(crate) fn held(path: &Path) -> Failure {
    let message = format!("{}: connections to snapshots on it hold it still", path.display());
    Failure::new(Code::DiskInUse, message)
        .help("varve export remove, for exports of snapshots; then varve pv scan")
}

/// A panic in the program itself.
pub(crate) fn internal(words: &str) -> Failure {
    Failure::new(Code::Internal, format!("the command ended with a panic: {words}"))
        .help("varve status; report this with the daemon's log")
}

/// A request to a disk or a volume that failed.
pub(crate) fn io(what: &str, error: IoError) -> Failure {
    let code = match error {
        IoError::Corrupt => Code::DataCorrupt,
        IoError::NoSpace => Code::NoSpaceOnHost,
        IoError::ReadOnly => Code::DiskReadOnly,
        IoError::Medium | IoError::Fenced | IoError::Gone | IoError::Unsupported => Code::MediumFailed,
    };
    Failure::new(code, format!("{what}: {error}")).help("the daemon's log has the place")
}

/// A volume that is to be flattened lies over nothing.
pub(crate) fn over_nothing(name: &VolumeName) -> Failure {
    let message = format!("{name} lies over nothing");
    Failure::new(Code::Usage, message).help(format!("varve lv show {}", name.origin()))
}

/// A volume whose last flush failed.
pub(crate) fn closed_with_error() -> Failure {
    let message = "the volume was closed with an error; it goes on when the volume can be used";
    Failure::new(Code::VolumeUnusable, message).help("varve pv list; then varve pv scan")
}

/// A disk that cannot be opened.
pub(crate) fn open(error: &OpenError) -> Failure {
    let code = match error {
        OpenError::NotFound(_) => Code::DiskNotFound,
        OpenError::Exists(_) => Code::DiskExists,
        OpenError::InUse(_) => Code::DiskInUse,
        OpenError::ReadOnly(_) => Code::DiskReadOnly,
        OpenError::TooSmall { .. } => Code::DiskTooSmall,
        OpenError::NoSpace(_) => Code::NoSpaceOnHost,
        OpenError::Permission(_) | OpenError::NotADisk(_) | OpenError::System { .. } => Code::DiskUnusable,
    };
    let text = error.to_string();
    // These errors name their remedy after a semicolon.
    match text.rsplit_once("; ") {
        Some((message, help)) if !matches!(error, OpenError::System { .. }) => {
            let help = match error {
                OpenError::NotFound(path) => {
                    format!("{help}; varve pv create {} --size SIZE makes a file", path.display())
                }
                OpenError::ReadOnly(_) => {
                    "make it writable (blockdev --setrw), or use another disk".to_owned()
                }
                _ => help.to_owned(),
            };
            Failure::new(code, message).help(help)
        }
        _ => Failure::new(code, text),
    }
}

/// A FUSE mount that failed.
pub(crate) fn fuse(error: &FuseError) -> Failure {
    let (code, help) = match error {
        FuseError::NotAFile(_) | FuseError::NotEmpty(_) => {
            (Code::AddressInUse, "give the path of an empty file, or of none")
        }
        FuseError::Occupied(_) => (Code::AddressInUse, "varve export list, or unmount what is there"),
        FuseError::Busy(_) => {
            (Code::VolumeBusy, "unmount the file system on it and detach loop devices: losetup -d")
        }
        FuseError::NoDriver(_) => (Code::DoorFailed, "load the driver: modprobe fuse; or export through NBD"),
        FuseError::NoMemory(_) => (Code::DoorFailed, "give the daemon more: varve daemon --memory-mib"),
        FuseError::Failed { .. } => (Code::DoorFailed, ""),
    };
    Failure::new(code, error.to_string()).help(help)
}

/// A socket that cannot be opened.
pub(crate) fn listen(address: &str, error: &std::io::Error) -> Failure {
    use std::io::ErrorKind;
    let code = match error.kind() {
        ErrorKind::AddrInUse | ErrorKind::AlreadyExists => Code::AddressInUse,
        ErrorKind::InvalidInput => Code::BadAddress,
        _ => Code::DoorFailed,
    };
    Failure::new(code, format!("cannot listen at {address}: {error}")).help("choose another address")
}

/// A change that is not possible.
pub(crate) fn plan(error: &PlanError) -> Failure {
    let code = match error {
        PlanError::Name { .. } => Code::BadName,
        PlanError::VolumeNotFound { .. } => Code::VolumeNotFound,
        PlanError::VolumeExists { .. } => Code::VolumeExists,
        PlanError::VolumeHasStore { .. } => Code::VolumeHasSnapshots,
        PlanError::StoreNotFound { .. } => Code::SnapshotNotFound,
        PlanError::Size { .. } | PlanError::Direction { .. } => Code::BadVolumeSize,
        PlanError::ShareTooSmall { .. } | PlanError::ChecksumRoom { .. } | PlanError::NoSpace { .. } => {
            Code::NoSpaceInGroup
        }
        PlanError::TooFewDisks { .. } | PlanError::TooFewMembers { .. } => Code::NoSpaceInGroup,
        PlanError::NoReplacement { .. } => Code::NoSpaceInGroup,
        PlanError::Layout(_) | PlanError::Fragment { .. } => Code::BadLayout,
        PlanError::DiskNotFound { .. } => Code::NotInGroup,
        PlanError::DiskExists { .. } => Code::PhysicalVolumeInGroup,
        PlanError::DiskTooSmall { .. } => Code::DiskTooSmall,
        PlanError::DiskBusy { .. } | PlanError::NotArray { .. } | PlanError::VolumeDegraded { .. } => {
            Code::DiskHoldsExtents
        }
        PlanError::Spare(_) => Code::DiskIsSpare,
        PlanError::Moving { .. } | PlanError::Granted { .. } => Code::VolumeBusy,
        PlanError::NotMoving { .. } => Code::JobNotFound,
        PlanError::NothingToMove { .. } => Code::DiskIsEmpty,
        PlanError::NoPlace { .. } => Code::NoSpaceInGroup,
        PlanError::Conversion(ConversionError::Converting { .. }) => Code::VolumeBusy,
        PlanError::Conversion(ConversionError::NotConverting { .. }) => Code::JobNotFound,
        PlanError::Conversion(ConversionError::Rows { .. }) => Code::BadVolumeSize,
        PlanError::LastDisk { .. } => Code::LastDisk,
        PlanError::NothingMissing { .. } | PlanError::NoMember { .. } => Code::PhysicalVolumeNotFound,
        PlanError::VolumeIncomplete { .. } => Code::VolumeUnusable,
        PlanError::GroupIncomplete { .. } | PlanError::DiskMissing { .. } => Code::GroupIncomplete,
        PlanError::Backup { .. } => Code::BadBackup,
        PlanError::Invalid(_) => Code::Failed,
    };
    Failure::new(code, error.to_string()).help(unquoted(&error.help()))
}

/// A volume that cannot be used as its group stands.
pub(crate) fn tree(error: &TreeError) -> Failure {
    let (code, help) = match error {
        TreeError::Incomplete(incomplete) => {
            let group = incomplete.volume.split('/').next().unwrap_or_default();
            (Code::VolumeUnusable, format!("varve vg show {group}"))
        }
        TreeError::Uncleared { .. } => (Code::VolumeBusy, "varve job list; varve job wait ID".to_owned()),
    };
    Failure::new(code, error.to_string()).help(help)
}

/// A change that could not be made durable.
pub(crate) fn commit(error: &CommitError) -> Failure {
    let code = match error {
        CommitError::Plan(error) => return plan(error),
        CommitError::Incomplete { .. } => Code::GroupIncomplete,
        CommitError::TextTooLong { .. } => Code::NoSpaceInGroup,
        CommitError::Disks { .. } | CommitError::Broken { .. } => Code::MediumFailed,
        CommitError::PlanOutdated { .. } => Code::VolumeBusy,
    };
    Failure::new(code, error.to_string()).help(unquoted(&error.help()))
}

/// A disk that cannot be labelled.
pub(crate) fn create(path: &str, problem: &CreateProblem) -> Failure {
    let (code, help) = match problem {
        CreateProblem::Foreign(_) => {
            (Code::ForeignSignature, "add --yes to destroy what is there, or choose another disk".to_owned())
        }
        CreateProblem::InGroup(_) => {
            let help = format!("varve pv scan {path} takes it into use; --yes destroys what is there");
            (Code::PhysicalVolumeInGroup, help)
        }
        CreateProblem::PhysicalVolume => (Code::IsPhysicalVolume, format!("varve pv scan {path}")),
        CreateProblem::Label(_) => {
            (Code::ForeignSignature, format!("varve check {path} tells more; --yes destroys what is there"))
        }
        CreateProblem::TooSmall(_) => (Code::DiskTooSmall, "use a larger disk".to_owned()),
        CreateProblem::BlockSize(_) => {
            (Code::DiskUnusable, "use a disk with blocks of at most 4 KiB".to_owned())
        }
        CreateProblem::ReadOnly => (Code::DiskReadOnly, "make the disk writable".to_owned()),
        CreateProblem::Io(_) => (Code::MediumFailed, "the daemon's log has the place".to_owned()),
    };
    let word = if matches!(problem, CreateProblem::TooSmall(_)) { "too small: " } else { "" };
    Failure::new(code, format!("{path}: {word}{problem}")).help(help)
}

/// A thin pool that refuses.
pub(crate) fn pool(what: &str, error: &PoolError) -> Failure {
    let (code, help) = match error {
        PoolError::Io(error) => return io(what, *error),
        PoolError::NoSpace => (Code::PoolFull, "varve pool extend VG/POOL --size +SIZE"),
        PoolError::NotFound => (Code::VolumeNotFound, "varve lv list"),
        PoolError::Exists => (Code::VolumeExists, "choose another name"),
        PoolError::Held => (Code::SnapshotHeld, "varve snap release VG/LV@SNAP"),
        PoolError::Name => (Code::BadName, "varve explain V0008"),
        PoolError::TooSmall(_) => (Code::BadVolumeSize, "make the pool larger"),
        PoolError::OriginMissing => {
            (Code::VolumeUnusable, "varve lv show VG/LV; bring back what it lies over")
        }
        PoolError::Misfit(what) if what.contains("smaller than the pool") => (
            Code::VolumeUnusable,
            "varve vg history VG; varve vg restore VG FILE of when the pool had its size",
        ),
        PoolError::Misfit(_) => (Code::BadVolumeSize, "varve explain V0306"),
        PoolError::Format(_) | PoolError::Corrupt(_) => (
            Code::VolumeUnusable,
            "varve check PATH… of the group's disks, then varve repair --store VG/POOL PATH…",
        ),
    };
    Failure::new(code, format!("{what}: {error}")).help(help)
}

/// A mirror or ddraid array that refuses.
pub(crate) fn array(error: &ArrayError) -> Failure {
    let (code, help) = match error {
        ArrayError::Io(error) => return io("the array", *error),
        ArrayError::TooFew { .. } => (Code::VolumeUnusable, "bring its disks back, then varve pv scan"),
        ArrayError::MaybeStale => (
            Code::VolumeUnusable,
            "bring the missing disks back, then varve pv scan; or varve lv activate VG/LV --accept-missing",
        ),
        ArrayError::Exchanged { .. } | ArrayError::Format { .. } | ArrayError::Mismatch(_) => {
            (Code::VolumeUnusable, "varve vg history VG")
        }
        ArrayError::Member { .. } => (Code::VolumeUnusable, "varve lv show VG/LV"),
    };
    Failure::new(code, format!("the array: {error}")).help(help)
}

/// A snapshot store that refuses.
pub(crate) fn store(what: &str, error: &StoreError) -> Failure {
    let (code, help) = match error {
        StoreError::Io(error) => return io(what, *error),
        StoreError::NoSpace => (Code::SnapshotsFull, "varve vg extend VG PATH…, or remove snapshots"),
        StoreError::NotFound => (Code::SnapshotNotFound, "varve snap list"),
        StoreError::Exists => (Code::SnapshotExists, "choose another name"),
        StoreError::Held => (Code::SnapshotHeld, "varve snap release VG/LV@SNAP"),
        StoreError::HalfRolledBack => {
            (Code::VolumeUnusable, "start the daemon again, which reads the log of the snapshots")
        }
        StoreError::Busy => (Code::SnapshotMergesNow, "varve job list"),
        StoreError::Name => (Code::BadName, "varve explain V0008"),
        StoreError::TooSmall(_) => (Code::NoSpaceForSnapshots, "varve vg extend VG PATH…"),
        StoreError::Misfit(what) if what.contains("shorter than it was") => (
            Code::VolumeUnusable,
            "varve vg history VG; varve vg restore VG FILE of when the store had its size",
        ),
        StoreError::Misfit(_) => (Code::BadChunkSize, ""),
        StoreError::Format(_) | StoreError::Corrupt(_) => {
            (Code::DataCorrupt, "varve check PATH… of the group's disks")
        }
    };
    let message = if what.is_empty() { error.to_string() } else { format!("{what}: {error}") };
    Failure::new(code, message).help(help)
}

/// The rooms below quote commands; here the whole help is one.
pub(crate) fn unquoted(help: &str) -> String {
    help.replace('`', "")
}

/// Whether `path` may be the path of a socket.
pub(crate) fn socket_path(path: &Path) -> Result<(), Failure> {
    let length = path.as_os_str().len();
    if length == 0 || length > 107 || !path.is_absolute() {
        let message =
            format!("{:?} cannot be a socket's path: it is absolute and has 1 to 107 bytes", path.display());
        return Err(Failure::new(Code::BadAddress, message).help("choose a shorter path"));
    }
    Ok(())
}
