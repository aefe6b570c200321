//! The file of keys: a line `NODE KEY` for each node, KEY in 64 hexadecimal digits. The orchestrator's file has all nodes; an
//! agent's its own. It is read again when it was changed or replaced.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use stripewise_orchestrate::check_node_name;

use crate::error::{AgentError, Result};
use crate::seal::{KEY_BYTES, random};

/// Bytes of a file of keys: 1 MiB, some ten thousand nodes.
const MOST_BYTES: u64 = 1 << 20;

/// Keys by node.
#[derive(Clone)]
pub struct NodeKeys {
    keys: HashMap<String, [u8; KEY_BYTES]>,
    path: PathBuf,
    /// The file that was looked at last, whether its keys hold or not.
    seen: Option<FileStamp>,
}

/// What tells a file from what it was before, or from another one of its name: device, number, length, and when it was changed.
type FileStamp = (u64, u64, u64, i64, i64);

fn stamp_of(meta: &std::fs::Metadata) -> FileStamp {
    (meta.dev(), meta.ino(), meta.len(), meta.ctime(), meta.ctime_nsec())
}

impl NodeKeys {
    /// Reads a file of keys.
    ///
    /// # Errors
    /// It cannot be read; other users may read it; a line is no key.
    pub fn load(path: &Path) -> Result<Self> {
        let refused = |why: String| AgentError::Invalid(format!("the file of keys {}: {why}", path.display()));
        let meta = std::fs::metadata(path).map_err(|error| refused(error.to_string()))?;
        let seen = Some(stamp_of(&meta));
        if !meta.is_file() || meta.len() > MOST_BYTES {
            return Err(refused(format!("it is no file of at most {MOST_BYTES} bytes")));
        }
        if meta.mode() & 0o077 != 0 {
            return Err(refused(format!(
                "its mode {:o} lets other users at it; `chmod 600` it, and make new keys if they may have read it",
                meta.mode() & 0o777
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
        let keys = parse(&text).map_err(refused)?;
        Ok(Self { keys, path: path.to_owned(), seen })
    }

    /// Reads the file again if it is another one than the one that was looked at last, and says what that has changed; what is no
    /// file of keys changes nothing. One system call where the file is the same.
    pub fn reload(&mut self) -> Option<String> {
        let seen = std::fs::metadata(&self.path).ok().map(|meta| stamp_of(&meta));
        if seen == self.seen {
            return None;
        }
        self.seen = seen;
        match Self::load(&self.path) {
            Ok(new) => {
                *self = new;
                let (path, count) = (self.path.display(), self.keys.len());
                Some(format!("the file of keys {path} has changed: its {count} keys hold from now on"))
            }
            Err(error) => Some(format!("{error}; the keys that it had before hold on")),
        }
    }

    /// The key of `node`.
    pub fn of(&self, node: &str) -> Option<&[u8; KEY_BYTES]> {
        self.keys.get(node)
    }
}

fn parse(text: &str) -> std::result::Result<HashMap<String, [u8; KEY_BYTES]>, String> {
    let mut keys = HashMap::new();
    for (number, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let no_line = || format!("line {number} is not `NODE KEY`, with a key of 64 hexadecimal digits");
        let (node, digits) = line.split_once(char::is_whitespace).ok_or_else(no_line)?;
        check_node_name(node).map_err(|error| format!("line {number}: {error}"))?;
        let key = parse_key(digits.trim()).ok_or_else(no_line)?;
        if keys.insert(node.to_owned(), key).is_some() {
            return Err(format!("line {number} is a second key of '{node}': remove one"));
        }
    }
    if keys.is_empty() {
        return Err("it has no key: `stripewise agent new-key NODE` makes a line".to_owned());
    }
    Ok(keys)
}

fn parse_key(digits: &str) -> Option<[u8; KEY_BYTES]> {
    if digits.len() != 2 * KEY_BYTES || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = [0; KEY_BYTES];
    for (byte, two) in key.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()?;
    }
    Some(key)
}

/// A new line for a file of keys.
///
/// # Errors
/// `node` is no name; the kernel has no random bytes.
pub fn new_key(node: &str) -> Result<String> {
    check_node_name(node)?;
    let digits: String = random::<KEY_BYTES>()?.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{node} {digits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_keys_and_what_is_none_is_named() {
        let (one, two) = (new_key("n1").unwrap(), new_key("n2.site").unwrap());
        assert_ne!(one[3..], two[8..]);
        let keys = parse(&format!("# keys\n{one}\n\n{two}\n")).unwrap();
        assert!(keys.contains_key("n1") && keys.contains_key("n2.site") && keys.len() == 2);
        let refused = |text: &str| parse(text).err().unwrap();
        assert!(refused("").contains("new-key"));
        assert!(refused("n1 abc").contains("line 1"));
        assert!(refused(&format!("{one}\n../x {}", "0".repeat(64))).contains("line 2: '../x' is no name"));
        assert!(refused(&format!("{one}\n{one}")).contains("second key of 'n1'"));
        assert!(refused(&format!("n1 {}", "+".repeat(64))).contains("line 1"));
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        std::fs::write(&path, new_key("n1").unwrap()).unwrap();
        for (mode, is_good) in [(0o600, true), (0o640, false), (0o604, false)] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(NodeKeys::load(&path).is_ok(), is_good, "{mode:o}");
        }
        assert!(NodeKeys::load(dir.path()).is_err());
    }

    #[test]
    fn a_file_that_is_replaced_is_read_again_and_what_is_none_changes_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        let put = |text: &str, mode: u32| {
            let new = dir.path().join("new");
            std::fs::write(&new, text).unwrap();
            std::fs::set_permissions(&new, PermissionsExt::from_mode(mode)).unwrap();
            std::fs::rename(&new, &path).unwrap();
        };
        let [one, other] = [new_key("n1").unwrap(), new_key("n1").unwrap()];
        put(&one, 0o600);
        let mut keys = NodeKeys::load(&path).unwrap();
        let before = *keys.of("n1").unwrap();
        assert_eq!(keys.reload(), None);
        for (text, mode, words) in [("n1 5", 0o600, "line 1"), (other.as_str(), 0o644, "chmod 600")] {
            put(text, mode);
            let said = keys.reload().unwrap();
            assert!(said.contains(words) && said.contains("the keys that it had before hold on"), "{said}");
            assert_eq!(keys.reload(), None, "said once");
            assert_eq!(keys.of("n1"), Some(&before));
        }
        std::fs::remove_file(&path).unwrap();
        assert!(keys.reload().unwrap().contains("hold on") && keys.reload().is_none());
        put(&format!("{other}\n{}", new_key("n2").unwrap()), 0o600);
        assert!(keys.reload().unwrap().contains("its 2 keys hold from now on"));
        assert!(keys.of("n1") != Some(&before) && keys.of("n2").is_some());
    }
}
