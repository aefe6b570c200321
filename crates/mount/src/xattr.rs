//! Extended attributes: those of the namespace inode, ours hidden.

use std::ffi::{CStr, OsStr};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use stripewise_store::LastOpens;

use crate::caller::Caller;
use crate::core::Core;
use crate::node::{Node, SharedFile};
use crate::sync::atomic::AtomicUsize;
use crate::{Failure, lock};

/// Names that are ours: the handle, and what may come beside it, and whose the file was.
fn is_ours(name: &[u8]) -> bool {
    if name == stripewise_store::handle::FORMER_OWNER.as_bytes() {
        return true;
    }
    let ours = stripewise_store::handle::ATTRIBUTE.as_bytes();
    name.strip_prefix(ours).is_some_and(|rest| rest.is_empty() || rest[0] == b'.')
}

/// The pool file of the mount, told of every file in it to every user; it is in no list of names. The kernel asks for no right
/// to read an attribute of the class `system`.
const POOL_FILE: &[u8] = b"system.stripewise.pool";

/// How requests travel between the kernel and this mount, told in the same way.
const TRAVEL: &[u8] = b"system.stripewise.transport";

/// What the last opens of a file have taken, and why not the rest ([`stripewise_store::LastOpens`]), told in the same way.
const OPENS: &[u8] = b"system.stripewise.opens";

/// The access control list of a file or directory, and the one that a directory hands down.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
const DEFAULT_LIST: &CStr = c"system.posix_acl_default";
/// File capabilities; what changes a file's bytes or owner takes them.
const CAPABILITIES: &CStr = c"security.capability";

fn is_acl(name: &[u8]) -> bool {
    name == ACCESS_LIST || name == DEFAULT_LIST.to_bytes()
}

impl Core {
    /// Whether the file system of the namespace has access control lists. One system call.
    pub fn namespace_has_acl(&self) -> bool {
        let mut nothing: [u8; 0] = [];
        let asked = self.table.get(crate::inode::ROOT_INO).and_then(|root| {
            rustix::fs::getxattr(self.table.proc_name(&root).path(), DEFAULT_LIST, nothing.as_mut_slice())
        });
        matches!(asked, Ok(_) | Err(Errno::NODATA))
    }

    /// Whether the directory hands a list down to what is made in it. One system call.
    ///
    /// # Errors
    /// Those of `getxattr`.
    pub fn has_default_acl(&self, dir: &Node) -> Result<bool, Errno> {
        let mut nothing: [u8; 0] = [];
        match rustix::fs::getxattr(self.table.proc_name(dir).path(), DEFAULT_LIST, nothing.as_mut_slice()) {
            Ok(_) => Ok(true),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// The value of an attribute; of a user's attribute if the caller may read the file now.
    ///
    /// # Errors
    /// `ENODATA` for ours, `EOPNOTSUPP` for lists that nothing would check, or those of `getxattr`.
    pub fn get_xattr(&self, node: &Node, name: &OsStr, caller: Caller) -> Result<Vec<u8>, Errno> {
        if is_ours(name.as_bytes()) {
            return Err(Errno::NODATA);
        }
        if name.as_bytes() == POOL_FILE {
            return Ok(self.store.pool().file.as_os_str().as_bytes().to_vec());
        }
        if name.as_bytes() == TRAVEL {
            return Ok(self.travel().into_bytes());
        }
        if name.as_bytes() == OPENS {
            return self.opens_of(node, caller).map(|opens| opens.to_string().into_bytes());
        }
        self.knows_lists(name)?;
        // Other kinds all users may read, or the kernel decides by the caller alone.
        if name.as_bytes().starts_with(b"user.") {
            return self.as_caller(caller, || self.value_of(node, name));
        }
        self.value_of(node, name)
    }

    /// What this mount knows of the opens of a regular file, for a caller who may read it now. Three system calls.
    fn opens_of(&self, node: &Node, caller: Caller) -> Result<LastOpens, Errno> {
        if !node.is_file() {
            return Err(Errno::NODATA);
        }
        // Without root's rights nothing can be asked as another user.
        if !self.is_root && caller.uid != 0 && caller.uid != rustix::process::geteuid().as_raw() {
            return Err(Errno::ACCESS);
        }
        // The kernel asks for the right to read a file before it looks for a user's attribute of it.
        match self.as_caller(caller, || self.value_of(node, OsStr::new(stripewise_store::handle::ATTRIBUTE))) {
            Ok(_) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
        let shared = lock(&node.shared).clone();
        let count = |of: fn(&SharedFile) -> &AtomicUsize| {
            shared.as_ref().map_or(0, |shared| of(shared).load(Ordering::Acquire))
        };
        let (opens, writing) = (count(|shared| &shared.opens), count(|shared| &shared.writable));
        let last = self.store.last_opens(node.fd.as_fd()).map_err(|error| error.errno())?;
        Ok(LastOpens { opens, writing, ..last })
    }

    fn value_of(&self, node: &Node, name: &OsStr) -> Result<Vec<u8>, Errno> {
        let path = self.table.proc_name(node);
        // The greatest value the kernel allows.
        let mut value = Vec::with_capacity(64 << 10);
        rustix::fs::getxattr(path.path(), name, rustix::buffer::spare_capacity(&mut value))?;
        Ok(value)
    }

    /// The names of all attributes but ours, each ended by a zero; trusted ones for the administrator of the machine.
    ///
    /// # Errors
    /// Those of `listxattr`.
    pub fn list_xattr(&self, node: &Node, caller: Caller) -> Result<Vec<u8>, Errno> {
        let path = self.table.proc_name(node);
        let mut names = Vec::with_capacity(64 << 10);
        rustix::fs::listxattr(path.path(), rustix::buffer::spare_capacity(&mut names))?;
        let names = visible(&names);
        let is_trusted = |name: &&[u8]| name.starts_with(b"trusted.");
        if !names.split(|byte| *byte == 0).any(|name| is_trusted(&name)) || caller.administers() {
            return Ok(names);
        }
        Ok(names.split_inclusive(|byte| *byte == 0).filter(|name| !is_trusted(name)).flatten().copied().collect())
    }

    /// Sets an attribute, as the caller.
    ///
    /// # Errors
    /// `EPERM` for ours, `EOPNOTSUPP` for lists that nothing would check, or those of `setxattr`.
    pub fn set_xattr(&self, node: &Node, name: &OsStr, value: &[u8], flags: i32, caller: Caller) -> Result<(), Errno> {
        self.may_set(name)?;
        let flags = XattrFlags::from_bits(flags as u32).ok_or(Errno::INVAL)?;
        if name.as_bytes() == CAPABILITIES.to_bytes()
            && let Ok(Some(inode)) = self.regular(node, false)
        {
            // The last close puts the size into the inode, after the program has gone on, and would take them again.
            inode.store_size().map_err(|error| error.errno())?;
        }
        self.change_xattr(node, name, caller, || {
            rustix::fs::setxattr(self.table.proc_name(node).path(), name, value, flags)
        })?;
        self.tell_of_default_list(node, name);
        if name.as_bytes() == CAPABILITIES.to_bytes()
            && let Some(shared) = &*lock(&node.shared)
        {
            shared.may_have_capabilities.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Removes an attribute, as the caller.
    ///
    /// # Errors
    /// As [`Core::set_xattr`].
    pub fn remove_xattr(&self, node: &Node, name: &OsStr, caller: Caller) -> Result<(), Errno> {
        self.may_set(name)?;
        self.change_xattr(node, name, caller, || rustix::fs::removexattr(self.table.proc_name(node).path(), name))?;
        self.tell_of_default_list(node, name);
        Ok(())
    }

    /// The attribute `name` of a directory was changed: what is made there from now on, by any mount, goes by it.
    fn tell_of_default_list(&self, node: &Node, name: &OsStr) {
        if name.as_bytes() == DEFAULT_LIST.to_bytes() {
            self.store.plane().bump_epoch(self.table.number(node.ino));
        }
    }

    /// Takes the capabilities of a program that is about to be written, as every file system does. One load, and at the
    /// first write of an opened file one system call.
    ///
    /// # Errors
    /// Those of `removexattr`.
    pub fn drop_capabilities(&self, node: &Node, shared: &SharedFile) -> Result<(), Errno> {
        if !shared.may_have_capabilities.load(Ordering::Acquire) {
            return Ok(());
        }
        let removed = match rustix::fs::removexattr(self.table.proc_name(node).path(), CAPABILITIES) {
            // A mount without privileges may not even try; mostly there is nothing to remove.
            Err(Errno::PERM) => {
                let nothing = &mut [0_u8; 0][..];
                match rustix::fs::getxattr(self.table.proc_name(node).path(), CAPABILITIES, nothing) {
                    Ok(_) => Err(Errno::PERM),
                    Err(errno) => Err(errno),
                }
            }
            removed => removed,
        };
        match removed {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {
                shared.may_have_capabilities.store(false, Ordering::Release);
                Ok(())
            }
            Err(errno) => Err(errno),
        }
    }

    /// Runs `change` of an attribute as the caller. Whether the system call is one for administrators the kernel has asked
    /// already, by the caller's capabilities; what hangs on the file, it asks now.
    fn change_xattr(
        &self,
        node: &Node,
        name: &OsStr,
        caller: Caller,
        change: impl Fn() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if !is_acl(name.as_bytes()) {
            return self.as_caller(caller, change);
        }
        // A list is a change of mode: the kernel takes the set-group-id bit from a caller who is not in the group.
        let change = || self.with_all_groups(caller, change);
        let file = if name.as_bytes() == ACCESS_LIST { self.regular(node, false) } else { Ok(None) };
        let changed = match file {
            Ok(Some(inode)) => self.change_list_of_file(node, &inode, name, change),
            Ok(None) => change().map_err(Failure::from),
            Err(failure) => Err(failure),
        };
        changed.map_err(|failure| {
            self.report(node, "changing its access control list", &failure);
            match failure {
                Failure::Errno(errno) => errno,
                Failure::Store(error) => error.errno(),
            }
        })
    }

    /// Runs `change` of the access control list `name` of a regular file, whose datafiles are their owner's alone meanwhile; then
    /// they get what the file's mode and list allow.
    fn change_list_of_file(
        &self,
        node: &Node,
        inode: &stripewise_store::Inode,
        name: &OsStr,
        change: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Failure> {
        let (before, list) = (node.stat()?, self.value_of(node, name).ok());
        let undo = || {
            self.as_owner(&before, || {
                let path = self.table.proc_name(node);
                match &list {
                    Some(list) => rustix::fs::setxattr(path.path(), name, list, XattrFlags::empty()),
                    None => rustix::fs::removexattr(path.path(), name),
                }
            })?;
            // Without a list, the mode stays what the list made it.
            self.restore_mode(node, &before)
        };
        Ok(inode.change_mode(None, change, undo)?)
    }

    fn may_set(&self, name: &OsStr) -> Result<(), Errno> {
        if is_ours(name.as_bytes()) { Err(Errno::PERM) } else { self.knows_lists(name) }
    }

    fn knows_lists(&self, name: &OsStr) -> Result<(), Errno> {
        let checked = !is_acl(name.as_bytes()) || self.has_acl.load(Ordering::Relaxed);
        if checked { Ok(()) } else { Err(Errno::OPNOTSUPP) }
    }
}

fn visible(names: &[u8]) -> Vec<u8> {
    let all = names.split_inclusive(|byte| *byte == 0);
    all.filter(|name| !is_ours(name.strip_suffix(b"\0").unwrap_or(name))).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_are_hidden() {
        let names =
            b"user.a\0user.stripewise\0user.stripewise.more\0trusted.stripewise\0user.stripewiser\0security.x\0";
        assert_eq!(visible(names), b"user.a\0user.stripewiser\0security.x\0");
        assert_eq!(visible(b""), b"");
    }
}
