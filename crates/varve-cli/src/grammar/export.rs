//! `varve export`: the verbs of exports.

use super::{Change, Force};
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum ExportVerb {
    /// Open a door onto a volume or snapshot, and print what to connect to.
    Create {
        /// The volume or snapshot.
        volume: String,
        #[command(flatten)]
        door: DoorOptions,
        /// Clients may not write.
        #[arg(long)]
        read_only: bool,
        /// Accept a TCP address that other hosts reach: whoever reaches it may use the volume, and nothing is encrypted.
        #[arg(long)]
        insecure: bool,
        /// Clients of NBD may ask what was changed since this older snapshot of the volume, by the context qemu:dirty-bitmap:OLD.
        #[arg(long, value_name = "OLD")]
        since: Option<String>,
        #[command(flatten)]
        limits: LimitOptions,
        #[command(flatten)]
        access: AccessOptions,
        #[command(flatten)]
        change: Change,
    },
    /// Give an export other limits or permissions, while clients use it.
    Change(ExportChangeOptions),
    /// List exports.
    #[command(visible_alias = "ls")]
    List,
    /// Close doors; what is in flight is finished first.
    #[command(visible_alias = "rm")]
    Remove {
        /// ID, URI, socket or file, or volume of each.
        #[arg(value_name = "EXPORT", required = true)]
        exports: Vec<String>,
        #[command(flatten)]
        force: Force,
        #[command(flatten)]
        change: Change,
        /// Accepted for uniformity: nothing is asked. Clients that are connected need --force.
        #[arg(short, long, hide = true)]
        yes: bool,
    },
}

/// An export, and what is to change.
#[derive(Args, Debug)]
pub(crate) struct ExportChangeOptions {
    /// Its ID, its URI, socket or file, or its volume.
    pub(crate) export: String,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
    #[command(flatten)]
    pub(crate) access: AccessOptions,
    #[command(flatten)]
    pub(crate) change: Change,
}

/// Who may use the export.
#[derive(Args, Clone, Debug)]
pub(crate) struct AccessOptions {
    /// Permissions of the socket or file in octal digits; 0600 if never given. Connecting needs the right to write.
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// Group of the socket or file, by name or number.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// Clients of NBD have to begin TLS, and to show a certificate: this folder has ca-cert.pem, server-cert.pem and server-key.pem.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) tls: Option<String>,
}

/// How fast clients may be, all together.
#[derive(Args, Clone, Debug)]
pub(crate) struct LimitOptions {
    /// Most requests in a second that read, write, zero or discard; none for no limit.
    #[arg(long, value_name = "N")]
    pub(crate) iops: Option<String>,
    /// Most bytes in a second, as 30M; none for no limit.
    #[arg(long, value_name = "SIZE")]
    pub(crate) bandwidth: Option<String>,
}

/// Exactly one door.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct DoorOptions {
    /// Network block device, at unix:PATH or tcp:HOST:PORT.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) nbd: Option<String>,
    /// A file through FUSE.
    #[arg(long, value_name = "FILE")]
    pub(crate) fuse: Option<String>,
    /// A user-space block device of this kernel, /dev/varve/VG/LV.
    #[arg(long)]
    pub(crate) ublk: bool,
    /// A virtio disk for a virtual machine, at this socket.
    #[arg(long, value_name = "PATH")]
    pub(crate) vhost_user: Option<String>,
}
