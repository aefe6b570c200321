//! `mount -t fuse.stripewise POOL.toml DIR`, and lines of `/etc/fstab`: mount(8) calls `/sbin/mount.fuse.stripewise`,
//! which is this program under another name, with words that are not ours:
//!
//! ```text
//! mount.fuse.stripewise POOL.toml DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]
//! ```

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::error::MountError;
use crate::options::MountOptions;

/// What mount(8) asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperCall {
    /// The pool's file.
    pub pool: PathBuf,
    /// Where to mount it.
    pub dir: PathBuf,
    /// The options, understood; the source that the mount table shows is the one that mount(8) knows.
    pub options: MountOptions,
    /// `mount --fake`: look, but do not mount.
    pub fake: bool,
}

/// Whether the program was called by mount(8), to be known by the name it was called by.
pub fn is_helper(program: &OsStr) -> bool {
    Path::new(program).file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"mount."))
}

impl HelperCall {
    /// Understands what stands behind the program's name.
    ///
    /// # Errors
    /// Words that mount(8) does not use, and unknown options, unless `-s` says to overlook those.
    pub fn parse(args: impl IntoIterator<Item = OsString>, is_root: bool) -> Result<HelperCall, MountError> {
        let mut args = args.into_iter();
        let (mut paths, mut lists) = (Vec::new(), Vec::new());
        let (mut fake, mut sloppy) = (false, false);
        while let Some(arg) = args.next() {
            let Some(letters) = arg.to_str().and_then(|arg| arg.strip_prefix('-')).filter(|rest| !rest.is_empty())
            else {
                paths.push(PathBuf::from(arg));
                continue;
            };
            let wrong = || MountError::HelperCall { word: format!("-{letters}") };
            match letters {
                "o" => lists.push(args.next().and_then(|list| list.into_string().ok()).ok_or_else(wrong)?),
                "t" => drop(args.next().ok_or_else(wrong)?),
                letters if letters.bytes().all(|letter| b"sfnv".contains(&letter)) => {
                    fake |= letters.contains('f');
                    sloppy |= letters.contains('s');
                }
                _ => return Err(wrong()),
            }
        }
        let [pool, dir] = <[PathBuf; 2]>::try_from(paths)
            .map_err(|paths| MountError::HelperCall { word: format!("{} of POOL.toml and DIR", paths.len()) })?;
        let mut options = MountOptions::defaults(is_root);
        options.source = Some(pool.clone().into_os_string());
        for option in lists.iter().flat_map(|list| list.split(',')) {
            match options.add(option) {
                Err(MountError::UnknownOption { .. }) if sloppy => {}
                added => added?,
            }
        }
        Ok(HelperCall { pool, dir, options, fake })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mount::MountFlags;

    fn parse(line: &str) -> Result<HelperCall, MountError> {
        HelperCall::parse(line.split(' ').map(OsString::from), true)
    }

    #[test]
    fn what_mount_says_is_understood() {
        let call = parse("/p/pool.toml /data -o rw,noatime,_netdev -v -n -t fuse.stripewise").unwrap();
        assert_eq!((call.pool.as_path(), call.dir.as_path()), (Path::new("/p/pool.toml"), Path::new("/data")));
        assert!(call.options.flags.contains(MountFlags::NOATIME) && !call.fake);
        assert_eq!(call.options.source.as_deref(), Some(OsStr::new("/p/pool.toml")));
        assert!(parse("p d -fv").unwrap().fake);
    }

    #[test]
    fn unknown_options_fail_unless_sloppy_and_unknown_words_always() {
        assert!(parse("p d -o nosiud").unwrap_err().to_string().contains("`nosiud`"));
        assert_eq!(parse("p d -s -o nosiud,ro").unwrap().options.flags & MountFlags::RDONLY, MountFlags::RDONLY);
        for wrong in ["p d -x", "p d -o", "p", "p d e", "p d -N 1"] {
            let text = parse(wrong).unwrap_err().to_string();
            assert!(text.contains("mount(8)"), "{text}");
        }
    }

    #[test]
    fn the_name_tells() {
        assert!(is_helper(OsStr::new("/sbin/mount.fuse.stripewise")));
        assert!(!is_helper(OsStr::new("/usr/bin/stripewise-mount")));
    }
}
