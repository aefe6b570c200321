//! Where a file goes that is written under another name and renamed.

use std::io;
use std::path::{Path, PathBuf};

/// The place of a file that a user has named `path`: behind a link its target. Two system calls.
///
/// # Errors
/// There is something that is no regular file, as a device: to rename a file over it would take it away.
pub fn output_place(path: &Path) -> io::Result<PathBuf> {
    let place = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if std::fs::metadata(&place).is_ok_and(|there| !there.is_file()) {
        let what = "it is there and no regular file; name another file";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_and_devices_stay() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let (file, link) = (dir.join("file"), dir.join("link"));
        assert_eq!(output_place(&file).unwrap(), file);
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        assert_eq!(output_place(&link).unwrap(), file);
        for there in [Path::new("/dev/null"), &dir] {
            assert_eq!(output_place(there).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
    }
}
