//! Where temporary files go.

use std::path::PathBuf;

/// `TMPDIR`, else `/var/tmp`, which unlike `/tmp` is on a disk: a temporary trace may be larger than memory.
pub(crate) fn scratch_dir() -> PathBuf {
    match std::env::var_os("TMPDIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => Some(PathBuf::from("/var/tmp")).filter(|dir| dir.is_dir()).unwrap_or_else(std::env::temp_dir),
    }
}
