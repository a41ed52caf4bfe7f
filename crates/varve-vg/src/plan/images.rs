//! Disk images that back volumes of a group's pools: written down, forgotten, restored.

use super::{Draft, PlanError};
use crate::model::{Group, Image};
use uuid::Uuid;

impl Draft<'_> {
    pub(super) fn add_image(&mut self, image: Image) -> Result<(), PlanError> {
        self.step(format!("write down that volumes are backed by {}", image.shown()));
        self.description.images.push(image);
        Ok(())
    }

    pub(super) fn remove_image(&mut self, id: Uuid) -> Result<(), PlanError> {
        let images = &mut self.description.images;
        let gone: Vec<Image> = images.extract_if(.., |image| image.id == id).collect();
        assert!(gone.len() <= 1, "GROUP1, TEXT1: ids are different");
        for image in gone {
            self.step(format!("forget {}, over which nothing lies any more", image.shown()));
        }
        Ok(())
    }

    /// The backup's images, and those that have come since: the volumes backed by them are in the pools, and not in the backup.
    pub(super) fn restore_images(&mut self, backup: &Group) {
        let mut images = backup.images().to_vec();
        let is_known = |image: &&Image| images.iter().any(|known| known.id == image.id);
        let newer: Vec<Image> =
            self.description.images.iter().filter(|image| !is_known(image)).cloned().collect();
        images.extend(newer);
        self.description.images = images;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Change, NewDisk, Stamp, plan, plan_group};
    use super::*;
    use crate::model::ImageFormat;
    use varve_block::{MIB, UnixTime};

    fn stamp() -> Stamp {
        Stamp { date: UnixTime(1), change: "a test".to_owned() }
    }

    fn change(group: &Group, change: Change) -> Group {
        plan(group, change, &stamp()).expect("the change is possible").after
    }

    fn image(id: u128, path: &str) -> Image {
        Image {
            id: Uuid::from_u128(id),
            path: path.to_owned(),
            format: ImageFormat::default(),
            snapshot: None,
            bytes: 5,
            modified_ns: Some(7),
        }
    }

    #[test]
    fn images_come_and_go_and_a_restore_loses_none() {
        let disk =
            NewDisk { id: Uuid::from_u128(2), size: 64 * MIB, data_offset: MIB, path: "/dev/sda".into() };
        let empty =
            plan_group("data", Uuid::from_u128(1), 4 * MIB, &[disk], &stamp()).expect("a group").after;
        let one = change(&empty, Change::AddImage { image: image(3, "/one") });
        let both = change(&one, Change::AddImage { image: image(4, "/two") });
        assert_eq!(both.images(), [image(3, "/one"), image(4, "/two")]);

        let mut mended = one.description().clone();
        mended.images[0].path = "/moved".to_owned();
        let restored = change(&both, Change::Restore { backup: Box::new(mended) });
        assert_eq!(restored.images(), [image(3, "/moved"), image(4, "/two")]);

        let left = change(&restored, Change::RemoveImage { id: Uuid::from_u128(3) });
        assert_eq!(left.images(), [image(4, "/two")]);
        assert_eq!(change(&left, Change::RemoveImage { id: Uuid::from_u128(3) }).images(), left.images());
        let twice = plan(&left, Change::AddImage { image: image(4, "/four") }, &stamp());
        assert!(matches!(twice, Err(PlanError::Invalid(_))), "TEXT1: {twice:?}");
    }
}
