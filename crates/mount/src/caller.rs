//! Who makes a request.

use fuser::Request;

/// The program that makes a request.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Process, by which its other groups are known; 0 if it is in another process namespace.
    pub pid: u32,
}

impl Caller {
    /// Who makes `request`.
    pub fn of(request: &Request) -> Caller {
        Caller { uid: request.uid(), gid: request.gid(), pid: request.pid() }
    }

    /// Whether the caller may keep the set-group-id bit of a file of `group`; not if nobody can tell.
    pub fn is_in(self, group: u32) -> bool {
        if self.uid == 0 || self.gid == group {
            return true;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
        groups.split_ascii_whitespace().any(|other| other.parse() == Ok(group))
    }
}
