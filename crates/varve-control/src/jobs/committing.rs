//! Volumes whose images give what they hold to the images below them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use uuid::Uuid;
use varve_api::Failure;
use varve_vg::model::ImageFormat;

/// A backing image that is written because its overlay image is committed into it.
#[derive(Clone)]
pub(crate) struct Base {
    pub(crate) path: String,
    pub(crate) format: ImageFormat,
}

/// The volumes, each with its base, or why that cannot be opened, as soon as it is known.
pub(crate) type Committing = RefCell<BTreeMap<Uuid, Option<Result<Base, Failure>>>>;
