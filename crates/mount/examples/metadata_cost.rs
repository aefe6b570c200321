//! What names cost: makes files in a directory, looks at them, lists them and removes them.
//!
//! `metadata_cost create|write|read|stat|lstat|list|rename|unlink DIR FILES`
//!
//! Prints nanoseconds per file. `create` opens a new empty file for writing and closes it; `write` does the same with 4 KiB, which
//! `read` opens, reads and closes again; `list` reads the names and kinds. `stat` asks for the time of birth, too, as Rust's library and
//! the program `stat` do; `lstat` does not, as `find`, `tar` and `git`. `rename` gives each another name and its own back, and
//! prints what one of the two costs.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What a small file has.
const BYTES: [u8; 4096] = [b'x'; 4096];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, dir, files] = &arguments[..] else {
        return Err("metadata_cost create|write|read|stat|lstat|list|rename|unlink DIR FILES".into());
    };
    let (dir, files): (&Path, usize) = (dir.as_ref(), files.parse()?);
    let paths: Vec<PathBuf> = (0..files).map(|number| dir.join(format!("file-{number:07}"))).collect();
    let began = Instant::now();
    match what.as_str() {
        "create" => {
            for path in &paths {
                OpenOptions::new().write(true).create_new(true).open(path)?;
            }
        }
        "write" => {
            for path in &paths {
                OpenOptions::new().write(true).create_new(true).open(path)?.write_all(&BYTES)?;
            }
        }
        "read" => {
            let mut bytes = [0; BYTES.len()];
            for path in &paths {
                File::open(path)?.read_exact(&mut bytes)?;
                if bytes != BYTES {
                    return Err(format!("{} has other bytes than were written", path.display()).into());
                }
            }
        }
        "stat" => {
            for path in &paths {
                path.symlink_metadata()?;
            }
        }
        "lstat" => {
            for path in &paths {
                rustix::fs::lstat(path)?;
            }
        }
        "list" => {
            let mut found = 0;
            for entry in dir.read_dir()? {
                entry?.file_type()?;
                found += 1;
            }
            if found != files {
                return Err(format!("{} lists {found} files, not {files}", dir.display()).into());
            }
        }
        "rename" => {
            for path in &paths {
                let other = path.with_extension("renamed");
                std::fs::rename(path, &other)?;
                std::fs::rename(&other, path)?;
            }
        }
        "unlink" => {
            for path in &paths {
                std::fs::remove_file(path)?;
            }
        }
        other => return Err(format!("{other}: create, write, read, stat, lstat, list, rename or unlink").into()),
    }
    let calls = if what == "rename" { 2 * files } else { files };
    println!("{:.0}", began.elapsed().as_nanos() as f64 / calls as f64);
    Ok(())
}
