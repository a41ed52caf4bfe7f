//! The layout that a request asks for.

use crate::failures;
use varve_api::{Code, Failure, Layout as ShownLayout};
use varve_block::KIB;
use varve_vg::plan::Layout;
use varve_vg::size::parse_size;

/// The layout that a request asks for.
pub(super) fn layout(
    asked: Option<ShownLayout>,
    stripes: Option<u32>,
    stripe_size: Option<&str>,
) -> Result<Layout, Failure> {
    match asked {
        None | Some(ShownLayout::Linear) => Ok(Layout::Linear),
        Some(ShownLayout::Zero) => Ok(Layout::Zero),
        Some(ShownLayout::Error) => Ok(Layout::Error),
        Some(ShownLayout::Striped) => {
            let stripes = stripes.ok_or_else(|| {
                Failure::new(Code::Usage, "a striped volume needs a number of stripes")
                    .help("add --stripes N")
            })?;
            let stripe_size = match stripe_size {
                Some(text) => parse_size(text).map_err(|error| failures::bad_size(&error))?,
                None => 64 * KIB,
            };
            let stripes = usize::try_from(stripes).expect("32 bits fit");
            Ok(Layout::Striped { stripes, stripe_size })
        }
        Some(layout) => Err(Failure::new(Code::NotBuilt, format!("{layout} volumes: not built yet"))),
    }
}
