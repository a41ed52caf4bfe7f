//! `varve image`: disk images in files that no other program writes.

mod chain;
mod convert;
mod create;
mod failure;
mod look;
mod rewrite;

use crate::answer::Answer;
use crate::grammar::ImageVerb;
use varve_api::Failure;
use varve_image::Selected;

/// Carries out one verb.
pub(crate) fn image(verb: ImageVerb, json: bool) -> Result<Answer, Failure> {
    match verb {
        ImageVerb::Create(options) => create::create(&options),
        ImageVerb::Info { file, format } => look::info(&Selected::new(file, format.into())),
        ImageVerb::Check { file } => look::check(file),
        ImageVerb::Map { file, format } => look::map(Selected::new(file, format.into())),
        ImageVerb::Commit { file } => rewrite::commit(&file, json),
        ImageVerb::Flatten { file } => rewrite::flatten(&file, json),
        ImageVerb::Convert { source, target, format, output_format, snapshot, cluster_size } => {
            let source = Selected { path: source, format: format.into(), snapshot };
            convert::convert(
                source,
                convert::Target { path: target, format: output_format, cluster_size },
                json,
            )
        }
    }
}
