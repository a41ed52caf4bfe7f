//! `varve dump`: the description of each group, or the metadata of a snapshot store or a pool, as disks hold it.

use super::disks::with_disks;
use super::pools;
use super::stores::{find_store, store_device};
use crate::answer::Answer;
use crate::grammar::DumpOptions;
use crate::verbs::differences;
use serde::Serialize;
use std::path::PathBuf;
use varve_api::{Backup, Code, Failure};
use varve_block::Access;
use varve_target::snapshot::dump_store;
use varve_vg::scan;

/// Prints what the disks say of their groups, or of one snapshot store or pool, or of what differs.
pub(crate) fn dump(options: &DumpOptions) -> Result<Answer, Failure> {
    match (&options.store, &options.delta[..]) {
        (_, [one, two]) => delta(&options.paths, [one.clone(), two.clone()]),
        (None, _) => dump_groups(&options.paths),
        (Some(store), _) => dump_one(&options.paths, store.clone()),
    }
}

fn delta(paths: &[PathBuf], names: [String; 2]) -> Result<Answer, Failure> {
    let compared = with_disks(paths, Access::ReadOnly, async move |context, disks| {
        pools::delta(&context, disks, names).await
    })??;
    Ok(Answer::new(&compared, differences(&compared)))
}

/// The metadata of a snapshot store or a pool.
#[derive(Serialize)]
struct StoreText {
    /// The store, or the pool.
    store: String,
    /// What `varve restore` takes.
    text: String,
}

fn dump_one(paths: &[PathBuf], store: String) -> Result<Answer, Failure> {
    let name = store.clone();
    let text = with_disks(paths, Access::ReadOnly, async move |context, disks| {
        let survey = scan(disks, &context.arena()).await;
        if let Some(text) = pools::dump(&context, &survey, &name).await? {
            return Ok::<String, Failure>(text);
        }
        let (index, volume, entry) = find_store(&survey, &name)?;
        let device = store_device(&context, &survey.groups[index], &volume, &entry).await?;
        dump_store(&device, &context.arena()).await.map_err(|error| {
            Failure::new(Code::DataCorrupt, format!("{name}: {error}")).help("varve check PATH…")
        })
    })??;
    Ok(Answer::new(&StoreText { store, text: text.clone() }, text))
}

fn dump_groups(paths: &[PathBuf]) -> Result<Answer, Failure> {
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
