//! How the metadata of a group's exception stores and pools is kept: declared, and put into words.

use super::{Draft, Plan, PlanError};
use crate::model::{Group, Metadata, MetadataOrder};
use crate::size::format_size;

impl Draft<'_> {
    pub(super) fn set_metadata(&mut self, metadata: Metadata) -> Result<(), PlanError> {
        self.description.group.metadata = declared(metadata);
        let group = self.group_name().to_owned();
        self.step(format!("let group {group} {}", metadata_text(metadata)));
        Ok(())
    }
}

impl Plan {
    /// The same plan of a new group, which declares how its metadata is kept.
    pub fn with_metadata(mut self, metadata: Metadata) -> Result<Plan, PlanError> {
        assert_eq!(self.based_on, 0, "only a new group is planned so");
        let mut description = self.after.description().clone();
        description.group.metadata = declared(metadata);
        self.after = Group::new(description).map_err(PlanError::Invalid)?;
        if metadata != Metadata::default() {
            self.steps.push(format!("let it {}", metadata_text(metadata)));
        }
        Ok(self)
    }
}

/// What the text of a group holds: nothing for what is usual.
fn declared(metadata: Metadata) -> Option<Metadata> {
    (metadata != Metadata::default()).then_some(metadata)
}

/// `keep …`, as shown to users.
fn metadata_text(metadata: Metadata) -> String {
    let size = format_size(metadata.cache_bytes);
    let each = if metadata.per_gib { " for each GiB" } else { "" };
    let policy = metadata.cache_policy.word();
    let order = match metadata.order {
        MetadataOrder::Logged => "write it later, behind the log",
        MetadataOrder::WriteThrough => "write it with each batch",
    };
    format!("keep up to {size} of metadata{each} in memory by {policy} and {order}")
}

#[cfg(test)]
mod tests {
    use super::super::{Change, NewDisk, Stamp, plan, plan_group};
    use super::*;
    use crate::PlanError;
    use crate::model::CachePolicy;
    use uuid::Uuid;
    use varve_block::{KIB, UnixTime};

    fn stamp() -> Stamp {
        Stamp { date: UnixTime(0), change: "test".into() }
    }

    fn group() -> Plan {
        let disk =
            NewDisk { id: Uuid::from_u128(7), size: 64 << 20, data_offset: 1 << 20, path: "/d".into() };
        plan_group("data", Uuid::from_u128(1), 4 << 20, &[disk], &stamp()).expect("sound")
    }

    #[test]
    fn what_is_usual_is_not_written_down_and_what_is_not_comes_back() {
        let usual = group().with_metadata(Metadata::default()).expect("sound");
        assert_eq!(usual, group(), "nothing is said of what is usual");
        assert!(!usual.after.text().contains("metadata"));
        let small = Metadata {
            cache_bytes: 8 * KIB,
            per_gib: true,
            cache_policy: CachePolicy::Lru,
            order: MetadataOrder::WriteThrough,
        };
        let made = group().with_metadata(small).expect("sound");
        let read = Group::from_text(&made.after.text()).expect("sound");
        assert_eq!(read.metadata(), small);
        let back =
            plan(&read, Change::SetMetadata { metadata: Metadata::default() }, &stamp()).expect("sound");
        assert_eq!(back.after.entry().metadata, None);
        assert_eq!(back.steps.len(), 1);
        let other = plan(&usual.after, Change::SetMetadata { metadata: small }, &stamp()).expect("sound");
        assert_eq!(
            other.steps,
            [
                "let group data keep up to 8.0 KiB of metadata for each GiB in memory by lru and write it with each batch"
            ]
        );
    }

    #[test]
    fn a_budget_that_makes_no_sense_is_refused() {
        let (usual, change) = (group().after, |metadata| Change::SetMetadata { metadata });
        for (cache_bytes, per_gib, sound) in [
            (64 * KIB, false, true),
            (64 * KIB - 1, false, false),
            (1 << 40, false, true),
            ((1 << 40) + 1, false, false),
            (512, true, true),
            (511, true, false),
            (1 << 30, true, true),
            ((1 << 30) + 1, true, false),
        ] {
            let metadata = Metadata { cache_bytes, per_gib, ..Metadata::default() };
            let planned = plan(&usual, change(metadata), &stamp());
            assert_eq!(planned.is_ok(), sound, "{cache_bytes} {per_gib}");
            assert!(sound || matches!(planned, Err(PlanError::Invalid(_))));
        }
    }
}
