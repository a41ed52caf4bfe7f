//! Which users of the host may use the sockets and files of exports.
//!
//! Invariant EXPORTACCESS1: exports at one address share its file, and so what it lets; what is remembered of them is the same.

use super::address::Address;
use super::known_exports::Exports;
use crate::host::path_calls::at_path;
use std::path::PathBuf;
use varve_api::{Code, ExportAccess, Failure, FileMode};
use varve_block::host::FileAccess;
use varve_volume::Host;

/// What a mode has to let the owner do: read and write.
const OWNER_MODE: u32 = 0o600;

/// What is wanted of `address`, by what a user says of it, who says nothing of what stays as it is `now`.
pub(super) fn parse(
    (mode, group): (Option<&str>, Option<&str>),
    address: Option<&Address>,
    now: &ExportAccess,
) -> Result<ExportAccess, Failure> {
    if mode.is_none() && group.is_none() {
        return Ok(now.clone());
    }
    if let Some(address) = address.filter(|address| !address.has_permissions) {
        let message =
            format!("--mode and --group are for sockets and files, and {} is neither", address.text);
        return Err(Failure::new(Code::Usage, message)
            .help("--nbd unix:PATH, --vhost-user PATH or --fuse FILE; or leave them out"));
    }
    let bad_mode = |message: String| Failure::new(Code::Usage, message).help("--mode 0660, or --mode 0600");
    let mode = match mode {
        None => now.mode,
        Some(text) => Some(text.parse::<FileMode>().map_err(|why| bad_mode(format!("--mode: {why}")))?),
    };
    if let Some(mode) = mode.filter(|mode| mode.bits() & OWNER_MODE != OWNER_MODE) {
        return Err(bad_mode(format!(
            "--mode {mode} does not let the owner, the daemon's user, read and write"
        )));
    }
    let group = match group {
        None => now.group.clone(),
        Some("") => return Err(Failure::new(Code::Usage, "--group has no name").help("getent group")),
        Some(group) => Some(group.to_owned()),
    };
    Ok(ExportAccess { mode, group })
}

/// What the file at `address` is to let, in numbers. A group that is not there, or to which files may not be given, is refused.
pub(super) async fn resolve(
    host: &Host,
    address: &Address,
    access: &ExportAccess,
) -> Result<FileAccess, Failure> {
    let mode = access.mode.unwrap_or(FileMode::OWNER).bits();
    let Some(name) = access.group.clone() else { return Ok(FileAccess { mode, group: None }) };
    let (asked, path) = (name.clone(), address.file.clone().unwrap_or_else(|| PathBuf::from("/")));
    let found = at_path(host, &path, move |files| files.find_group(&asked)).await?;
    let group = found.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::new(Code::Usage, format!("there is no group {name}")).help("getent group; groupadd")
        }
        std::io::ErrorKind::PermissionDenied => {
            let message = format!("the daemon may not give files to group {name}");
            Failure::new(Code::DoorFailed, message)
                .help("add the daemon's user to the group, or let the daemon have CAP_CHOWN, and restart it")
        }
        _ => Failure::new(Code::DoorFailed, format!("group {name}: {error}")).help("getent group"),
    })?;
    Ok(FileAccess { mode, group: Some(group) })
}

/// Permissions in words.
pub(super) fn words(access: &ExportAccess) -> String {
    let mode = access.mode.unwrap_or(FileMode::OWNER);
    let group = access.group.as_ref().map(|group| format!(" and group {group}"));
    format!("mode {mode}{}", group.unwrap_or_default())
}

impl Exports {
    /// The ID and permissions of an export that is at an address already (EXPORTACCESS1).
    fn access_at(&self, address: &Address) -> Option<(String, ExportAccess)> {
        let known = self.known.borrow();
        let there = known.values().find(|export| export.remembered.address == address.text)?;
        Some((there.remembered.id.clone(), there.remembered.access.clone()))
    }

    /// What a new export has, by what a user says. Others may be at its address (EXPORTACCESS1).
    pub(super) fn access_of_new(
        &self,
        given: (Option<&str>, Option<&str>),
        address: &Address,
    ) -> Result<ExportAccess, Failure> {
        let Some((id, now)) = self.access_at(address) else {
            return parse(given, Some(address), &ExportAccess::default());
        };
        let wanted = parse(given, Some(address), &now)?;
        if wanted == now {
            return Ok(now);
        }
        let message = format!("export {id} has the same socket, with {}", words(&now));
        Err(Failure::new(Code::Usage, message)
            .help(format!("leave --mode and --group out, or change both: varve export change {id}")))
    }

    /// Notes what all exports at an address have in common (EXPORTACCESS1, EXPORTTLS1).
    pub(super) fn set_shared(&self, address: &str, access: &ExportAccess, tls: Option<&PathBuf>) {
        for known in self.known.borrow_mut().values_mut().filter(|known| known.remembered.address == address)
        {
            (known.remembered.access, known.remembered.tls) = (access.clone(), tls.cloned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn what_is_not_given_stays_and_what_the_owner_could_not_use_is_refused() {
        let address = Address { has_permissions: true, ..Address::of_file(Path::new("/run/a.sock")) };
        let now = ExportAccess { mode: "0660".parse().ok(), group: Some("qemu".to_owned()) };
        let change = |mode, group| parse((mode, group), Some(&address), &now);
        assert_eq!(change(None, None), Ok(now.clone()));
        let mode = "0600".parse().ok();
        assert_eq!(change(Some("600"), None), Ok(ExportAccess { mode, ..now.clone() }));
        let group = Some("kvm".to_owned());
        assert_eq!(change(None, Some("kvm")), Ok(ExportAccess { group, ..now.clone() }));
        for mode in ["0060", "0400", "0200", "0", "1660", "rw", ""] {
            let refused = change(Some(mode), None).expect_err(mode);
            assert_eq!((refused.code, refused.help.as_str()), (Code::Usage, "--mode 0660, or --mode 0600"));
        }
        assert_eq!(change(None, Some("")).map_err(|refused| refused.code), Err(Code::Usage));
        let bare = Address { has_permissions: false, ..address.clone() };
        let refused = parse((Some("0660"), None), Some(&bare), &now).expect_err("no file");
        assert!(refused.message.contains("/run/a.sock is neither"), "{refused}");
        assert_eq!(parse((None, None), Some(&bare), &now), Ok(now.clone()));
        assert_eq!(words(&now), "mode 0660 and group qemu");
        assert_eq!(words(&ExportAccess::default()), "mode 0600");
    }
}
