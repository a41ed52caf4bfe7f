//! Errors of the mapping layer and of disks as errors of the control plane: a code, the sentence, and the command that helps. Where
//! names are not known the remedy has VG, VG/LV, VG/LV@SNAP and VG/POOL, until `Failure::about` replaces them.

use crate::no_answer::NoAnswer;
use varve_api::{Code, Failure};
use varve_block::IoError;
use varve_block::host::OpenError;
use varve_target::array::ArrayError;
use varve_target::snapshot::StoreError;
use varve_target::thin::PoolError;

/// A shard that does not answer: it has ended, or a volume on it has failed meanwhile.
pub fn gone(error: impl Into<NoAnswer>) -> Failure {
    match error.into() {
        NoAnswer::Gone => Failure::new(Code::Stopping, "the daemon is stopping")
            .help("try again when it runs: varve status"),
        NoAnswer::Failed => Failure::new(Code::VolumeFailed, "the volume failed while it was worked on")
            .help("varve status names it, and the command that takes it into use again"),
    }
}

/// A volume or pool that is out of use since something in it panicked.
pub fn failed(name: &str, is_pool: bool, reason: &str) -> Failure {
    let noun = if is_pool { "pool" } else { "lv" };
    Failure::new(Code::VolumeFailed, format!("{name} failed and is out of use: {reason}")).help(format!(
        "report this with the daemon's log; varve {noun} activate {name} takes it into use again"
    ))
}

/// A request to a disk or a volume that failed.
pub fn io(what: &str, error: IoError) -> Failure {
    let code = match error {
        IoError::Corrupt => Code::DataCorrupt,
        IoError::NoSpace | IoError::HostFull => Code::NoSpaceOnHost,
        IoError::ReadOnly => Code::DiskReadOnly,
        IoError::Medium | IoError::Fenced | IoError::Gone | IoError::Unsupported => Code::MediumFailed,
    };
    let help = match code {
        Code::NoSpaceOnHost => "make room there, then varve pv scan; the daemon's log has the place",
        _ => "the daemon's log has the place",
    };
    Failure::new(code, format!("{what}: {error}")).help(help)
}

/// The remedy if the process, or all of the host, may open no more files.
pub fn too_many_files(error: &std::io::Error) -> Option<&'static str> {
    const NFILE: i32 = 23;
    const MFILE: i32 = 24;
    match error.raw_os_error()? {
        MFILE => Some(
            "start the daemon with a higher hard limit of open files: LimitNOFILE= of its unit, or ulimit -H -n",
        ),
        NFILE => Some("raise what the host allows: sysctl fs.file-max"),
        _ => None,
    }
}

/// A disk that cannot be opened.
pub fn open(error: &OpenError) -> Failure {
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
        _ => {
            let help = match error {
                OpenError::System { error, .. } => too_many_files(error),
                _ => None,
            };
            Failure::new(code, text).help(help.unwrap_or_default())
        }
    }
}

/// What names are made of.
const NAMES: &str = "a name is 1 to 128 letters, digits and _ . + -, and begins neither with - nor with .";

/// A thin pool that refuses.
pub fn pool(what: &str, error: &PoolError) -> Failure {
    let (code, help) = match error {
        PoolError::Io(error) => return io(what, *error),
        PoolError::NoSpace => (Code::PoolFull, "varve pool extend VG/POOL --size +SIZE"),
        PoolError::NotFound => (Code::VolumeNotFound, "varve lv list"),
        PoolError::Exists => (Code::VolumeExists, "choose another name"),
        PoolError::Held => (Code::SnapshotHeld, "varve snap release VG/LV@SNAP"),
        PoolError::Name => (Code::BadName, NAMES),
        PoolError::TooSmall(_) => (Code::BadVolumeSize, "make the pool larger"),
        PoolError::OriginMissing => (Code::VolumeUnusable, "varve lv show VG/LV; bring back its origin"),
        PoolError::Misfit(what) if what.contains("smaller than the pool") => (
            Code::VolumeUnusable,
            "varve vg history VG; varve vg restore VG FILE of when the pool had its size",
        ),
        PoolError::Misfit(_) => (Code::BadVolumeSize, "choose another --size; varve pool show VG/POOL"),
        PoolError::Format(_) | PoolError::Corrupt(_) => (
            Code::VolumeUnusable,
            "varve check PATH… of the group's disks, then varve repair --store VG/POOL PATH…",
        ),
    };
    Failure::new(code, format!("{what}: {error}")).help(help)
}

/// A mirror or ddraid array that refuses.
pub fn array(error: &ArrayError) -> Failure {
    let (code, help) = match error {
        ArrayError::Io(error) => return io("the array", *error),
        ArrayError::TooFew { .. } => (Code::VolumeUnusable, "bring its disks back, then varve pv scan"),
        ArrayError::Older { .. } => (
            Code::VolumeUnusable,
            "bring back that disk as it was last, then varve pv scan; or varve lv activate VG/LV --accept-missing, which fills it anew",
        ),
        ArrayError::MaybeStale | ArrayError::LogUnknown => (
            Code::VolumeUnusable,
            "bring the missing disks back, then varve pv scan; or varve lv activate VG/LV --accept-missing",
        ),
        ArrayError::Exchanged { .. } | ArrayError::Format { .. } | ArrayError::Mismatch(_) => {
            (Code::VolumeUnusable, "varve vg history VG")
        }
        ArrayError::Member { .. } | ArrayError::LogDisk(_) => (Code::VolumeUnusable, "varve lv show VG/LV"),
    };
    Failure::new(code, format!("the array: {error}")).help(help)
}

/// A snapshot store that refuses.
pub fn store(what: &str, error: &StoreError) -> Failure {
    let (code, help) = match error {
        StoreError::Io(error) => {
            return io(if what.is_empty() { "the snapshot store" } else { what }, *error);
        }
        StoreError::NoSpace => (Code::SnapshotsFull, "varve vg extend VG PATH…, or remove snapshots"),
        StoreError::NotFound => (Code::SnapshotNotFound, "varve snap list"),
        StoreError::Exists => (Code::SnapshotExists, "choose another name"),
        StoreError::Held => (Code::SnapshotHeld, "varve snap release VG/LV@SNAP"),
        StoreError::HalfRolledBack => {
            (Code::VolumeUnusable, "start the daemon again, which reads the log of the snapshots")
        }
        StoreError::Busy => (Code::SnapshotMergesNow, "varve job list"),
        StoreError::Name => (Code::BadName, NAMES),
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
    Failure::new(code, format!("{what}: {error}")).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_failed_is_named_and_a_full_host_is_no_failed_medium() {
        let failure = store("", &StoreError::Io(IoError::HostFull));
        assert_eq!(failure.code, Code::NoSpaceOnHost);
        assert_eq!(failure.message, "the snapshot store: the file system that holds it is full");
        let failure = pool("the pool", &PoolError::Io(IoError::HostFull));
        assert_eq!(failure.message, "the pool: the file system that holds it is full");
        assert!(failure.help.starts_with("make room there"), "{}", failure.help);
    }

    #[test]
    fn a_disk_for_which_there_is_no_descriptor_is_refused_with_the_limit_that_is_to_be_raised() {
        let refused = |number: i32| {
            let error = std::io::Error::from_raw_os_error(number);
            open(&OpenError::System { path: "/d1".into(), error })
        };
        let failure = refused(24);
        assert_eq!(failure.message, "/d1: Too many open files (os error 24)");
        assert!(failure.help.contains("LimitNOFILE="), "{failure}");
        assert!(refused(23).help.contains("fs.file-max") && !refused(5).help.contains("LimitNOFILE"));
    }

    #[test]
    fn no_remedy_has_a_placeholder_where_the_name_is_known() {
        let shown = |failure: Failure| failure.help;
        let pools = [
            PoolError::NoSpace,
            PoolError::Held,
            PoolError::OriginMissing,
            PoolError::Misfit("the device is smaller than the pool"),
            PoolError::Misfit("its size"),
            PoolError::Corrupt("a block"),
        ];
        let of_pools = pools.iter().flat_map(|error| {
            let failure = pool("data/t", error);
            [failure.clone().about("data/t", Some("data/p")), failure.about("data/p", Some("data/p"))]
        });
        let arrays = [
            ArrayError::TooFew { present: 1, needed: 2 },
            ArrayError::Older { place: 1 },
            ArrayError::MaybeStale,
            ArrayError::Mismatch("a number"),
        ];
        let of_arrays = arrays.iter().map(|error| array(error).about("data/p", Some("data/p")));
        let stores = [
            StoreError::NoSpace,
            StoreError::Held,
            StoreError::TooSmall(1),
            StoreError::Misfit("the device is shorter than it was"),
            StoreError::Corrupt("a block"),
        ];
        let of_stores = stores.iter().map(|error| store("data/t@s", error).about("data/t@s", None));
        let helps: Vec<String> = of_pools.chain(of_arrays).chain(of_stores).map(shown).collect();
        let is_placeholder =
            |word: &str| word.split(['/', '@']).any(|part| ["VG", "LV", "POOL"].contains(&part));
        for help in &helps {
            assert!(!help.split([' ', ';', ',']).any(is_placeholder), "{help}");
        }
        for named in [
            "varve pool extend data/p --size +SIZE",
            "varve snap release data/t@s",
            "varve snap release data/t@SNAP",
            "varve lv show data/t; bring back its origin",
            "varve vg history data; varve vg restore data FILE of when the store had its size",
            "varve vg extend data PATH…, or remove snapshots",
            "bring the missing disks back, then varve pv scan; or varve pool activate data/p --accept-missing",
        ] {
            assert!(helps.iter().any(|help| help == named), "{named}: {helps:#?}");
        }
    }
}
