//! Layout files on disk: reading one for the servers of a pool or cluster.

use crate::names::ServerNames;
use crate::rst::{LayoutFile, RstError};
use std::path::{Path, PathBuf};

/// Why a layout file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The layout file.
        path: PathBuf,
        /// The system's answer.
        error: std::io::Error,
    },
    /// A mistake in it.
    #[error("{}:{}: {}", path.display(), error.line, error.problem)]
    Wrong {
        /// The layout file.
        path: PathBuf,
        /// The mistake, with its line.
        error: RstError,
    },
    /// It is for other servers.
    #[error(
        "{} is for pool '{theirs}', not for '{name}'; change its `pool`, or the --{kind}", path.display()
    )]
    Other {
        /// The layout file.
        path: PathBuf,
        /// Which pool or cluster it names.
        theirs: String,
        /// Which one it is read for.
        name: String,
        /// What that is: `pool` or `cluster`.
        kind: &'static str,
    },
}

impl LayoutFile {
    /// Reads the layout file `path` for the servers `names` of the pool or cluster `name`; `kind` says which of both it is.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load(path: &Path, kind: &'static str, name: &str, names: &ServerNames) -> Result<Self, LoadError> {
        let file = Self::parse(&read(path)?, names).map_err(wrong(path))?;
        if file.pool != name {
            let (path, name) = (path.to_owned(), name.to_owned());
            return Err(LoadError::Other { path, theirs: file.pool, name, kind });
        }
        Ok(file)
    }

    /// [`LayoutFile::parse_as_named`] of the layout file `path`.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load_as_named(path: &Path) -> Result<(Self, ServerNames), LoadError> {
        Self::parse_as_named(&read(path)?).map_err(wrong(path))
    }
}

fn read(path: &Path) -> Result<String, LoadError> {
    std::fs::read_to_string(path).map_err(|error| LoadError::Read { path: path.to_owned(), error })
}

fn wrong(path: &Path) -> impl Fn(RstError) -> LoadError + '_ {
    |error| LoadError::Wrong { path: path.to_owned(), error }
}
