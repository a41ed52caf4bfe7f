//! The table of all error codes: number, exit code, title, and the text of `varve explain`.

use crate::code::Exit;

macro_rules! catalogue {
    ($($name:ident = $number:literal, $exit:ident, $title:literal, $text:literal;)*) => {
        /// Which error; see the table in this crate, or `varve explain`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $title] $name,)*
        }

        impl Code {
            /// Every code, in the order of the numbers.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The number in `V0123`.
            pub const fn number(self) -> u16 {
                match self { $(Code::$name => $number,)* }
            }

            /// The exit code of a command that ends with this error.
            pub const fn exit(self) -> Exit {
                match self { $(Code::$name => Exit::$exit,)* }
            }

            /// The error in a few words.
            pub const fn title(self) -> &'static str {
                match self { $(Code::$name => $title,)* }
            }

            /// What it means and what to do.
            pub const fn text(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }
        }
    };
}

catalogue! {
    Failed = 1, Failed, "the operation failed",
        "Something failed that has no code of its own; the message says what. If it says that an invariant was \
        broken, it is a defect of Varve: please report it with the daemon's log.";
    Usage = 2, Usage, "the command was not understood",
        "An option, a verb or an argument is unknown, missing or in the wrong form. `varve NOUN VERB --help` shows \
        what a verb takes.";
    NotBuilt = 3, Usage, "this is not built yet",
        "The verb or option is part of the command line's contract, but this version cannot do it. The README has \
        the table of what works.";
    Declined = 4, Declined, "a question was answered with no",
        "The command would destroy something and asks first. Without a terminal nobody can be asked: give -y (--yes) \
        to go ahead, or --dry-run to see what would happen.";
    NoDaemon = 5, Failed, "no daemon answers",
        "Every verb that works on groups and volumes in use speaks to a running daemon over its Unix socket. The \
        socket is taken from --socket, else $VARVE_SOCKET, else the user's runtime directory, else \
        /run/varve/varve.sock for root. Start a daemon with `varve daemon`, or name the right socket.";
    Protocol = 6, Failed, "the daemon's answer was not understood",
        "Something answers at the socket, but not in the way this version of the command expects: another program, \
        another version of the daemon, or a connection that broke half way.";
    DaemonRuns = 7, Busy, "another daemon is running",
        "Only one daemon may use a state directory and a socket. Stop the other one (SIGTERM), or give this one its \
        own --state and --socket. Disks are locked too, so two daemons can never share one.";
    BadName = 8, Usage, "a name is not valid",
        "Groups, volumes and snapshots are written VG, VG/LV and VG/LV@SNAP. Each part is 1 to 128 letters, digits, \
        '.', '_', '+' or '-', and does not begin with '-' or '.'.";
    BadSize = 9, Usage, "a size is not valid",
        "Sizes are plain bytes, or a number with K, M, G, T, P or KiB, MiB, … (base 2), or KB, MB, … (decimal). Some \
        verbs also take +SIZE, and a share of the free space such as 50%FREE.";
    StateUnusable = 10, Failed, "the state directory cannot be used",
        "The daemon keeps the paths of its disks and its exports in the directory given by --state. It must be able \
        to create and write it. No volume depends on its content: if it is lost, `varve pv scan PATH…` finds the \
        disks again.";
    Stopping = 11, Failed, "the daemon is stopping",
        "The daemon got a signal to end and takes no new work; what is in flight is finished first.";
    SocketUnusable = 12, Failed, "the daemon's socket cannot be made",
        "The directory of the socket is missing or not writable, its path is too long (107 bytes at most), or the \
        TCP address of --http is taken.";
    Internal = 14, Failed, "a defect of Varve ended the command",
        "Something in the program contradicted itself while the command was carried out (a panic). Nothing else is \
        concerned; the daemon goes on, and its exit status says later that this happened. What the command had begun may \
        be half done: look with `varve status` and `varve vg list`. Please report it with the daemon's log.";
    BadConfig = 15, Usage, "the configuration file is not valid",
        "The file holds `KEY = VALUE` lines in the form of TOML; each key is an option of `varve daemon` without its dashes. The message names the file, the \
        line and the key. `varve daemon --help` lists the options, `varve daemon --config FILE --check-config` checks a file and shows what is in force.";
    ConfigNotFound = 16, NotFound, "there is no such configuration file",
        "The file named by `varve daemon --config` is not there. Without --config a daemon of root reads /etc/varve/varve.toml if there is one, and others \
        read no file.";
    CodeNotFound = 13, NotFound, "no such error code",
        "Error codes are written V0123. The message of a failed command begins with its code: error[V0123].";

    NotPhysicalVolume = 101, NotFound, "the disk is not a physical volume",
        "There is no valid Varve label on the disk. `varve pv create PATH` makes one (and destroys what is there); \
        if there should be a label already, `varve check PATH` tells what is wrong with it.";
    ForeignSignature = 102, Declined, "the disk holds something else",
        "A filesystem, a partition table, or the label of another volume manager was found. Using the disk would \
        destroy it. If that is meant, repeat the command with --yes.";
    DiskTooSmall = 103, Failed, "the disk is too small",
        "A physical volume needs 1 MiB for its label and metadata and at least one extent of its group (4 MiB unless \
        the group was made with another extent size).";
    DiskInUse = 104, Busy, "the disk is in use",
        "Another program holds the disk: a mounted filesystem, another daemon, a loop device. Varve locks its disks \
        so that no disk is used twice.";
    IsPhysicalVolume = 105, Exists, "the disk is a physical volume already",
        "There is a valid label on the disk. `varve pv scan PATH` takes the disk into use; `varve pv remove PATH` \
        gives it up, if no group uses it.";
    PhysicalVolumeNotFound = 106, NotFound, "no such physical volume",
        "The daemon knows no disk at this path. `varve pv list` shows those it knows; a disk that moved is found \
        again with `varve pv scan PATH`.";
    PhysicalVolumeInGroup = 107, Busy, "the physical volume belongs to a group",
        "A disk that belongs to a group can only leave it through `varve vg reduce VG PATH` or `varve vg remove VG`.";
    DiskMissing = 108, Failed, "a disk of the group is missing",
        "The group's description names a disk that was not found. Volumes on it cannot be used, and the group is not \
        changed, until it is back: `varve pv scan PATH`.";
    DiskUnusable = 109, Failed, "the disk cannot be opened",
        "The path is no block device or regular file, or the daemon may not open it for reading and writing.";
    LabelDamaged = 110, NeedsRepair, "the disk's label is damaged",
        "Both copies of the label fail their checksum, or the label contradicts the disk (its size, its place). \
        Nothing was written to the disk. `varve check PATH` shows what was found. If the disk belongs to a group, stop \
        the daemon: `varve repair PATH…` of all disks of the group makes the label anew from the disk's last MiB, its \
        metadata ring, or the other disks.";
    DuplicateDisk = 111, Failed, "two disks carry the same label",
        "A disk was copied, or is reached by two paths. Found at a start, Varve cannot know which of them holds the \
        truth and uses neither of the two: detach one of them, then `varve pv scan PATH` of the other. Beside a disk that is \
        in use its clone is not used; `varve pv create -n PATH --yes` says what a label of its own would destroy.";
    DiskExists = 112, Exists, "the file exists",
        "`--size` makes a new sparse file, and there is a file at this path already. Leave --size out to use the file \
        as it is, or choose another path.";
    DiskReadOnly = 113, Failed, "the disk is read-only",
        "The disk can be read but not written. A group needs all of its disks writable.";
    DiskNotFound = 114, NotFound, "there is nothing at this path",
        "The path names no file and no device. Give --size to make a new sparse file there.";
    DiskIsOwnExport = 115, Busy, "the disk is served by this daemon itself",
        "The file, or the device that lies on it (a loop device over it, say), is an export of the daemon that is asked to \
        use it as a disk. Such a disk can be closed in no order without losing data. Use another disk, or a second \
        daemon for the group that lies on the exports of the first.";
    DiskIsEmpty = 116, NotFound, "nothing lies on the disk",
        "No volume, pool or snapshot store has extents on the disk, so there is nothing to move from it. `varve vg reduce VG \
        PATH` takes it out of its group.";
    DiskIsSpare = 117, Busy, "the disk is a spare",
        "The disk is kept for members of arrays whose disks fail, and nothing else is put there. `varve pv change PATH --spare \
        no` makes it a disk like others; `varve pv replace FROM PATH` puts members there now.";
    DiskOutdated = 125, NeedsRepair, "the disk is older than when it left",
        "The disk was in use since the daemon was started, went out of use, and came back without what was made durable on it \
        before: it is an older copy, or part of it was overwritten. Volumes, pools and snapshot stores on it would lose what \
        their clients rely on. Bring back the disk that left, then `varve pv scan PATH`. What is known is forgotten when the \
        daemon ends: after a restart the disk is used as it is.";

    DisksRefused = 126, Partial, "some of the disks were refused",
        "The command named several disks. Those that it took are in use; the message has the reason for each of the others. \
        Mend those, then give the command again for them: what was taken stays as it is.";

    GroupNotFound = 201, NotFound, "no such group",
        "`varve vg list` shows the groups that the daemon knows. If the group's disks are attached but unknown to the \
        daemon, `varve pv scan PATH…` finds them.";
    GroupExists = 202, Exists, "the group exists",
        "A group of this name is in use. Choose another name, or rename that group with `varve vg rename OLD NEW`.";
    GroupNameTwice = 203, Failed, "two groups have the same name",
        "Two groups with different identities carry one name, for example after a disk came from another machine. \
        They can be told apart by their identifiers in `varve vg list`, and one of them renamed: `varve vg rename ID \
        NEW`.";
    GroupNotEmpty = 204, Busy, "the group holds volumes",
        "A group can be removed when its volumes are: `varve lv list VG`, `varve lv remove VG/LV`.";
    GroupIncomplete = 205, Failed, "the group is incomplete",
        "Disks of the group are missing, or one of them holds an old description. Reading goes on where it can, but \
        the group is not changed. `varve vg show VG` names the disks.";
    GroupDamaged = 206, NeedsRepair, "the group's description is damaged",
        "No disk of the group holds a description with a valid checksum and contents that make sense. Stop the daemon; \
        `varve check PATH…` tells what was found, `varve repair PATH…` makes the description again from the last MiB of \
        the disks, and `varve restore FILE PATH…` writes a backup, which `varve vg backup` made or the daemon keeps in \
        the folder `archive` of its state directory, back to the group's disks.";
    BadExtentSize = 207, Usage, "the extent size is not valid",
        "An extent is a power of two from 64 KiB to 1 GiB; 4 MiB unless told otherwise. It cannot be changed later.";
    BadBackup = 208, Usage, "the backup does not fit",
        "The text is no description of a group, or it describes a group with other disks than those attached. A backup \
        is restored only to the very disks that it names.";
    LastDisk = 209, Busy, "it is the group's last disk",
        "A group needs at least one disk. `varve vg remove VG` gives up the group as a whole.";
    DiskHoldsExtents = 210, Busy, "volumes lie on the disk",
        "The disk can leave the group when no volume has extents on it. `varve lv show VG/LV` shows where a volume \
        lies.";
    NotInGroup = 211, NotFound, "the disk is not in the group",
        "The disk belongs to no group, or to another one. `varve vg show VG` lists the disks of a group.";
    BadCache = 212, Usage, "the budget for metadata is not valid",
        "What a group keeps in memory of the metadata of its snapshot stores and thin pools is 64 KiB to 1 TiB \
        (--cache 64M), or 512 bytes to 1 GiB for each GiB of the volumes with snapshots and of the pools (--cache \
        8K-per-GiB). How the disks themselves are reached is another option: --disk-cache direct|buffered.";
    RestoreLoses = 213, Declined, "the restore would lose volumes, snapshots or pools",
        "Since the backup was taken the group has got volumes, or some have grown, and the extents of these belong to \
        others in the backup, or to nobody. Name each of them to agree that it goes: `varve vg restore VG FILE --drop \
        VG/LV`. A pool goes as a whole, with all volumes in it. With --dry-run the restore shows all that it would \
        drop, keep and bring back.";

    VolumeNotFound = 301, NotFound, "no such volume",
        "`varve lv list` shows all volumes, `varve snap list` all snapshots. A volume is named VG/LV, a snapshot \
        VG/LV@SNAP.";
    VolumeExists = 302, Exists, "the volume exists",
        "There is a volume of this name in the group. Choose another name, or remove that volume first.";
    VolumeExported = 303, Busy, "the volume is exported",
        "Clients may be using the volume through an export. `varve export list` shows them, `varve export remove \
        EXPORT` ends one.";
    VolumeHasSnapshots = 304, Busy, "the volume has snapshots",
        "Snapshots depend on their origin's content and would lose it. Remove them first: `varve snap remove \
        VG/LV@FIRST..@LAST`.";
    BadLayout = 305, Usage, "the layout is not possible",
        "A striped volume needs as many disks as stripes, each with free extents, and a stripe size that is a power of \
        two from 4 KiB to the extent size.";
    BadVolumeSize = 306, Usage, "the volume cannot have this size",
        "A volume has at least one extent and fewer bytes than an address can count. `extend` only grows and `reduce` \
        only shrinks.";
    OtherImage = 319, NeedsRepair, "it may be another image",
        "`varve lv change VG/LV --image FILE` leads a volume to the new place of its image. The file there is believed to be the \
        image if the volume has it open under another name, or if it was last written when the daemon released the volume: \
        `mv`, `cp -p` and `rsync -a` keep that time. Neither is known after a crash, without the --state folder, or of a copy \
        with new times: look at the file, then give the command again with --force.";
    VolumeFailed = 320, NeedsRepair, "the volume failed and is out of use",
        "Something in the volume or pool contradicted itself (a panic), because of a defect of Varve or of damage that no \
        checksum shows. It answers every request with an error until a person takes it into use again, over restarts \
        too: `varve lv activate VG/LV`, `varve pool activate VG/POOL`, `varve vg activate VG`. What was acknowledged as \
        durable is on the disks. Everything else goes on. `varve check PATH…` of its disks, with the daemon stopped, \
        tells more; please report it with the daemon's log.";
    VolumeInactive = 321, Busy, "the volume is not active",
        "Somebody has taken it out of use: `varve lv activate VG/LV`, `varve pool activate VG/POOL` or `varve vg activate \
        VG` takes it into use again.";
    VolumeUnusable = 307, NeedsRepair, "the volume cannot be used",
        "The volume was not activated: a disk is missing, or its snapshot store did not pass its checks. The message \
        and the daemon's log name the reason; nothing is written to it.";
    ShrinkWithSnapshots = 308, Busy, "a volume with snapshots cannot shrink",
        "Snapshots have the size that their origin had. Remove them before the volume is reduced.";
    VolumeBusy = 309, Busy, "the volume is busy with another change",
        "A job or another command changes the volume now. `varve job list` shows it; `varve job wait ID` waits.";

    NotAnArray = 330, Usage, "it is not an array",
        "Only volumes and pools of the types mirror and ddraid have members. A thin volume lies on the members of its \
        pool: `varve lv show VG/LV` names it.";
    ArrayDegraded = 331, Busy, "members of the array are not in sync",
        "A member is away or catches up: `varve lv show VG/LV` tells which, and its disks. When a disk is back, `varve pv \
        scan PATH` takes it into use; what needs all members can begin when it has caught up.";

    PoolNotFound = 310, NotFound, "no such pool",
        "`varve pool list` shows the thin pools. A pool is named VG/POOL.";
    PoolNotEmpty = 311, Busy, "the pool holds volumes",
        "A pool can be removed when its volumes are: `varve lv list VG` shows them, `varve lv remove VG/LV` removes one.";
    IsPool = 312, Usage, "it is a pool",
        "The name is that of a thin pool, which is space for volumes and no volume itself. `varve pool show VG/POOL` shows \
        it, `varve lv create VG/LV --pool POOL --size SIZE` makes a volume in it.";
    PoolFull = 313, NoSpace, "the pool is full",
        "The pool has no free blocks, and the group had no free extents to extend it. `varve pool extend VG/POOL --size \
        +SIZE`, `varve vg extend VG PATH…`; trimming file systems and removing volumes or snapshots frees space too.";

    OverCommitted = 317, NoSpace, "the pool may not promise so much",
        "The pool was told to promise no more than it can hold: `--over-commit forbid`. Every volume and every snapshot counts \
        with all of its size, because all of it can be written. `varve pool show VG/POOL` says how much may be promised; \
        `varve pool extend VG/POOL --size +SIZE` raises that, `varve pool change VG/POOL --over-commit allow` lifts it.";
    BadOrigin = 316, Usage, "it cannot be an origin",
        "The origin of a thin volume never changes: it is a read-only snapshot of a volume of the same group, in a pool or \
        not. `varve snap create VG/LV@base --read-only`, `varve lv create VG/NEW --pool POOL --origin VG/LV@base`. A \
        read-only volume will do too, and a raw disk image: `varve lv create VG/NEW --pool POOL --image FILE`; with \
        `--format qcow2` one of QEMU's that has no backing file. Images of other formats are converted first: `qemu-img \
        convert -O raw FILE FILE.raw`. A file that begins like one of those, and is meant byte by byte, needs `--format raw`.";
    ImageNotTrusted = 318, NeedsRepair, "a disk image or a mapper was not agreed to",
        "The group's description names a file of this host as the disk image that backs a volume, or a socket at which a \
        program says where its bytes lie, and the description may have been written elsewhere. The file is opened, and the \
        socket connected to, only after a user at this host has named it (`varve lv create --image`, `--mapper`) or agreed to \
        it: look at the path with `varve lv show VG/LV`, then `varve pv scan --trust-images`. What was agreed to is \
        remembered in the daemon's --state folder.";

    SnapshotNotFound = 401, NotFound, "no such snapshot",
        "`varve snap list VG/LV` shows the snapshots of a volume. A snapshot is named VG/LV@SNAP, and lives and ends with \
        its volume.";
    SnapshotExists = 402, Exists, "the snapshot exists",
        "The volume has a snapshot of this name. No snapshot of the command was made.";
    SnapshotHeld = 403, Busy, "the snapshot is held",
        "Somebody protected the snapshot with `varve snap hold`. `varve snap release VG/LV@SNAP` gives it free.";
    SnapshotExported = 404, Busy, "the snapshot is exported",
        "Clients may be reading the snapshot through an export. `varve export list` shows it, `varve export remove \
        EXPORT` ends it.";
    BadSnapshotRange = 405, Usage, "the range of snapshots is not valid",
        "A range is written VG/LV@FIRST..@LAST; both must be snapshots of the same volume, and the first must be the \
        older one.";
    TooManySnapshots = 406, NoSpace, "the volume has all the snapshots it can have",
        "A snapshot store holds a fixed number of snapshots. Remove some: `varve snap remove VG/LV@SNAP…`.";
    SnapshotsFull = 408, NoSpace, "the snapshots have no space left",
        "The volume's snapshot store is full and the group had no free extents to extend it, so old content can no \
        longer be kept. Extend the group or remove snapshots.";
    BadChunkSize = 409, Usage, "the chunk size is not valid",
        "A chunk is a power of two from 4 KiB to 1 MiB. All snapshots of a volume share one chunk size; the first one \
        chooses it.";
    SnapshotMergesNow = 410, Busy, "a rollback is under way",
        "The volume is being rolled back to a snapshot. `varve job list` shows how far it is.";
    RollbackBesideIndependent = 411, Busy, "independent snapshots are in the way",
        "While a volume has several snapshot stores it cannot be rolled back in place: each store would have to keep \
        what the others' snapshots show. Remove the independent snapshots, or write the snapshot's content back \
        through an export: `varve snap diff` tells which extents.";
    SnapshotIsOrigin = 416, Busy, "volumes are backed by the snapshot",
        "A thin volume shows the snapshot where it holds nothing itself. `varve lv flatten VG/LV` copies what it shows, so \
        that it needs the snapshot no more; removing the volume does too. Then the snapshot can be removed.";

    ScheduleNotFound = 420, NotFound, "no such schedule",
        "`varve schedule list` shows the schedules of snapshots. A schedule is named VG/NAME, and goes with the last of its \
        volumes.";
    ScheduleExists = 421, Exists, "the schedule exists",
        "The group has a schedule of this name. A schedule is called like its volume unless --name is given: choose another \
        name, or change the one that is there: `varve schedule change VG/NAME --every TIME --keep CLASSES`.";
    BadSchedule = 422, Usage, "the schedule is not valid",
        "A schedule runs every second at most and every 366 days at least: --every 90s, 15m, 1h, 1d, 1w. What stays is said in \
        classes: --keep 24h,7d,4w,12m keeps the newest snapshot of each of the last 24 hours, 7 days, 4 weeks and 12 months in \
        UTC that have any; a number alone keeps so many of the newest. All of its volumes are in one group, at most 64.";
    SchedulesFull = 423, NoSpace, "the group has all the schedules it can have",
        "A group has at most 256 schedules, and at most 16384 snapshots that they made and that are there. Let schedules keep \
        fewer, or remove some: `varve schedule list VG`, `varve schedule change`, `varve schedule remove`.";

    TrashNotFound = 430, NotFound, "not in the trash",
        "`varve trash list` shows the volumes and pools that were removed and can be brought back. They are given up when their time is over, \
        and before anything fails for want of space.";
    TrashAmbiguous = 431, Usage, "several in the trash have this name",
        "Volumes of one name were removed one after the other. Name the one that is meant by its identity, which `varve trash list` shows: \
        VG/ID.";

    ExportNotFound = 501, NotFound, "no such export",
        "`varve export list` shows the exports. An export is named by its ID, its URI or path, or by its volume if \
        that has only one.";
    ExportExists = 502, Exists, "the export exists",
        "The volume is exported in this very way already. An export that is there needs no second one.";
    AddressInUse = 503, Busy, "the address is taken",
        "Another program listens at this address, or a file is in the way. A socket that a killed daemon left behind is \
        replaced by itself.";
    BadAddress = 504, Usage, "the address is not valid",
        "NBD addresses are unix:PATH or tcp:HOST:PORT. A Unix socket's path has at most 107 bytes.";
    DoorFailed = 505, Failed, "the export could not be opened",
        "The operating system refused the socket or the FUSE mount; the message has its reason. FUSE needs /dev/fuse and \
        the right to mount.";
    ExportAmbiguous = 506, Usage, "several exports match",
        "The volume has more than one export. Name the one that is meant by its ID from `varve export list`.";
    ClientsConnected = 507, Busy, "clients are connected",
        "Clients are connected to the export, or a file of it is open: a loop device, a mounted file system. What they have open is \
        not taken away, renamed or changed under them, whatever `--yes` says. Unmount, detach (`losetup -d`) and disconnect \
        them; `varve export list --json` names them. `--force` goes on without that, and may destroy what they write.";

    Exposed = 508, Usage, "other hosts reach the address, in the clear",
        "NBD without `--tls` and HTTP over TCP have neither encryption nor authentication: anybody who reaches the address may use the volume, or \
        all volumes. Choose a Unix socket or a loopback address, and a tunnel for other hosts; or `--tls` for an export; or `--insecure`, where the network is \
        trusted. An export that an earlier version made at such an address is down until it is made again with `--insecure`.";

    NoSpaceInGroup = 601, NoSpace, "no space left in the group",
        "There are not enough free extents. `varve vg show VG` tells how much is free; `varve vg extend VG PATH…` adds \
        a disk, and removing volumes or snapshots frees extents.";
    NoSpaceForSnapshots = 602, NoSpace, "no space for the snapshot store",
        "The first snapshot of a volume needs extents in the group for what it will keep. Add a disk: `varve vg extend \
        VG PATH…`.";
    NoSpaceOnHost = 603, NoSpace, "no space left on the host",
        "The file system that holds a file given as a disk, or the state directory, is full.";

    JobNotFound = 701, NotFound, "no such job",
        "`varve job list` shows running jobs and those that ended since the daemon started.";
    JobNotCancellable = 702, Busy, "the job cannot be cancelled",
        "The job has ended, or it is past the point where it could leave things as they were. Members of an array that are filled \
        or made equal are needed: that ends when they are in sync, or with `varve array fail VG/LV PATH`.";
    JobFailed = 703, Failed, "the job failed",
        "The message of the job says why. What it had done so far is kept; after mending the cause the command can be \
        repeated.";
    JobCancelled = 704, Failed, "the job was cancelled",
        "Somebody ended the job with `varve job cancel`. What it had done so far is kept.";
    JobGoesOn = 705, Failed, "the command was interrupted, and its job goes on",
        "A command that waited for its job was interrupted, by Ctrl-C perhaps. The job belongs to the daemon and goes on: `varve \
        job wait ID` waits for its end, `varve job cancel ID` asks it to end.";

    MediumFailed = 801, Failed, "a disk failed",
        "A disk answered a request with an error. The daemon's log names the disk and the place.";
    DataCorrupt = 802, NeedsRepair, "data on disk is damaged",
        "What was read is not what was written: a checksum or a structure is wrong. The daemon's log names the disk and \
        the place; the volume takes no further writes.";

    CheckFound = 901, NeedsRepair, "the check found damage",
        "At least one structure on the disks is damaged. The findings name each by disk and place; nothing was changed.";
    FileUnusable = 902, Failed, "a file cannot be read or written",
        "The operating system refused to read or write the file named in the message.";
}
