//! `varve image`: disk images in files that no other program writes.

mod chain;
mod convert;
mod create;
mod failure;
mod look;
mod rewrite;
mod target;

use crate::answer::Answer;
use crate::grammar::ImageVerb;
use varve_api::Failure;
use varve_image::Selected;

/// Carries out one verb.
pub(crate) fn image(verb: ImageVerb, json: bool) -> Result<Answer, Failure> {
    match verb {
        ImageVerb::Create(options) => create::create(&options),
        ImageVerb::Info { file, format, sharing } => look::info(&Selected::new(file, format.into()), sharing),
        ImageVerb::Check { file, sharing } => look::check(file, sharing),
        ImageVerb::Map { file, format, sharing } => look::map(Selected::new(file, format.into()), sharing),
        ImageVerb::Commit { file, change } => rewrite::commit(&file, change, json),
        ImageVerb::Flatten { file, change } => rewrite::flatten(&file, change, json),
        ImageVerb::Convert(options) => convert::convert(options, json),
    }
}
