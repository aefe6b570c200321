//! What a check stands on: the namespace's directories and marker, and the servers that are there.

use super::finding::{CheckFinding, DamageKind, FindingOutcome};
use super::options::CheckOptions;
use crate::backend::meta::TREE;
use crate::backend::{self, Backend, Setting};
use crate::backend::{Server, ServerState};
use crate::format::handle::{ATTRIBUTE, Handle, MAX_BYTES};
use crate::format::marker::{MARKER_FILE, Marker, marker_server, marker_text, read_marker};
use crate::os::error::{Error, Result};
use crate::os::sys::{open_directory, read_file_at, replace_file, retry};
use crate::pool::epoch::EpochPage;
use crate::pool::heads::HeadLocks;
use crate::pool::layouts::LAYOUTS;
use crate::pool::layouts::Layouts;
use crate::pool::namespace::{LOCKS, is_shared};
use crate::pool::pool_file::Pool;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use stripewise_layout::ServerId;

/// Datafiles of a server that are compared with the tree's handles, to know whose it is.
const SAMPLE: usize = 4096;

/// One server, as far as it is there.
pub(super) struct ServerGround {
    backend: Box<dyn Backend>,
    /// Why it counts as missing.
    away: Option<String>,
}

/// The open pool.
pub(super) struct Ground {
    pub(super) pool: Pool,
    pub(super) namespace: OwnedFd,
    pub(super) tree: OwnedFd,
    pub(super) locks: OwnedFd,
    pub(super) layouts: OwnedFd,
    /// The layouts, read when they are needed.
    pub(super) known_layouts: Layouts,
    /// The locks of those who write no more than a file's head.
    pub(super) heads: HeadLocks,
    /// Whether several users use the pool directly.
    pub(super) shared: bool,
    pub(super) servers: Vec<ServerGround>,
}

/// Mends now or says that it would; findings of the ground come before there is a context to tell them.
struct Early<'a> {
    dry_run: bool,
    findings: &'a mut Vec<CheckFinding>,
}

impl Early<'_> {
    fn mend(&mut self, finding: CheckFinding, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let outcome = if self.dry_run { FindingOutcome::WouldMend } else { work().map(|()| FindingOutcome::Mended)? };
        self.findings.push(CheckFinding { outcome, ..finding });
        Ok(())
    }
}

impl Ground {
    /// Opens the pool. `None` in a dry run for which a directory is missing.
    pub(super) fn open(pool: &Pool, options: &CheckOptions, findings: &mut Vec<CheckFinding>) -> Result<Option<Self>> {
        let mut early = Early { dry_run: options.dry_run, findings };
        let root = &pool.namespace;
        let namespace = open_directory(root).map_err(Error::io("open the namespace", root))?;
        let open = |name: &str| open_directory(&root.join(name));
        // Without names there is nothing to compare with: most likely something is not mounted.
        let tree = open(TREE).map_err(Error::io("open the names", root.join(TREE)))?;
        let marker = namespace_marker(pool, &namespace, &mut early)?;
        for name in [LAYOUTS, LOCKS] {
            if open(name).is_err_and(|errno| errno == Errno::NOENT) {
                let finding = CheckFinding::new(
                    DamageKind::NamespaceDirectory,
                    format!("the namespace has no {name}/"),
                    "made it",
                );
                early.mend(finding.object(name), || {
                    rustix::fs::mkdirat(&namespace, name, Mode::from_raw_mode(0o700))
                        .map_err(Error::io("make directory", root.join(name)))
                })?;
                if options.dry_run {
                    return Ok(None);
                }
            }
        }
        let [layouts, locks] = [LAYOUTS, LOCKS].map(|name| open(name).map_err(Error::io("open", root.join(name))));
        let mut servers: Vec<_> = pool.servers.iter().map(|server| found(server, &marker)).collect();
        mend_markers(&tree, &marker, &mut servers, &mut early)?;
        let known_layouts = Layouts::open(pool, marker.shared)?;
        let heads = HeadLocks::open(root, marker.shared)?;
        Ok(Some(Self {
            pool: pool.clone(),
            namespace,
            tree,
            locks: locks?,
            layouts: layouts?,
            known_layouts,
            heads: if options.dry_run { heads.looking() } else { heads },
            shared: marker.shared,
            servers,
        }))
    }

    /// A server, if it is there.
    pub(super) fn server(&self, id: ServerId) -> Option<&dyn Backend> {
        self.servers.get(id.index()).filter(|server| server.away.is_none()).map(|server| &*server.backend)
    }

    /// The servers that are there. One that was removed is not, but nothing on it is looked for elsewhere: its datafiles are gone.
    pub(super) fn present(&self) -> impl Iterator<Item = &dyn Backend> {
        let there = self.servers.iter().filter(|server| server.away.is_none()).map(|server| &*server.backend);
        there.filter(|backend| backend.server().state != ServerState::Removed)
    }

    /// Name of a server, also of one that the pool does not have.
    pub(super) fn server_name(&self, id: ServerId) -> String {
        self.pool.server_name(id)
    }

    /// Makes everything durable.
    pub(super) fn sync(&self) -> Result<()> {
        let error = || Error::io("sync", &self.pool.namespace);
        self.present().try_for_each(|backend| backend.upkeep().sync().map_err(error()))?;
        let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let namespace = rustix::fs::openat(&self.namespace, ".", readable, Mode::empty());
        namespace.and_then(rustix::fs::syncfs).map_err(error())
    }

    /// Tells all holders of a placement to fetch it again.
    pub(super) fn bump_epoch(&self, handle: u64) -> Result<()> {
        EpochPage::open(&self.pool.namespace, is_shared(&self.pool)?).map(|page| page.bump(handle))
    }
}

/// The namespace's marker; made again from those of the servers if it is missing or damaged and they agree.
fn namespace_marker(pool: &Pool, namespace: &OwnedFd, early: &mut Early<'_>) -> Result<Marker> {
    let reason = match read_file_at(namespace, MARKER_FILE, 4096) {
        Ok(text) => match read_marker(&text) {
            Ok(marker) => return Ok(marker),
            Err(reason) => reason,
        },
        Err(Errno::NOENT) => format!("it has no {MARKER_FILE}"),
        Err(errno) => return Err(Error::io("read", pool.namespace.join(MARKER_FILE))(errno)),
    };
    let found: HashSet<_> = pool.servers.iter().filter_map(server_marker).collect();
    let uuids: HashSet<_> = found.iter().map(|marker| &marker.uuid).collect();
    let Some(marker) = found.iter().next().filter(|_| uuids.len() == 1) else {
        return Err(Error::Invalid(format!(
            "namespace {}: {reason}, and the servers' markers do not say which pool it is; restore the file",
            pool.namespace.display()
        )));
    };
    let marker = Marker { server: "namespace".into(), ..marker.clone() };
    let finding =
        CheckFinding::new(DamageKind::NamespaceMarker, reason, "wrote it anew, with the uuid of the servers' markers");
    early.mend(finding.object(MARKER_FILE), || write_namespace_marker(namespace, &marker))?;
    Ok(marker)
}

/// The marker of the namespace, if it has a readable one.
pub(super) fn read_namespace_marker(namespace: &OwnedFd) -> Option<Marker> {
    read_marker(&read_file_at(namespace, MARKER_FILE, 4096).ok()?).ok()
}

/// Puts a marker into the namespace.
pub(super) fn write_namespace_marker(namespace: &OwnedFd, marker: &Marker) -> Result<()> {
    replace_file(namespace, MARKER_FILE, marker_text(marker).as_bytes(), Mode::from_raw_mode(0o644))
        .map_err(Error::io("write", MARKER_FILE))
}

/// What stands at a server's place, whatever its marker says.
fn unchecked(server: &Server) -> Box<dyn Backend> {
    backend::of(server, &Setting::default())
}

/// The marker of what stands at a server's place, if it has a readable one.
pub(super) fn server_marker(server: &Server) -> Option<Marker> {
    read_marker(&backend::site(server).marker().ok()?).ok()
}

/// Whether what stands at a server's place tells of its marker: that there is none, or what is in it. One on a disk that cannot be read may be
/// whole.
fn tells_of_marker(server: &Server) -> bool {
    matches!(backend::site(server).marker(), Ok(_) | Err(Errno::NOENT | Errno::NOTDIR))
}

/// Puts a marker of the pool onto what stands at a server's place.
pub(super) fn mark(server: &Server, of_pool: &Marker) -> Result<()> {
    let own = Marker { server: marker_server(&server.name, server.id), ..of_pool.clone() };
    let path = server.root.join(MARKER_FILE);
    backend::site(server).write_marker(&marker_text(&own)).map_err(Error::io("write", path))
}

fn found(server: &Server, namespace: &Marker) -> ServerGround {
    let setting = Setting { pool_uuid: Some((*namespace.uuid).into()), ..Setting::default() };
    let backend = backend::of(server, &setting);
    let away = backend.connect().err().map(|error| match error {
        Error::MissingServer { reason, .. } => reason,
        other => other.to_string(),
    });
    ServerGround { backend, away }
}

/// Writes the marker of a server that has none, or a damaged one, if its datafiles are this pool's and no other server
/// could be the one it is. Says what is missing otherwise.
fn mend_markers(tree: &OwnedFd, marker: &Marker, servers: &mut [ServerGround], early: &mut Early<'_>) -> Result<()> {
    let unmarked = |server: &ServerGround| {
        let there = unchecked(server.backend.server());
        let of = server.backend.server();
        let is_unmarked = server.away.is_some() && tells_of_marker(of) && server_marker(of).is_none();
        (is_unmarked && there.connect().is_ok()).then_some(there)
    };
    let candidates = servers.iter().filter(|server| unmarked(server).is_some()).count();
    let missing = servers.iter().filter(|server| server.away.is_some()).count();
    for ground in servers.iter_mut() {
        let Some(reason) = &ground.away else { continue };
        let server = ground.backend.server().clone();
        let is_there = unchecked(&server).connect().is_ok() && tells_of_marker(&server);
        let kind = if is_there { DamageKind::ServerMarker } else { DamageKind::MissingServer };
        let finding = CheckFinding::new(
            kind,
            format!("server {} is not available: {reason} ({})", server.name, server.root.display()),
            "mount or restore its directory; what needs it is left as it is",
        );
        let finding = finding.on(&server.name);
        let candidate = unmarked(ground).filter(|_| missing == 1 && candidates == 1);
        if let Some(there) = candidate
            && has_datafiles_of(tree, &*there)?
        {
            let action = "wrote it anew: its datafiles are this pool's, and all other servers are there";
            let mended = CheckFinding { action: action.into(), ..finding.clone() };
            match early.mend(mended, || mark(&server, marker)) {
                Ok(()) => *ground = ServerGround { backend: there, away: None },
                // What needs the server is listed all the same.
                Err(error) => {
                    early.findings.push(CheckFinding { action: format!("{error}; {}", finding.action), ..finding });
                }
            }
        } else {
            early.findings.push(finding);
        }
    }
    Ok(())
}

/// Whether a file of the tree has a datafile on that server.
fn has_datafiles_of(tree: &OwnedFd, backend: &dyn Backend) -> Result<bool> {
    let mut sample = HashSet::new();
    for part in 0..backend.upkeep().parts() {
        for found in backend.upkeep().list(part).into_iter().flatten() {
            let Ok(found) = found else { break };
            if let backend::Found::Datafile(key) | backend::Found::Elsewhere(key, _) = found {
                sample.insert(key.handle);
            }
            if sample.len() >= SAMPLE {
                break;
            }
        }
    }
    if sample.is_empty() {
        return Ok(false);
    }
    let found = std::sync::atomic::AtomicBool::new(false);
    crate::tools::walk::walk(
        tree,
        1,
        &|entry: &crate::tools::walk::WalkedFile<'_>| {
            let mut bytes = [0; MAX_BYTES];
            if let Ok(fd) = entry.open()
                && let Ok(len) =
                    retry(|| rustix::fs::getxattr(crate::os::sys::proc_path(fd.as_fd()), ATTRIBUTE, &mut bytes[..]))
                && Handle::decode(&bytes[..len]).is_ok_and(|handle| sample.contains(&handle.logical))
            {
                found.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            Ok(!found.load(std::sync::atomic::Ordering::Relaxed))
        },
        &|_, _| (),
    )?;
    Ok(found.into_inner())
}
