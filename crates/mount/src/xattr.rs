//! Extended attributes: those of the namespace inode, ours hidden.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::fs::Core;
use crate::inode::Node;

/// Names that are ours: the handle, and what may come beside it.
fn is_ours(name: &[u8]) -> bool {
    let ours = stripewise_store::handle::ATTRIBUTE.as_bytes();
    name.strip_prefix(ours).is_some_and(|rest| rest.is_empty() || rest[0] == b'.')
}

/// Lists of access rights would have to be enforced by us (the kernel checks the permission bits only), and are not.
fn is_acl(name: &[u8]) -> bool {
    name.starts_with(b"system.posix_acl_")
}

impl Core {
    /// The value of an attribute.
    ///
    /// # Errors
    /// `ENODATA` for ours, `EOPNOTSUPP` for access lists, or those of `getxattr`.
    pub fn get_xattr(&self, node: &Node, name: &OsStr) -> Result<Vec<u8>, Errno> {
        if is_ours(name.as_bytes()) {
            return Err(Errno::NODATA);
        }
        if is_acl(name.as_bytes()) {
            return Err(Errno::OPNOTSUPP);
        }
        let path = self.table.proc_name(node);
        // The greatest value the kernel allows.
        let mut value = Vec::with_capacity(64 << 10);
        rustix::fs::getxattr(path.path(), name, rustix::buffer::spare_capacity(&mut value))?;
        Ok(value)
    }

    /// The names of all attributes but ours, each ended by a zero.
    ///
    /// # Errors
    /// Those of `listxattr`.
    pub fn list_xattr(&self, node: &Node) -> Result<Vec<u8>, Errno> {
        let path = self.table.proc_name(node);
        let mut names = Vec::with_capacity(64 << 10);
        rustix::fs::listxattr(path.path(), rustix::buffer::spare_capacity(&mut names))?;
        Ok(visible(&names))
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// `EPERM` for ours, `EOPNOTSUPP` for access lists, or those of `setxattr`.
    pub fn set_xattr(&self, node: &Node, name: &OsStr, value: &[u8], flags: i32) -> Result<(), Errno> {
        self.may_set(name)?;
        let flags = XattrFlags::from_bits(flags as u32).ok_or(Errno::INVAL)?;
        rustix::fs::setxattr(self.table.proc_name(node).path(), name, value, flags)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// As [`Core::set_xattr`].
    pub fn remove_xattr(&self, node: &Node, name: &OsStr) -> Result<(), Errno> {
        self.may_set(name)?;
        rustix::fs::removexattr(self.table.proc_name(node).path(), name)
    }

    fn may_set(&self, name: &OsStr) -> Result<(), Errno> {
        match name.as_bytes() {
            name if is_ours(name) => Err(Errno::PERM),
            name if is_acl(name) => Err(Errno::OPNOTSUPP),
            _ => Ok(()),
        }
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
        let names = b"user.a\0user.stripewise\0user.stripewise.more\0user.stripewiser\0security.x\0";
        assert_eq!(visible(names), b"user.a\0user.stripewiser\0security.x\0");
        assert_eq!(visible(b""), b"");
    }
}
