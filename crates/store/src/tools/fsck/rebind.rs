//! Taking over a copied or restored pool: a new uuid for its directories, so that no other namespace finds its servers
//! any more. The handles get the numbers of the inodes that carry them later, with the other handles.
//!
//! The new uuid stands in `<namespace>/rebind` until all markers have it, so that one who was killed goes on with it.

use super::finding::{CheckFinding, DamageKind, FindingOutcome};
use super::ground::{mark, read_namespace_marker, server_marker, write_namespace_marker};
use super::options::CheckOptions;
use crate::format::marker::{MARKER_FILE, Marker, marker_server};
use crate::os::error::{Error, Result};
use crate::os::sys::{open_directory, read_file_at, replace_file};
use crate::pool::namespace::is_shared;
use crate::pool::neighbours::Quiet;
use crate::pool::pool_file::Pool;
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

/// Name of the file with the new uuid.
pub(super) const FILE: &str = "rebind";

/// Gives the pool a new uuid if `options` say so. `None`: not asked for, and nothing is half-way.
pub(super) fn switch(pool: &Pool, options: &CheckOptions) -> Result<Option<CheckFinding>> {
    let namespace = open_directory(&pool.namespace).map_err(Error::io("open the namespace", &pool.namespace))?;
    let path = pool.namespace.join(FILE);
    let begun = match read_file_at(&namespace, FILE, 64) {
        Ok(uuid) => Some(String::from_utf8_lossy(&uuid).into_owned()),
        Err(Errno::NOENT) => None,
        Err(errno) => return Err(Error::io("read", path)(errno)),
    };
    if !options.rebind {
        let half =
            CheckFinding::new(DamageKind::HalfRebind, "taking over this pool stopped half-way", "run with --rebind");
        return Ok(begun.map(|_| half.object(FILE)));
    }
    let refused = |reason: String| Error::Invalid(format!("pool '{}' cannot be taken over: {reason}", pool.name));
    let shared = is_shared(pool).unwrap_or(false);
    let quiet = Quiet::look(&pool.namespace, !options.dry_run, shared)?;
    // Mounts of a shared pool do not count themselves: the administrator knows of them.
    if !shared && !quiet.was_quiet() {
        return Err(refused("it is mounted; unmount it".into()));
    }
    let old = read_namespace_marker(&namespace)
        .ok_or_else(|| refused("its namespace has no marker; check it first".into()))?;
    for server in pool.there() {
        let own = marker_server(&server.name, server.id);
        let known = server_marker(server).is_some_and(|marker| {
            marker.server == own && (marker.uuid == old.uuid || Some(&marker.uuid) == begun.as_ref())
        });
        if !known {
            let root = server.root.display();
            return Err(refused(format!("{root} is not its server {}; all servers must be there", server.name)));
        }
    }
    let finding =
        CheckFinding::new(DamageKind::HalfRebind, "the pool is to be taken over", "gave its directories a new uuid");
    let finding = finding.object(MARKER_FILE);
    if options.dry_run {
        return Ok(Some(CheckFinding { outcome: FindingOutcome::WouldMend, ..finding }));
    }
    let uuid = match begun {
        Some(uuid) => uuid,
        None => {
            let uuid = format!("{:032x}", u128::from_ne_bytes(crate::os::sys::random()));
            replace_file(&namespace, FILE, uuid.as_bytes(), Mode::from_raw_mode(0o600))
                .map_err(Error::io("write", &path))?;
            uuid
        }
    };
    let marker = Marker { server: "namespace".into(), uuid, ..old };
    pool.there().try_for_each(|server| mark(server, &marker))?;
    write_namespace_marker(&namespace, &marker)?;
    rustix::fs::unlinkat(&namespace, FILE, AtFlags::empty()).map_err(Error::io("remove", path))?;
    Ok(Some(CheckFinding { outcome: FindingOutcome::Mended, ..finding }))
}
