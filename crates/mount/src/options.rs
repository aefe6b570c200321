//! Mount options (`-o a,b=c`): which go to the kernel, which to us.

use std::ffi::OsString;

use rustix::mount::MountFlags;

use crate::error::MountError;

/// What `-o` and the defaults ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Flags of mount(2).
    pub flags: MountFlags,
    /// Of set-user-id programs and devices, what a list has refused by name: no other option lets them in again.
    pub refused: MountFlags,
    /// Users other than the one who mounts may use the mount (the kernel checks permissions of every file).
    pub allow_other: bool,
    /// What a list has said of that, and not the defaults: a remount cannot change it.
    pub asked_allow_other: Option<bool>,
    /// A directory that is not empty may be mounted over.
    pub nonempty: bool,
    /// The mount is made in a namespace of mounts of this process's own, where any user may mount. What has died
    /// may be mounted over there: a user namespace may not take away what came from outside.
    pub own_namespace: bool,
    /// The kernel may serve itself the files it can: plain ones, and those that lie in one datafile.
    pub passthrough: bool,
    /// Programs wait for their turns at this mount, too, whenever the pool is orchestrated. Else only if it is orchestrated
    /// when the mount is made.
    pub orchestrated: bool,
    /// The mount counts how long servers take for requests; the kernel serves no file itself then.
    pub latencies: bool,
    /// The kernel keeps what programs write and hands it on later; the mount has the pool to itself.
    pub writeback_cache: bool,
    /// Threads that serve requests; `None` lets the pool decide.
    pub threads: Option<usize>,
    /// Each thread has a queue of its own in the kernel, instead of one for all.
    pub clone_fd: bool,
    /// Largest read request in bytes, for the kernel.
    pub max_read_bytes: Option<u32>,
    /// What the mount table shows as mounted; `None` for the pool's name.
    pub source: Option<OsString>,
    /// Change the options of a mount that is there, instead of mounting.
    pub remount: bool,
}

impl MountOptions {
    /// The defaults: no devices, no set-user-id; other users may use what root mounts.
    pub fn defaults(is_root: bool) -> MountOptions {
        MountOptions {
            flags: MountFlags::NODEV | MountFlags::NOSUID,
            refused: MountFlags::empty(),
            allow_other: is_root,
            asked_allow_other: None,
            nonempty: false,
            own_namespace: false,
            passthrough: true,
            orchestrated: false,
            latencies: false,
            writeback_cache: false,
            clone_fd: false,
            threads: None,
            max_read_bytes: None,
            source: None,
            remount: false,
        }
    }

    /// Adds a comma-separated list as given to `-o`; of options that contradict each other the last one holds, but
    /// `nosuid` and `nodev` hold wherever they stand: mount(8) writes those that it knows before all others.
    ///
    /// # Errors
    /// An unknown option, or a number that is none.
    pub fn add(&mut self, list: &str) -> Result<(), MountError> {
        for option in list.split(',').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
            if let Some((flag, set)) = kernel_flag(name) {
                if set {
                    self.refused |= flag & (MountFlags::NOSUID | MountFlags::NODEV);
                }
                self.flags.set(flag, set || self.refused.contains(flag));
                continue;
            }
            match name {
                "allow_other" | "noallow_other" => {
                    self.allow_other = name == "allow_other";
                    self.asked_allow_other = Some(self.allow_other);
                }
                "passthrough" => self.passthrough = true,
                "nopassthrough" => self.passthrough = false,
                "orchestrated" => self.orchestrated = true,
                "latencies" => self.latencies = true,
                "writeback_cache" => self.writeback_cache = true,
                "clone_fd" => self.clone_fd = true,
                "nonempty" => self.nonempty = true,
                "threads" => self.threads = Some(number(option, value, 1, 1024)? as usize),
                "max_read" => self.max_read_bytes = Some(number(option, value, 4096, 1 << 24)?),
                "fsname" => self.source = value.map(OsString::from),
                "remount" => self.remount = true,
                name if is_for_others(name) => {}
                _ => return Err(MountError::UnknownOption { option: option.to_owned() }),
            }
        }
        Ok(())
    }
}

/// What is always on, and what /etc/fstab says to mount(8), to systemd or to the boot scripts.
fn is_for_others(name: &str) -> bool {
    const MOUNT_AND_BOOT: [&str; 22] = [
        "default_permissions",
        "defaults",
        "rw",
        "auto",
        "noauto",
        "user",
        "nouser",
        "users",
        "nousers",
        "owner",
        "noowner",
        "group",
        "nogroup",
        "nofail",
        "_netdev",
        "comment",
        "helper",
        "uhelper",
        "subtype",
        "silent",
        // From the mount table, by `mount -o remount`.
        "user_id",
        "group_id",
    ];
    MOUNT_AND_BOOT.contains(&name) || name.starts_with("x-") || name.starts_with("X-")
}

fn kernel_flag(name: &str) -> Option<(MountFlags, bool)> {
    Some(match name {
        "ro" => (MountFlags::RDONLY, true),
        "rw" => (MountFlags::RDONLY, false),
        "nosuid" => (MountFlags::NOSUID, true),
        // mount(8) keeps `suid` and `dev` to itself, as they are the defaults of other file systems; the second words
        // it passes on.
        "suid" | "allow_suid" => (MountFlags::NOSUID, false),
        "nodev" => (MountFlags::NODEV, true),
        "dev" | "allow_dev" => (MountFlags::NODEV, false),
        "noexec" => (MountFlags::NOEXEC, true),
        "exec" => (MountFlags::NOEXEC, false),
        "noatime" => (MountFlags::NOATIME, true),
        "atime" => (MountFlags::NOATIME, false),
        "nodiratime" => (MountFlags::NODIRATIME, true),
        "diratime" => (MountFlags::NODIRATIME, false),
        "relatime" => (MountFlags::RELATIME, true),
        "norelatime" => (MountFlags::RELATIME, false),
        "strictatime" => (MountFlags::STRICTATIME, true),
        "nostrictatime" => (MountFlags::STRICTATIME, false),
        "lazytime" => (MountFlags::LAZYTIME, true),
        "nolazytime" => (MountFlags::LAZYTIME, false),
        "sync" => (MountFlags::SYNCHRONOUS, true),
        "async" => (MountFlags::SYNCHRONOUS, false),
        "dirsync" => (MountFlags::DIRSYNC, true),
        _ => return None,
    })
}

fn number(option: &str, value: Option<&str>, min: u32, max: u32) -> Result<u32, MountError> {
    value
        .and_then(|value| value.parse().ok())
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| MountError::BadOption { option: option.to_owned(), min, max })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_two_that_contradict_holds() {
        let mut options = MountOptions::defaults(true);
        options.add("suid,ro,noexec").unwrap();
        options.add("rw,nosuid,threads=7,x-systemd.automount").unwrap();
        assert_eq!(options.flags, MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC);
        assert_eq!(options.threads, Some(7));
    }

    #[test]
    fn a_line_of_fstab_is_understood() {
        let mut options = MountOptions::defaults(true);
        let line =
            "defaults,noauto,nofail,_netdev,user=alice,x-systemd.requires=a.mount,X-mount.mkdir,comment=disk,nodev";
        options.add(line).unwrap();
        assert_eq!(options, MountOptions { refused: MountFlags::NODEV, ..MountOptions::defaults(true) });
        options.add("noatime,strictatime,ro,remount").unwrap();
        assert!(options.remount && options.flags.contains(MountFlags::NOATIME | MountFlags::STRICTATIME));
    }

    #[test]
    fn set_user_id_programs_and_devices_stay_refused_wherever_that_stands() {
        for list in ["nosuid,allow_suid", "allow_suid,nosuid", "nosuid,suid,ro", "suid,nosuid,allow_suid"] {
            let mut options = MountOptions::defaults(true);
            options.add(list).unwrap();
            assert!(options.flags.contains(MountFlags::NOSUID), "{list}");
        }
        let mut options = MountOptions::defaults(true);
        // Several lists count as one, as with several times `-o`.
        for list in ["nosuid", "allow_suid,allow_dev", "nodev", "dev"] {
            options.add(list).unwrap();
        }
        assert_eq!(options.flags, MountFlags::NODEV | MountFlags::NOSUID);
        let mut options = MountOptions::defaults(true);
        options.add("allow_suid,dev").unwrap();
        assert_eq!(options.flags, MountFlags::empty());
    }

    #[test]
    fn what_nobody_knows_is_named() {
        let mut options = MountOptions::defaults(false);
        let text = options.add("ro,nosiud").unwrap_err().to_string();
        assert!(text.contains("`nosiud`"), "{text}");
        let text = options.add("threads=many").unwrap_err().to_string();
        assert!(text.contains("`threads=many`") && text.contains("1024"), "{text}");
    }
}
