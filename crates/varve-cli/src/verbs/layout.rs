//! `--type` and what belongs to it.

use crate::grammar::{LayoutChoice, LayoutOptions};
use varve_api::{Code, Failure, Layout};

/// The layout that options name.
pub(super) fn layout_word(options: &LayoutOptions) -> Result<Layout, Failure> {
    let has_stripes = options.stripes.is_some() || options.stripe_size.is_some();
    if has_stripes && options.layout != LayoutChoice::Striped {
        return Err(Failure::new(Code::Usage, "--stripes and --stripe-size belong to --type striped"));
    }
    Ok(match options.layout {
        LayoutChoice::Linear => Layout::Linear,
        LayoutChoice::Striped => Layout::Striped,
        LayoutChoice::Zero => Layout::Zero,
        LayoutChoice::Error => Layout::Error,
        LayoutChoice::Mirror => Layout::Mirror,
        LayoutChoice::Ddraid => Layout::Ddraid,
    })
}
