//! Files of disk images that are open: from the control to a shard.

use crate::world::DiskRef;
use std::sync::Arc;
use varve_vg::model::ImageFormat;

/// A file of an image that is open. It has the right not to be written by others, as far as they ask for that right.
#[derive(Clone)]
pub struct Layer {
    /// The file.
    pub file: DiskRef,
    /// What lay behind its last whole sector when it was opened.
    pub tail: Arc<[u8]>,
    /// How it is read.
    pub format: ImageFormat,
}

/// A disk image that is open, with all its backing images.
#[derive(Clone)]
pub struct Image {
    /// The image itself.
    pub top: Layer,
    /// The images below it, that directly below first; none of them if that is `lower`.
    pub below: Vec<Layer>,
    /// The image directly below it, if that is written too: all that the image holds is given to it.
    pub lower: Option<Box<Image>>,
    /// The internal snapshot that is shown instead, by id or name; only to read.
    pub snapshot: Option<String>,
    /// Where the file ended before it was made longer, if it is to be written.
    pub file_end: Option<u64>,
}
