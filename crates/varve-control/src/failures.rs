//! Errors of the rooms below as errors of the control plane: a code, the sentence, and the command that helps.

use std::path::Path;
use std::time::Duration;
use varve_api::{Code, Failure};
use varve_export::fuse::FuseError;
use varve_export::{AttachError, Driver};
use varve_target::snapshot::StoreError;
use varve_vg::disks::create::CreateProblem;
use varve_vg::disks::identity::Holdings;
use varve_vg::names::{NamesError, VolumeName};
use varve_vg::plan::{ConversionError, ScheduleError, TrashError};
use varve_vg::size::SizeError;
use varve_vg::tree::TreeError;
use varve_vg::{CommitError, PlanError};
pub(crate) use varve_volume::failures::{failed, gone, io, open, too_many_files};
use varve_volume::world::FileDoorError;

/// A snapshot store that refuses what is to be done with `subject`, a volume or snapshot.
pub(crate) fn store(subject: &str, error: &StoreError) -> Failure {
    varve_volume::failures::store(subject, error).about(subject, None)
}

/// A name that is none.
pub(crate) fn bad_name(error: &NamesError) -> Failure {
    Failure::new(Code::BadName, error.to_string()).help("names are VG, VG/LV and VG/LV@SNAP")
}

/// A size that is none.
pub(crate) fn bad_size(error: &SizeError) -> Failure {
    Failure::new(Code::BadSize, error.to_string()).help("sizes are 10G, 10GiB, 10GB, plain bytes")
}

/// A disk that cannot be opened anew because something holds it still.
pub(crate) fn held(path: &Path) -> Failure {
    let message = format!("{}: requests that are under way hold it still", path.display());
    Failure::new(Code::DiskInUse, message).help("varve pv scan, when they have ended")
}

/// A panic in the program itself.
pub(crate) fn internal(words: &str) -> Failure {
    Failure::new(Code::Internal, format!("the command ended with a panic: {words}"))
        .help("varve status; report this with the daemon's log")
}

/// Whether a volume cannot be used now, and may be later: then a job on it waits.
pub(crate) fn is_unusable_now(failure: &Failure) -> bool {
    matches!(failure.code, Code::VolumeUnusable | Code::ImageNotTrusted)
}

/// A volume that is to be flattened or committed has no backing.
pub(crate) fn over_nothing(name: &VolumeName) -> Failure {
    let message = format!("{name} is backed by nothing");
    Failure::new(Code::Usage, message).help(format!("varve lv show {}", name.origin()))
}

/// A volume whose last flush failed.
pub(crate) fn closed_with_error() -> Failure {
    let message = "the volume was closed with an error";
    Failure::new(Code::VolumeUnusable, message).help("varve pv list; then varve pv scan")
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
        FuseError::NoHelper => (Code::DoorFailed, "install fuse3; or export through NBD"),
        FuseError::NoMemory(_) => (Code::DoorFailed, "give the daemon more: varve daemon --memory-mib"),
        FuseError::Failed { .. } => (Code::DoorFailed, ""),
    };
    Failure::new(code, error.to_string()).help(help)
}

/// A volume that does not become a block device of this kernel, or does not end to be one.
pub(crate) fn attach(error: &AttachError) -> Failure {
    let (code, help) = match error {
        AttachError::NoDriver(Driver::Ublk) => (
            Code::DoorFailed,
            "modprobe ublk_drv; or varve lv attach VOLUME --via nbd; or varve export create VOLUME --fuse FILE or --vhost-user PATH",
        ),
        AttachError::NoDriver(Driver::Nbd) => (
            Code::DoorFailed,
            "modprobe nbd; or varve export create VOLUME --fuse FILE, then losetup -f --show --direct-io=on FILE",
        ),
        AttachError::NotPermitted => (
            Code::DoorFailed,
            "run the daemon as root of the host; or export through --nbd, --fuse or --vhost-user",
        ),
        AttachError::TooOld(Driver::Ublk) => {
            (Code::DoorFailed, "use a newer kernel; or varve lv attach VOLUME --via nbd")
        }
        AttachError::TooOld(Driver::Nbd) => {
            (Code::DoorFailed, "use a newer kernel; or export through --nbd or --fuse")
        }
        AttachError::NoRing(_) => (
            Code::DoorFailed,
            "sysctl kernel.io_uring_disabled=0, or allow io_uring in the container; or varve lv attach VOLUME --via nbd",
        ),
        AttachError::KeepsSize => (Code::DoorFailed, "detach it and attach it again"),
        AttachError::Stuck { .. } => (
            Code::DoorFailed,
            "dmesg shows what the kernel says; the device stays until the host is booted; varve lv attach VOLUME --via nbd does without ublk",
        ),
        AttachError::NoNode(_) => (
            Code::DoorFailed,
            "give the container the host's /dev, or start udev; or export through --nbd or --fuse",
        ),
        AttachError::Taken(_) => (Code::AddressInUse, "move it away"),
        AttachError::NoneFree => {
            (Code::DoorFailed, "disconnect one that is not needed: nbd-client -d DEVICE")
        }
        AttachError::Busy(..) => (Code::ClientsConnected, "unmount and close it; or add --force"),
        AttachError::Lost(..) => {
            (Code::VolumeBusy, "check what is on it; varve status says why; then detach it with --force")
        }
        AttachError::Failed { .. } => (Code::DoorFailed, "dmesg shows what the kernel says"),
    };
    Failure::new(code, error.to_string()).help(help)
}

/// A file that is not closed.
pub(crate) fn file_door(error: &FileDoorError) -> Failure {
    match error {
        FileDoorError::Mounted(error) => fuse(error),
        FileDoorError::Attached(error) => attach(error),
    }
}

/// A socket that cannot be opened.
pub(crate) fn listen(address: &str, error: &std::io::Error) -> Failure {
    use std::io::ErrorKind;
    let code = match error.kind() {
        ErrorKind::AddrInUse | ErrorKind::AlreadyExists => Code::AddressInUse,
        ErrorKind::InvalidInput => Code::BadAddress,
        _ => Code::DoorFailed,
    };
    let help = too_many_files(error).unwrap_or("choose another address");
    Failure::new(code, format!("cannot listen at {address}: {error}")).help(help)
}

/// A file that does not get another mode or group.
pub(crate) fn permissions(text: &str, error: &std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::Unsupported {
        let message =
            format!("{text} was opened for the daemon's user alone, which holds until it is closed");
        return Failure::new(Code::DoorFailed, message)
            .help("varve export remove, then varve export create with --mode");
    }
    Failure::new(Code::DoorFailed, format!("{text} keeps its permissions: {error}"))
        .help("look at the folder of the file: varve export list")
}

/// A change that is not possible.
pub(crate) fn plan(error: &PlanError) -> Failure {
    let code = match error {
        PlanError::Name { .. } => Code::BadName,
        PlanError::VolumeNotFound { .. } => Code::VolumeNotFound,
        PlanError::VolumeExists { .. } => Code::VolumeExists,
        PlanError::VolumeHasStore { .. } => Code::VolumeHasSnapshots,
        PlanError::StoreNotFound { .. } => Code::SnapshotNotFound,
        PlanError::Size { .. } | PlanError::Direction { .. } | PlanError::SnapshotBlocks { .. } => {
            Code::BadVolumeSize
        }
        PlanError::ShareTooSmall { .. } | PlanError::ChecksumRoom { .. } | PlanError::NoSpace { .. } => {
            Code::NoSpaceInGroup
        }
        PlanError::TooFewDisks { .. } | PlanError::TooFewMembers { .. } | PlanError::NoLogSpace { .. } => {
            Code::NoSpaceInGroup
        }
        PlanError::NoReplacement { .. } => Code::NoSpaceInGroup,
        PlanError::Layout(_) | PlanError::Fragment { .. } | PlanError::LogOnMember { .. } => Code::BadLayout,
        PlanError::Sectors { .. } => Code::BadLayout,
        PlanError::DiskNotFound { .. } => Code::NotInGroup,
        PlanError::DiskExists { .. } => Code::PhysicalVolumeInGroup,
        PlanError::DiskTooSmall { .. } => Code::DiskTooSmall,
        PlanError::DiskEndInUse { .. } => Code::DiskHoldsExtents,
        PlanError::DiskBusy { .. } | PlanError::NotArray { .. } | PlanError::VolumeDegraded { .. } => {
            Code::DiskHoldsExtents
        }
        PlanError::Spare(_) => Code::DiskIsSpare,
        PlanError::Moving { .. } | PlanError::Granted { .. } | PlanError::JobsFull { .. } => Code::VolumeBusy,
        PlanError::NotMoving { .. } | PlanError::JobNotFound { .. } => Code::JobNotFound,
        PlanError::Schedule(ScheduleError::Exists { .. }) => Code::ScheduleExists,
        PlanError::Schedule(ScheduleError::NotFound { .. }) => Code::ScheduleNotFound,
        PlanError::Schedule(ScheduleError::Full { .. }) => Code::SchedulesFull,
        PlanError::Trash(TrashError::NotFound { .. }) => Code::TrashNotFound,
        PlanError::Trash(TrashError::Uncleared { .. }) => Code::VolumeBusy,
        PlanError::Trash(TrashError::NoSpace { .. } | TrashError::Keep) => Code::Usage,
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
        CommitError::NumbersUsedUp { .. } => Code::GroupDamaged,
        CommitError::PlanOutdated { .. } => Code::VolumeBusy,
    };
    Failure::new(code, error.to_string()).help(unquoted(&error.help()))
}

/// What is said of a disk that has not answered in time.
pub(crate) fn silence(path: &str, limit: Duration) -> String {
    format!("{path} did not answer for {} seconds", limit.as_secs())
}

/// A disk that cannot be labelled.
pub(crate) fn create(path: &str, problem: &CreateProblem, holdings: Option<&Holdings>) -> Failure {
    let (code, help) = match problem {
        CreateProblem::Foreign(_) => {
            (Code::ForeignSignature, "add --yes to destroy what is there, or choose another disk".to_owned())
        }
        CreateProblem::InGroup(_) => {
            (Code::PhysicalVolumeInGroup, format!("varve pv scan {path} takes it into use"))
        }
        CreateProblem::PhysicalVolume => (Code::IsPhysicalVolume, format!("varve pv scan {path}")),
        CreateProblem::Label(_) => {
            (Code::LabelDamaged, format!("varve check {path} tells more; varve repair {path} mends it"))
        }
        CreateProblem::LabelLost { .. } => (
            Code::LabelDamaged,
            format!(
                "varve repair {path}, with the other disks of its group, makes the label again; --yes destroys it"
            ),
        ),
        CreateProblem::TooSmall(_) => (Code::DiskTooSmall, "use a larger disk".to_owned()),
        CreateProblem::BlockSize(_) => {
            (Code::DiskUnusable, "use a disk with blocks of at most 4 KiB".to_owned())
        }
        CreateProblem::ReadOnly => (Code::DiskReadOnly, "make the disk writable".to_owned()),
        CreateProblem::Io(_) => (Code::MediumFailed, "the daemon's log has the place".to_owned()),
    };
    let word = if matches!(problem, CreateProblem::TooSmall(_)) { "too small: " } else { "" };
    let held = holdings.map(|holdings| format!(": {holdings}")).unwrap_or_default();
    Failure::new(code, format!("{path}: {word}{problem}{held}")).help(help)
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

/// What is remembered cannot be read or written at `path`.
pub fn state_unusable(path: &Path, error: &std::io::Error) -> Failure {
    let is_full = error.kind() == std::io::ErrorKind::StorageFull;
    let code = if is_full { Code::NoSpaceOnHost } else { Code::StateUnusable };
    Failure::new(code, format!("{}: {error}", path.display())).help(too_many_files(error).unwrap_or_default())
}
