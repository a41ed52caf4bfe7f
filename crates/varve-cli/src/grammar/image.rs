//! `varve image`: disk images in files that no daemon and no virtual machine uses.

use super::{Change, Destroy};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use varve_image::Format;

/// How an image is read. It is never guessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ImageFormat {
    /// The disk's bytes as they are.
    Raw,
    /// QEMU's format.
    Qcow2,
}

impl From<ImageFormat> for Format {
    fn from(format: ImageFormat) -> Format {
        match format {
            ImageFormat::Raw => Format::Raw,
            ImageFormat::Qcow2 => Format::Qcow2,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageVerb {
    /// Make a qcow2 image.
    Create(ImageCreateOptions),
    /// Show what an image is like.
    Info {
        /// The image.
        file: PathBuf,
        /// Its format.
        #[arg(long, short, default_value = "qcow2")]
        format: ImageFormat,
        #[command(flatten)]
        sharing: Sharing,
    },
    /// Check that the tables of a qcow2 image agree; changes nothing.
    Check {
        /// The image.
        file: PathBuf,
        #[command(flatten)]
        sharing: Sharing,
    },
    /// Show where the bytes of an image lie, in it and in what is below it.
    Map {
        /// The image.
        file: PathBuf,
        /// Its format.
        #[arg(long, short, default_value = "qcow2")]
        format: ImageFormat,
        #[command(flatten)]
        sharing: Sharing,
    },
    /// Write what a qcow2 image holds into its backing image. The overlay is needed no more then.
    Commit {
        /// The image; its backing image is changed.
        file: PathBuf,
        #[command(flatten)]
        change: Change,
    },
    /// Copy what a qcow2 image shows of its backing images into it, so that it needs them no more.
    Flatten {
        /// The image.
        file: PathBuf,
        #[command(flatten)]
        change: Change,
    },
    /// Copy an image into another one, perhaps of another format; holes stay holes.
    Convert(ImageConvertOptions),
}

/// What `varve image convert` takes.
#[derive(Args, Debug)]
pub(crate) struct ImageConvertOptions {
    /// The image to read.
    pub(crate) source: PathBuf,
    /// The image to make: a new file, or a file or block device whose content is replaced.
    pub(crate) target: PathBuf,
    /// The format of the first.
    #[arg(long, short)]
    pub(crate) format: ImageFormat,
    /// The format of the second.
    #[arg(long, short = 'O')]
    pub(crate) output_format: ImageFormat,
    /// Read this internal snapshot, by id or name.
    #[arg(long, value_name = "SNAPSHOT")]
    pub(crate) snapshot: Option<String>,
    /// Bytes of a cluster of a new qcow2 image.
    #[arg(long, value_name = "SIZE", default_value = "64K")]
    pub(crate) cluster_size: String,
    #[command(flatten)]
    pub(crate) destroy: Destroy,
}

/// Whether an image may be in use.
#[derive(Args, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sharing {
    /// Look at it though a program may be writing it: what is shown may be half of a change.
    #[arg(long, short = 'U')]
    pub(crate) force_share: bool,
}

/// What `varve image create` takes.
#[derive(Args, Debug)]
pub(crate) struct ImageCreateOptions {
    /// The image to make.
    pub(crate) file: PathBuf,
    /// Size of the disk; that of the backing image if nothing is said.
    #[arg(long, required_unless_present = "backing")]
    pub(crate) size: Option<String>,
    /// What is shown where nothing was written: an image, which must not change any more. Its path is written down as it is
    /// said; it is relative to the new image's folder.
    #[arg(long, value_name = "FILE", requires = "backing_format")]
    pub(crate) backing: Option<String>,
    /// The format of the backing image.
    #[arg(long, value_name = "FORMAT", requires = "backing")]
    pub(crate) backing_format: Option<ImageFormat>,
    /// Bytes of a cluster, the unit in which space is taken: 512 to 2M.
    #[arg(long, value_name = "SIZE", default_value = "64K")]
    pub(crate) cluster_size: String,
    /// Take space, and copy from the backing image, in 32nds of a cluster.
    #[arg(long)]
    pub(crate) extended_l2: bool,
    #[command(flatten)]
    pub(crate) change: Change,
}
