//! A volume in the trash: its pool keeps it under a name that no user can give, which says since when and until when.

use crate::check_name;

const MARK: char = '~';

/// When a volume was removed, and when it is given up, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Trashed {
    /// When it was removed.
    pub removed: u64,
    /// Until when it is kept.
    pub until: u64,
}

impl Trashed {
    /// What volume number `id` is called in the trash, which had this name: `~ID~REMOVED~UNTIL~NAME`. No two have the same.
    pub fn name(self, id: u64, name: &str) -> String {
        let Self { removed, until } = self;
        format!("{MARK}{id}{MARK}{removed}{MARK}{until}{MARK}{name}")
    }
}

/// The name of a volume of a pool that users know, and whether it is in the trash.
pub fn known_name(stored: &str) -> (Option<Trashed>, &str) {
    match parts(stored) {
        Some((trashed, name)) => (Some(trashed), name),
        None => (None, stored),
    }
}

/// Whether a pool may keep a volume under this name: one that users give, or that of a volume in the trash.
pub fn is_stored_name(stored: &str) -> bool {
    check_name(known_name(stored).1).is_ok()
}

fn parts(stored: &str) -> Option<(Trashed, &str)> {
    let mut parts = stored.strip_prefix(MARK)?.splitn(4, MARK);
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (_id, removed, until) = (number()?, number()?, number()?);
    Some((Trashed { removed, until }, parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_in_the_trash_has_a_name_that_nobody_can_give() {
        let trashed = Trashed { removed: 5, until: u64::MAX };
        let longest = "x".repeat(crate::NAME_LENGTH_MAX);
        for name in ["home", "a.b-c_d+e", &longest] {
            let stored = trashed.name(u64::MAX, name);
            assert_eq!(known_name(&stored), (Some(trashed), name));
            assert!(is_stored_name(&stored) && check_name(&stored).is_err(), "{stored}");
            assert!(stored.len() < 256, "the rows of a volume have room for it");
        }
        assert_eq!(known_name("home"), (None, "home"));
        assert!(is_stored_name("home"));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for wrong in [
            "",
            "~",
            "~1~2~3",
            "~1~2~3~",
            "~1~2~x~home",
            "~1~2~3~a~b",
            "~1~2~3~-a",
            "a~b",
            "~home",
            "~1~2~99999999999999999999~a",
        ] {
            assert!(!is_stored_name(wrong), "{wrong}");
        }
    }
}
