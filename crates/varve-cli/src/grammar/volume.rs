//! `varve lv`: the verbs of logical volumes.

use super::{
    ActivateOptions, Change, ConvertOptions, Destroy, DiskWords, Force, LayoutOptions, TrashOptions, Waiting,
};
use clap::{Args, Subcommand, ValueEnum};
use varve_api::WhenFull;

#[derive(Debug, Subcommand)]
pub(crate) enum VolumeVerb {
    /// Make a volume.
    Create(Box<VolumeCreateOptions>),
    /// List volumes.
    #[command(visible_alias = "ls")]
    List {
        /// Only those of this group.
        #[arg(value_name = "VG")]
        group: Option<String>,
    },
    /// Show a volume and where it is.
    Show {
        /// The volume.
        #[arg(value_name = "VG/LV")]
        name: String,
    },
    /// List which bytes of a volume lie where: on which disk and where there, and which are zeros.
    Map(VolumeMapOptions),
    /// Grow a volume, or the store of a snapshot, while it is in use.
    Extend {
        /// The volume; of a snapshot, VG/LV@SNAP, the store in which it keeps old content is meant.
        #[arg(value_name = "VG/LV")]
        name: String,
        /// The new size, or +SIZE more.
        #[arg(long, value_name = "[+]SIZE", allow_hyphen_values = true)]
        size: String,
        #[command(flatten)]
        disks: DiskWords,
        #[command(flatten)]
        change: Change,
    },
    /// Shrink a volume; what is beyond its new end is lost.
    Reduce {
        /// The volume.
        #[arg(value_name = "VG/LV")]
        name: String,
        /// The new size, or -SIZE less.
        #[arg(long, value_name = "[-]SIZE", allow_hyphen_values = true)]
        size: String,
        #[command(flatten)]
        destroy: Destroy,
    },
    /// Change what a volume does when its snapshots need space, or lead it to the new place of its image.
    #[command(name = "change")]
    Declare {
        /// The volume.
        #[arg(value_name = "VG/LV")]
        name: String,
        #[command(flatten)]
        policy: PolicyOptions,
        /// Where the disk image of the volume is now.
        #[arg(long, value_name = "FILE")]
        image: Option<String>,
        /// Believe that it is the volume's image, though nothing shows it.
        #[arg(long, requires = "image")]
        force: bool,
        #[command(flatten)]
        change: Change,
    },
    /// Give a volume another name in its group.
    Rename {
        /// The volume.
        #[arg(value_name = "VG/LV")]
        name: String,
        /// Its new name: LV, or VG/LV of the same group.
        #[arg(value_name = "NEW")]
        to: String,
        #[command(flatten)]
        force: Force,
        #[command(flatten)]
        change: Change,
    },
    /// Take a volume into use again that failed or was deactivated.
    Activate {
        /// The volume.
        #[arg(value_name = "VG/LV")]
        name: String,
        #[command(flatten)]
        options: ActivateOptions,
    },
    /// Take a volume out of use until it is activated; what is durable stays.
    Deactivate {
        /// The volume.
        #[arg(value_name = "VG/LV")]
        name: String,
        #[command(flatten)]
        change: Change,
    },
    /// Convert a volume, and the stores of its snapshots, to another layout while it is in use.
    Convert {
        /// The volume.
        #[arg(value_name = "VG/LV")]
        name: String,
        #[command(flatten)]
        options: Box<ConvertOptions>,
    },
    /// Let a copy of a mirror go as a linear volume, with the content of one instant.
    Split {
        /// The mirror.
        #[arg(value_name = "VG/LV")]
        name: String,
        /// What the new volume is called: LV, or VG/LV of the same group.
        #[arg(value_name = "NEW")]
        to: String,
        #[command(flatten)]
        change: Change,
    },
    /// Make a volume or snapshot a block device of this kernel, and print its path, /dev/varve/VG/LV.
    ///
    /// It stays one until it is detached, over restarts of the daemon and of the host, too.
    Attach(VolumeAttachOptions),
    /// End a volume's or snapshot's block device; what was written through it is flushed first.
    Detach(VolumeDetachOptions),
    /// Copy what a thin volume shows of its origin into its pool, or a volume in a qcow2 image of what is below that into the image, so that
    /// it needs that no more.
    Flatten {
        /// The volume, or a snapshot of it.
        #[arg(value_name = "VG/LV")]
        name: String,
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Put what a volume's qcow2 image holds into the image below it, and let the volume lie in that one.
    ///
    /// Other images over that one show something else then, and are not to be used.
    Commit {
        /// The volume.
        #[arg(value_name = "VG/LV")]
        name: String,
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Remove volumes, with their snapshots: they go to the trash of their group, from where they can be brought back for a while.
    #[command(visible_alias = "rm")]
    Remove {
        /// The volumes.
        #[arg(value_name = "VG/LV", required = true)]
        names: Vec<String>,
        #[command(flatten)]
        trash: TrashOptions,
        #[command(flatten)]
        destroy: Destroy,
    },
}

/// What `varve lv attach` takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct VolumeAttachOptions {
    /// The volume or snapshot.
    pub(crate) volume: String,
    /// By which of the kernel's drivers.
    #[arg(long, value_enum, default_value_t = Driver::Nbd)]
    pub(crate) via: Driver,
    /// No client may write it.
    #[arg(long)]
    pub(crate) read_only: bool,
    #[command(flatten)]
    pub(crate) change: Change,
}

/// What `varve lv detach` takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct VolumeDetachOptions {
    /// The volume or snapshot, its link or its device.
    pub(crate) volume: String,
    #[command(flatten)]
    pub(crate) force: Force,
    #[command(flatten)]
    pub(crate) change: Change,
    /// Accepted for uniformity: nothing is asked. A device that is in use needs --force.
    #[arg(short, long, hide = true)]
    yes: bool,
}

/// A driver of the kernel for block devices that a program serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Driver {
    /// The client of network block devices.
    Nbd,
    /// User-space block devices.
    Ublk,
}

/// What a volume does when its snapshots need space.
#[derive(Args, Clone, Debug)]
pub(crate) struct PolicyOptions {
    /// What becomes of a write that needs a copy when the snapshot store is full and the group too: it waits, the
    /// oldest snapshots that are not held go, or it fails [default: pause].
    #[arg(long, value_name = "pause|drop-oldest|error")]
    pub(crate) when_full: Option<WhenFull>,
    /// How long such a write waits at most: 500ms, 60s, 5m, 1h [default: 60s].
    #[arg(long, value_name = "TIME")]
    pub(crate) pause_timeout: Option<String>,
    /// When the snapshot store is extended, and by how much of its size [default: 80%:20%].
    #[arg(long, value_name = "FILL%:GROWTH%|off")]
    pub(crate) auto_extend: Option<String>,
}

/// What `varve lv create` takes.
#[derive(Args, Debug)]
pub(crate) struct VolumeCreateOptions {
    /// The volume's name.
    #[arg(value_name = "VG/LV")]
    pub(crate) name: String,
    /// Its size, rounded up to whole extents; 50%FREE takes half of the group's free space.
    #[arg(long, required_unless_present_any = ["image", "origin"], allow_hyphen_values = true)]
    pub(crate) size: Option<String>,
    #[command(flatten)]
    pub(crate) layout: LayoutOptions,
    /// Serve it at once even where its disks cannot be cleared cheaply: it may show what others wrote there before. Not
    /// for arrays.
    #[arg(long)]
    pub(crate) no_zero: bool,
    /// Thin: the pool that it takes its space from, as it is written; POOL, or VG/POOL.
    #[arg(long, value_name = "POOL")]
    pub(crate) pool: Option<String>,
    /// Thin: a read-only snapshot, VG/LV@SNAP, that shows where nothing was written; its size if --size is not given.
    #[arg(long, value_name = "VG/LV@SNAP", requires = "pool")]
    pub(crate) origin: Option<String>,
    /// A disk image, a file or disk, in which the volume is; with --pool one that never changes, that shows where nothing was
    /// written.
    #[arg(long, value_name = "FILE", conflicts_with = "origin")]
    pub(crate) image: Option<String>,
    /// Image: qcow2 or raw; never guessed from the content.
    #[arg(long, value_name = "FORMAT", requires = "image")]
    pub(crate) format: Option<String>,
    /// Thin: the internal snapshot of a qcow2 image that shows where nothing was written, by id or name.
    #[arg(long, value_name = "SNAPSHOT", requires = "image", requires = "pool")]
    pub(crate) image_snapshot: Option<String>,
    /// A program of yours says where its bytes lie: the socket at which it listens, unix:PATH.
    #[arg(long, value_name = "unix:PATH", conflicts_with_all = ["pool", "origin", "image"])]
    pub(crate) mapper: Option<String>,
    /// Mapper: how long a request waits for an answer of the program [default: 30s].
    #[arg(long, value_name = "TIME", requires = "mapper")]
    pub(crate) mapper_wait: Option<String>,
    /// Mapper: a volume of the group that the program may name, once for each; nothing else uses it then.
    #[arg(long = "device", value_name = "VG/LV", requires = "mapper")]
    pub(crate) devices: Vec<String>,
    #[command(flatten)]
    pub(crate) policy: PolicyOptions,
    #[command(flatten)]
    pub(crate) change: Change,
}

#[derive(Debug, Args)]
pub(crate) struct VolumeMapOptions {
    /// The volume, or a snapshot of it.
    #[arg(value_name = "VG/LV")]
    pub(crate) name: String,
    /// The first byte.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub(crate) offset: String,
    /// How many bytes; up to the end if not given.
    #[arg(long, value_name = "SIZE")]
    pub(crate) length: Option<String>,
}
