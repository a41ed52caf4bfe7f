//! `varve pool`, carried out.

use super::layout::{array_text, convert, disk_words, layout_word, member_table, policy_words};
use super::trash::removed;
use super::volume::milliseconds;
use super::{activate, deactivate, or_dash};
use crate::answer::Answer;
use crate::grammar::{PoolCreateOptions, PoolPolicyOptions, PoolVerb};
use crate::places::absolute;
use crate::session::Session;
use crate::table::{Table, pairs};
use crate::units::{date, size};
use varve_api::{
    Discards, Failure, InGroup, OverCommit, PolicyWords, Pool, PoolChange, PoolCreate, Rename, Resize,
    SnapshotPolicy, VolumeRemove, WhenFull, calls,
};

/// Carries out a verb of thin pools.
pub(crate) async fn pool(session: &Session, verb: PoolVerb) -> Result<Answer, Failure> {
    match verb {
        PoolVerb::Create(options) => {
            let call = calls::CreatePool(create_request(*options)?);
            if call.0.array_block_size.is_some() {
                session.warn_of(&call).await;
            }
            session.change(call, |made| format!("made {} of {}", made.name, size(made.size))).await
        }
        PoolVerb::List { group } => {
            session.show(calls::ListPools(InGroup { group }), |pools| table(pools)).await
        }
        PoolVerb::Show { name } => session.show(calls::ShowPool(name), show).await,
        PoolVerb::Extend { name, size: wanted, disks, change } => {
            let request = Resize { size: wanted, on: disk_words(&disks)?, dry_run: change.dry_run };
            let text = |now: &Pool| format!("{} now has {}", now.name, size(now.size));
            session.change(calls::ExtendPool(name, request), text).await
        }
        PoolVerb::Declare { name, policy, change } => {
            let request = PoolChange { policy: words(policy), dry_run: change.dry_run };
            let text = |now: &Pool| format!("{}: {}{}", now.name, policy_text(&now.policy), other_text(now));
            session.change(calls::ChangePool(name, request), text).await
        }
        PoolVerb::Rename { name, to, change } => {
            let request = Rename { to, dry_run: change.dry_run, ..Rename::default() };
            let call = calls::RenamePool(name.clone(), request);
            session.change(call, |now| format!("{name} is now {}", now.name)).await
        }
        PoolVerb::Activate { name, options } => activate(session, calls::ActivatePool, &name, options).await,
        PoolVerb::Deactivate { name, change } => {
            deactivate(session, calls::DeactivatePool, &name, change).await
        }
        PoolVerb::Convert { name, options } => convert(session, calls::ConvertPool, &name, *options).await,
        PoolVerb::Check { name, waiting } => {
            let job = session.ask(&calls::CheckPool(name.clone())).await?;
            session.begun(job, waiting, |_| format!("{name}: the last commit is sound")).await
        }
        PoolVerb::Remove { names, trash, destroy } => {
            let request = VolumeRemove { now: trash.now, dry_run: destroy.dry_run };
            let call = |name: String| (name.clone(), calls::RemovePool(name, request.clone()));
            let calls = names.into_iter().map(call).collect();
            session.destroy_each("pool remove", destroy.yes, calls, removed).await
        }
    }
}

fn create_request(options: PoolCreateOptions) -> Result<PoolCreate, Failure> {
    Ok(PoolCreate {
        name: options.name,
        size: options.size,
        layout: Some(layout_word(&options.layout)?),
        stripes: options.layout.stripes,
        stripe_size: options.layout.stripe_size,
        copies: options.layout.copies,
        order: options.layout.order,
        array_block_size: options.layout.array_block_size,
        read_policy: options.layout.read_policy,
        array_policy: policy_words(&options.layout.policy),
        checksums: options.layout.checksums,
        log: options.layout.log.as_deref().map(absolute).transpose()?,
        on: disk_words(&options.layout.disks)?,
        block_size: options.block_size,
        policy: words(options.policy),
        dry_run: options.change.dry_run,
    })
}

fn words(options: PoolPolicyOptions) -> PolicyWords {
    let PoolPolicyOptions { when_full, pause_timeout, auto_extend, discards, over_commit } = options;
    PolicyWords { when_full, pause_timeout, auto_extend, discards, over_commit }
}

fn volumes_text(pool: &Pool) -> String {
    match pool.trashed {
        0 => pool.volumes.to_string(),
        trashed => format!("{}, and {trashed} in the trash", pool.volumes),
    }
}

fn state(pool: &Pool) -> String {
    match (&pool.reason, pool.paused) {
        (Some(reason), _) => format!("{}: {reason}", pool.state),
        (None, true) => "WRITES WAIT FOR SPACE".to_owned(),
        (None, false) => pool.state.to_string(),
    }
}

fn table(pools: &[Pool]) -> String {
    let mut table = Table::new(&[
        "POOL",
        "SIZE>",
        "ALLOCATED>",
        "FULL>",
        "VIRTUAL>",
        "RATIO>",
        "VOLUMES>",
        "SNAPSHOTS>",
        "STATE",
    ]);
    for pool in pools {
        table.row(vec![
            pool.name.clone(),
            size(pool.size),
            size(pool.allocated),
            format!("{} %", pool.percent),
            size(pool.virtual_size),
            format!("{:.2}", pool.ratio),
            pool.volumes.to_string(),
            pool.snapshots.to_string(),
            state(pool),
        ]);
    }
    table.render("no pools; varve pool create VG/POOL --size SIZE")
}

fn policy_text(policy: &SnapshotPolicy) -> String {
    let growth = match policy.auto_extend {
        Some(extend) => format!("at {} % full it grows by {} %", extend.at_percent, extend.by_percent),
        None => "it does not grow by itself".to_owned(),
    };
    let full = match policy.when_full {
        WhenFull::Pause => format!("writes wait up to {}", milliseconds(policy.pause_timeout_ms)),
        WhenFull::DropOldest | WhenFull::Error => "writes fail".to_owned(),
    };
    format!("{growth}; when it cannot, {full}")
}

/// What is declared of other things than a full pool, as far as it is not usual.
fn other_text(pool: &Pool) -> String {
    let discards = match pool.discards {
        Discards::Ignore => "; discards do nothing",
        Discards::Keep => "",
        Discards::PassDown => "; the disks are told what is discarded",
    };
    let promises = match pool.over_commit {
        OverCommit::Allow => "",
        OverCommit::Forbid => "; no more is promised than there is",
    };
    format!("{discards}{promises}")
}

fn show(pool: &Pool) -> String {
    let head = pairs(&[
        ("pool", pool.name.clone()),
        ("id", pool.id.clone()),
        ("size", format!("{} ({} bytes)", size(pool.size), pool.size)),
        ("array", or_dash(&pool.array.as_ref().map(array_text).unwrap_or_default())),
        ("block size", size(pool.block_size)),
        ("allocated", format!("{} ({} %)", size(pool.allocated), pool.percent)),
        ("free", size(pool.free)),
        ("virtual", format!("{}, {:.2} times the size", size(pool.virtual_size), pool.ratio)),
        ("volumes", volumes_text(pool)),
        ("snapshots", pool.snapshots.to_string()),
        ("being removed", pool.removing.to_string()),
        ("state", state(pool)),
        ("created", date(pool.created)),
        ("shard", pool.shard.to_string()),
        ("when full", policy_text(&pool.policy)),
        ("discards", pool.discards.to_string()),
        ("over-commit", format!("{}; {} can be kept", pool.over_commit, size(pool.promise_max))),
    ]);
    let mut table = Table::new(&["FROM>", "LENGTH>", "LIES ON"]);
    for segment in &pool.segments {
        table.row(vec![size(segment.offset), size(segment.length), segment.areas.join(" ")]);
    }
    format!("{head}{}\n{}", member_table(pool.array.as_ref()), table.render(""))
}
