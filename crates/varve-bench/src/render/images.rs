//! Images and mappers.

use super::figures;
use crate::results::Results;

/// The section.
pub(super) fn text(results: &Results) -> String {
    let Some(part) = &results.images else { return String::new() };
    format!(
        "## Images and mappers\n\nqcow2 images beside QEMU's servers on the same image, and volumes whose mapping a program \
         decides beside linear ones. Each figure is the median of the ratios of the rounds, both sides measured one right \
         after the other. {}",
        figures::table(part)
    )
}
