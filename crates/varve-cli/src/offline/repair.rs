//! `varve repair` and `varve restore`: a new copy of a snapshot store, from what it says itself or from a text.

use super::disks::with_writable_disks;
use super::renew::{Renewed, Wish, renew};
use crate::answer::Answer;
use crate::confirm;
use crate::grammar::{RepairOptions, RestoreOptions};
use crate::table;
use crate::units::size;
use serde::Serialize;
use std::path::PathBuf;
use varve_api::{Code, Failure};

/// The first line of every text that `varve dump --store` prints.
const STORE_TEXT_TITLE: &str = "varve-exception-store 1";

/// What was done.
#[derive(Serialize)]
struct Done {
    /// The store that was made anew.
    store: String,
    /// The volume that the old one is now.
    kept_as: String,
    /// Bytes of its content that could not be read.
    bytes_lost: u64,
}

/// `varve repair`.
pub(crate) fn repair(options: &RepairOptions) -> Result<Answer, Failure> {
    let command = format!("repair {}", options.store);
    let wish = Wish {
        store: options.store.clone(),
        text: None,
        dry_run: options.destroy.dry_run,
        command: command.clone(),
    };
    carry_out(&options.paths, wish, options.destroy.yes, &command)
}

/// `varve restore`.
pub(crate) fn restore(options: &RestoreOptions) -> Result<Answer, Failure> {
    let command = format!("restore {} from {}", options.store, options.file.display());
    let text = std::fs::read_to_string(&options.file).map_err(|error| {
        Failure::new(Code::FileUnusable, format!("{}: {error}", options.file.display()))
            .help("varve dump PATH… --store NAME >FILE makes such a file")
    })?;
    if text.lines().next() != Some(STORE_TEXT_TITLE) {
        let message = format!("{} is not the text of a snapshot store", options.file.display());
        return Err(Failure::new(Code::BadBackup, message)
            .help("varve dump PATH… --store NAME >FILE makes such a file"));
    }
    let wish = Wish {
        store: options.store.clone(),
        text: Some(text),
        dry_run: options.destroy.dry_run,
        command: command.clone(),
    };
    carry_out(&options.paths, wish, options.destroy.yes, &command)
}

fn carry_out(paths: &[PathBuf], wish: Wish, yes: bool, what: &str) -> Result<Answer, Failure> {
    let (store, dry_run) = (wish.store.clone(), wish.dry_run);
    if !yes && !dry_run {
        if !confirm::can_ask() {
            return Err(confirm::declined(what));
        }
        confirm::ask_plainly(&format!("{what}: make a new copy of the store and keep the old one?"))?;
    }
    let renewed =
        with_writable_disks(paths, !dry_run, async move |context, disks| renew(&context, disks, wish).await)?;
    Ok(match renewed? {
        Renewed::Planned(plan) => Answer::new(&plan, table::plan(&plan)),
        Renewed::Done { kept_as, lost } => {
            let lost_text = match lost {
                0 => String::new(),
                lost => format!("; {} of its content could not be read and are zeros now", size(lost)),
            };
            let text = format!("made the snapshot store {store} anew; the old one is {kept_as}{lost_text}");
            Answer::new(&Done { store, kept_as, bytes_lost: lost }, text)
        }
    })
}
