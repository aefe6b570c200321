//! The file of keys: a line `NODE KEY` for each node, KEY in 64 hexadecimal digits. The orchestrator's file has all nodes; an
//! agent's its own.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use stripewise_orchestrate::check_node_name;

use crate::error::{AgentError, Result};
use crate::seal::{KEY_BYTES, random};

/// Bytes of a file of keys: 1 MiB, some ten thousand nodes.
const MOST_BYTES: u64 = 1 << 20;

/// Keys by node.
#[derive(Clone)]
pub struct NodeKeys(HashMap<String, [u8; KEY_BYTES]>);

impl NodeKeys {
    /// Reads a file of keys.
    ///
    /// # Errors
    /// It cannot be read; other users may read it; a line is no key.
    pub fn load(path: &Path) -> Result<Self> {
        let refused = |why: String| AgentError::Invalid(format!("the file of keys {}: {why}", path.display()));
        let meta = std::fs::metadata(path).map_err(|error| refused(error.to_string()))?;
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
        Self::parse(&text).map_err(refused)
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
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
        Ok(Self(keys))
    }

    /// The key of `node`.
    pub fn of(&self, node: &str) -> Option<&[u8; KEY_BYTES]> {
        self.0.get(node)
    }
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
        let keys = NodeKeys::parse(&format!("# keys\n{one}\n\n{two}\n")).unwrap();
        assert!(keys.of("n1").is_some() && keys.of("n2.site").is_some() && keys.of("n3").is_none());
        let refused = |text: &str| NodeKeys::parse(text).err().unwrap();
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
}
