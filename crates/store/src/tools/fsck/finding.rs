//! What a check finds, what came of it, and the sum of a run.

use crate::tools::stretches::Stretches;
use std::path::{Path, PathBuf};

/// Kinds of damage. The names are those of the JSON output and of `docs/fsck.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DamageKind {
    /// The namespace's marker is missing or damaged.
    NamespaceMarker,
    /// A directory of the namespace is missing.
    NamespaceDirectory,
    /// A server's directory is not there.
    MissingServer,
    /// A server's directory is there, its marker is missing, damaged or another's.
    ServerMarker,
    /// The file of a layout is damaged.
    DamagedLayout,
    /// A handle names a layout that is not there.
    MissingLayout,
    /// The file of rules cannot be read.
    DamagedRules,
    /// A handle that cannot be read.
    DamagedHandle,
    /// A handle that a later release wrote.
    LaterHandle,
    /// A handle of another inode, which is not in this namespace: a copied or restored pool.
    UnboundHandle,
    /// A handle of another inode, which is in this namespace too.
    DuplicateHandle,
    /// A datafile that the handle lists is not there.
    MissingDatafile,
    /// A datafile that ends before the length that its last writer had recorded.
    ShortDatafile,
    /// Bytes that a disk cannot read.
    UnreadableBytes,
    /// A datafile that does not belong to the file's owner.
    DatafileOwner,
    /// A datafile that has another group or mode than its file.
    DatafileRights,
    /// A datafile's name leads to something that is no regular file.
    DatafileType,
    /// A truncation or a move of a file stopped half-way.
    HalfChange,
    /// A file's datafiles reach beyond the size of its inode.
    Size,
    /// The lock file of a writer that is gone.
    StaleLock,
    /// A datafile of a handle that no file has.
    OrphanDatafile,
    /// A datafile of a generation or server that its file's handle does not name.
    LeftoverDatafile,
    /// A datafile that its file's handle could have, but does not list.
    UnlistedDatafile,
    /// A datafile in the wrong directory of its server.
    MisplacedDatafile,
    /// A file that was being written when its writer ended.
    HalfWritten,
    /// A rebind that stopped half-way.
    HalfRebind,
    /// Something that is not Stripewise's in a directory that is.
    UnknownFile,
    /// Something could not be read, so that it is not known whether it is in order.
    Unreadable,
}

impl DamageKind {
    /// The name, as in the JSON output.
    pub fn name(self) -> &'static str {
        match self {
            Self::NamespaceMarker => "namespace-marker",
            Self::NamespaceDirectory => "namespace-directory",
            Self::MissingServer => "missing-server",
            Self::ServerMarker => "server-marker",
            Self::DamagedLayout => "damaged-layout",
            Self::MissingLayout => "missing-layout",
            Self::DamagedRules => "damaged-rules",
            Self::DamagedHandle => "damaged-handle",
            Self::LaterHandle => "later-handle",
            Self::UnboundHandle => "unbound-handle",
            Self::DuplicateHandle => "duplicate-handle",
            Self::MissingDatafile => "missing-datafile",
            Self::ShortDatafile => "short-datafile",
            Self::UnreadableBytes => "unreadable-bytes",
            Self::DatafileOwner => "datafile-owner",
            Self::DatafileRights => "datafile-rights",
            Self::DatafileType => "datafile-type",
            Self::HalfChange => "half-change",
            Self::Size => "size",
            Self::StaleLock => "stale-lock",
            Self::OrphanDatafile => "orphan-datafile",
            Self::LeftoverDatafile => "leftover-datafile",
            Self::UnlistedDatafile => "unlisted-datafile",
            Self::MisplacedDatafile => "misplaced-datafile",
            Self::HalfWritten => "half-written",
            Self::HalfRebind => "half-rebind",
            Self::UnknownFile => "unknown-file",
            Self::Unreadable => "unreadable",
        }
    }
}

/// What came of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingOutcome {
    /// It is in order now.
    Mended,
    /// It would be mended, were this no dry run.
    WouldMend,
    /// It is as it was: `action` says what to do.
    Left,
    /// It cannot be judged while the pool is in use: `action` says what to do.
    InUse,
    /// Nothing is wrong; worth knowing.
    Note,
}

impl FindingOutcome {
    /// The name, as in the JSON output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mended => "mended",
            Self::WouldMend => "would-mend",
            Self::Left => "left",
            Self::InUse => "in-use",
            Self::Note => "note",
        }
    }
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckFinding {
    /// What kind of damage.
    pub kind: DamageKind,
    /// What came of it.
    pub outcome: FindingOutcome,
    /// The file, relative to the mount, if it is one's.
    pub path: Option<PathBuf>,
    /// The server, as in `hdd.0`, if it is on one.
    pub server: Option<String>,
    /// The file on the disk that is meant, relative to the server's directory or to the namespace.
    pub object: Option<String>,
    /// Stretches of the file that cannot be had, as `(from, to)` in bytes; of very many the first.
    pub lost: Vec<(u64, u64)>,
    /// How many stretches there are behind these.
    pub lost_left_out: u64,
    /// What is wrong, in words.
    pub what: String,
    /// What was done, would be done, or is to be done by the reader.
    pub action: String,
}

impl CheckFinding {
    /// A finding that is left as it is until a mend changes that.
    pub(super) fn new(kind: DamageKind, what: impl Into<String>, action: impl Into<String>) -> Self {
        Self {
            kind,
            outcome: FindingOutcome::Left,
            path: None,
            server: None,
            object: None,
            lost: Vec::new(),
            lost_left_out: 0,
            what: what.into(),
            action: action.into(),
        }
    }

    pub(super) fn of(mut self, path: &Path) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    pub(super) fn on(mut self, server: &str) -> Self {
        self.server = Some(server.to_owned());
        self
    }

    /// Cannot have these stretches of its file.
    pub(super) fn without(mut self, lost: &Stretches) -> Self {
        self.lost = lost.listed.clone();
        self.lost_left_out = lost.left_out();
        self
    }

    pub(super) fn object(mut self, object: impl Into<String>) -> Self {
        self.object = Some(object.into());
        self
    }
}

/// How often each outcome came up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// [`Outcome::Mended`].
    pub mended: u64,
    /// [`Outcome::WouldMend`].
    pub would_mend: u64,
    /// [`Outcome::Left`].
    pub left: u64,
    /// [`Outcome::InUse`].
    pub in_use: u64,
    /// [`Outcome::Note`].
    pub notes: u64,
}

impl Outcomes {
    pub(super) fn add(&mut self, outcome: FindingOutcome) {
        *match outcome {
            FindingOutcome::Mended => &mut self.mended,
            FindingOutcome::WouldMend => &mut self.would_mend,
            FindingOutcome::Left => &mut self.left,
            FindingOutcome::InUse => &mut self.in_use,
            FindingOutcome::Note => &mut self.notes,
        } += 1;
    }
}

/// The sum of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Regular files in the tree.
    pub files: u64,
    /// Those of them that have a handle.
    pub placed_files: u64,
    /// Those of them that had a writer: they were left alone.
    pub files_in_use: u64,
    /// Datafiles on the servers that were there.
    pub datafiles: u64,
    /// Bytes that were read, of a check that reads all.
    pub read_bytes: u64,
    /// Outcomes by kind, in order of [`DamageKind`].
    pub kinds: Vec<(DamageKind, Outcomes)>,
}

impl CheckReport {
    /// Outcomes of all kinds together.
    pub fn total(&self) -> Outcomes {
        self.kinds.iter().fold(Outcomes::default(), |sum, (_, each)| Outcomes {
            mended: sum.mended + each.mended,
            would_mend: sum.would_mend + each.would_mend,
            left: sum.left + each.left,
            in_use: sum.in_use + each.in_use,
            notes: sum.notes + each.notes,
        })
    }

    /// Outcomes of one kind.
    pub fn of(&self, kind: DamageKind) -> Outcomes {
        self.kinds.iter().find(|each| each.0 == kind).map_or_else(Outcomes::default, |each| each.1)
    }

    /// Whether nothing was wrong.
    pub fn is_clean(&self) -> bool {
        self.exit_code() == 0
    }

    /// As fsck(8): 0 nothing was wrong, 1 something was mended, 4 something was left; 5 both.
    pub fn exit_code(&self) -> u8 {
        let total = self.total();
        u8::from(total.mended > 0) + if total.would_mend + total.left + total.in_use > 0 { 4 } else { 0 }
    }
}
