//! `varve dump`: the description of each group, as its disks hold it.

use super::disks::with_disks;
use crate::answer::Answer;
use std::path::PathBuf;
use varve_api::{Backup, Code, Failure};
use varve_block::Access;
use varve_vg::scan;

/// Prints what the disks at `paths` say of their groups.
pub(crate) fn dump(paths: &[PathBuf]) -> Result<Answer, Failure> {
    let (groups, problems) = with_disks(paths, Access::ReadOnly, async move |context, disks| {
        let survey = scan(disks, &context.arena()).await;
        let backup = |open: &varve_vg::OpenGroup| Backup {
            group: open.group().name().to_owned(),
            sequence: open.group().entry().sequence,
            text: open.group().text(),
        };
        let groups: Vec<Backup> = survey.groups.iter().map(backup).collect();
        let refused =
            survey.refused.iter().map(|refused| format!("group {}: {}", refused.id, refused.problem));
        let problems: Vec<String> = survey.problems.iter().map(ToString::to_string).chain(refused).collect();
        (groups, problems)
    })?;
    if groups.is_empty() {
        let message = match problems.is_empty() {
            true => "no group on these disks".to_owned(),
            false => problems.join("; "),
        };
        return Err(Failure::new(Code::GroupDamaged, message).help("varve check PATH…"));
    }
    let text: Vec<&str> = groups.iter().map(|backup| backup.text.as_str()).collect();
    Ok(Answer::new(&groups, text.join("\n")))
}
