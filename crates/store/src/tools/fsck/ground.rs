//! What a check stands on: the namespace's directories and marker, and the servers that are there.

use super::context::CheckOptions;
use super::finding::{CheckFinding, DamageKind, FindingOutcome};
use crate::format::handle::{ATTRIBUTE, Handle, MAX_BYTES};
use crate::os::error::{Error, Result};
use crate::os::sys::{open_directory, read_file_at, retry};
use crate::pool::epoch::EpochPage;
use crate::pool::layouts::Layouts;
use crate::pool::namespace::{
    LAYOUTS, LOCKS, MARKER_FILE, Marker, TREE, is_shared, marker_server, marker_text, read_marker,
};
use crate::pool::pool_file::{Pool, Server};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::path::Path;
use stripewise_layout::ServerId;

/// Datafiles of a server that are compared with the tree's handles, to know whose it is.
const SAMPLE: usize = 4096;

/// One server, as far as it is there.
pub(super) struct ServerGround {
    pub(super) id: ServerId,
    pub(super) name: String,
    /// Its directory, or why it counts as missing.
    pub(super) directory: Result<OwnedFd, String>,
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
        mend_markers(pool, &tree, &marker, &mut servers, &mut early)?;
        let known_layouts = Layouts::open(root, marker.shared, pool.servers.len())?;
        Ok(Some(Self {
            pool: pool.clone(),
            namespace,
            tree,
            locks: locks?,
            layouts: layouts?,
            known_layouts,
            shared: marker.shared,
            servers,
        }))
    }

    /// The directory of a server that is there.
    pub(super) fn directory(&self, id: ServerId) -> Option<BorrowedFd<'_>> {
        self.servers.get(id.index())?.directory.as_ref().ok().map(AsFd::as_fd)
    }

    /// The servers that are there.
    pub(super) fn present(&self) -> impl Iterator<Item = (&ServerGround, BorrowedFd<'_>)> {
        self.servers.iter().filter_map(|server| server.directory.as_ref().ok().map(|fd| (server, fd.as_fd())))
    }

    /// Name of a server, also of one that the pool does not have.
    pub(super) fn server_name(&self, id: ServerId) -> String {
        self.pool.server_name(id)
    }

    /// Makes everything durable.
    pub(super) fn sync(&self) -> Result<()> {
        let directories = self.present().map(|(_, fd)| fd).chain([self.namespace.as_fd()]);
        for directory in directories {
            let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let done = rustix::fs::openat(directory, ".", readable, Mode::empty()).and_then(rustix::fs::syncfs);
            done.map_err(Error::io("sync", &self.pool.namespace))?;
        }
        Ok(())
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
    let found: HashSet<_> = pool.servers.iter().filter_map(|server| marker_of(&server.root)).collect();
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
    early.mend(finding.object(MARKER_FILE), || write_marker(namespace, &marker))?;
    Ok(marker)
}

/// The marker of a directory, if it has a readable one.
pub(super) fn marker_of(root: &Path) -> Option<Marker> {
    let directory = open_directory(root).ok()?;
    read_marker(&read_file_at(directory, MARKER_FILE, 4096).ok()?).ok()
}

/// Puts a marker into a directory.
pub(super) fn write_marker(directory: impl AsFd, marker: &Marker) -> Result<()> {
    let text = marker_text(marker);
    crate::os::sys::replace_file(directory, MARKER_FILE, text.as_bytes(), Mode::from_raw_mode(0o644))
        .map_err(Error::io("write", MARKER_FILE))
}

fn found(server: &Server, namespace: &Marker) -> ServerGround {
    let directory = open_directory(&server.root).map_err(|errno| errno.to_string()).and_then(|directory| {
        let text = read_file_at(&directory, MARKER_FILE, 4096)
            .map_err(|errno| format!("no marker file {MARKER_FILE}: {errno}"))?;
        crate::pool::namespace::check_marker(&text, &namespace.uuid, &marker_server(&server.name, server.id))?;
        Ok(directory)
    });
    ServerGround { id: server.id, name: server.name.clone(), directory }
}

/// Writes the marker of a server that has none, or a damaged one, if its datafiles are this pool's and no other server
/// could be the one it is. Says what is missing otherwise.
fn mend_markers(
    pool: &Pool,
    tree: &OwnedFd,
    marker: &Marker,
    servers: &mut [ServerGround],
    early: &mut Early<'_>,
) -> Result<()> {
    let unknown = |server: &ServerGround| {
        let root = &pool.servers[server.id.index()].root;
        server.directory.is_err() && open_directory(root).is_ok() && marker_of(root).is_none()
    };
    let candidates: Vec<_> = servers.iter().filter(|server| unknown(server)).map(|server| server.id).collect();
    let missing = servers.iter().filter(|server| server.directory.is_err()).count();
    for server in servers.iter_mut() {
        let Err(reason) = &server.directory else { continue };
        let root = &pool.servers[server.id.index()].root;
        let there = open_directory(root).ok();
        let kind = if there.is_some() { DamageKind::ServerMarker } else { DamageKind::MissingServer };
        let finding = CheckFinding::new(
            kind,
            format!("server {} is not available: {reason} ({})", server.name, root.display()),
            "mount or restore its directory; what needs it is left as it is",
        );
        let finding = finding.on(&server.name);
        let sure = missing == 1 && candidates == [server.id];
        if let Some(directory) = there.filter(|_| sure)
            && has_datafiles_of(tree, &directory)?
        {
            let own = Marker { server: marker_server(&server.name, server.id), ..marker.clone() };
            let action = "wrote it anew: its datafiles are this pool's, and all other servers are there";
            early.mend(CheckFinding { action: action.into(), ..finding }, || write_marker(&directory, &own))?;
            server.directory = Ok(directory);
        } else {
            early.findings.push(finding);
        }
    }
    Ok(())
}

/// Whether a file of the tree has a datafile in `directory`.
fn has_datafiles_of(tree: &OwnedFd, directory: &OwnedFd) -> Result<bool> {
    let mut sample = HashSet::new();
    for low in 0..=255_u8 {
        let Ok(entries) = crate::tools::walk::entries(directory, format!("{low:02x}").as_ref()) else { continue };
        for entry in entries {
            let Ok(entry) = entry else { break };
            sample.extend(entry.file_name().to_str().ok().and_then(super::servers::parse).map(|name| name.0));
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
