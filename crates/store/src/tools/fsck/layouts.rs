//! Layouts that a check needs: read, or found again.

use super::context::Context;
use super::finding::{CheckFinding, DamageKind};
use crate::os::error::{Error, Result};
use crate::os::sync::{Mutex, guard};
use crate::os::sys::{open_directory, read_file_at};
use crate::pool::layouts::{MAX_BYTES, hex};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use stripewise_layout::{Layout, ServerId};

/// Longest damaged layout of which every byte is tried.
const MAX_CORRECTED_BYTES: usize = 2048;

/// Layouts that could not be read, with what was found instead.
#[derive(Debug, Default)]
pub(super) struct Lost(Mutex<HashMap<[u8; 32], Option<Arc<Layout>>>>);

impl Lost {
    /// The layout of that hash; `None` when it is lost. It is told once.
    pub(super) fn get(&self, context: &Context<'_>, hash: &[u8; 32]) -> Option<Arc<Layout>> {
        if let Ok(layout) = context.ground.known_layouts.get(hash) {
            return Some(layout);
        }
        let mut lost = guard(&self.0);
        if let Some(known) = lost.get(hash) {
            return known.clone();
        }
        let found = search(context, hash);
        lost.insert(*hash, found.clone());
        found
    }
}

/// Looks for the layout of that hash and keeps it where it belongs.
fn search(context: &Context<'_>, hash: &[u8; 32]) -> Option<Arc<Layout>> {
    let name = hex(hash);
    let stands = read_file_at(&context.ground.layouts, name.as_str(), MAX_BYTES);
    let (kind, what) = match &stands {
        Ok(_) => (DamageKind::DamagedLayout, "its bytes do not have the hash that is its name".to_owned()),
        Err(Errno::NOENT) => (DamageKind::MissingLayout, "a file's handle names a layout that is not there".to_owned()),
        Err(errno) => (DamageKind::DamagedLayout, errno.to_string()),
    };
    let finding = CheckFinding::new(kind, what, "").object(format!("layouts/{name}"));
    let Some((layout, whence)) = found_again(context, hash, stands.as_deref().unwrap_or_default()) else {
        let action =
            "restore it from a backup, or name a pool that has it with --layouts-from; its files cannot be read";
        context.left(CheckFinding { action: action.into(), ..finding });
        return None;
    };
    let put = || {
        match rustix::fs::unlinkat(&context.ground.layouts, name.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(Error::io("replace layout", &name)(errno)),
        }
        context.ground.known_layouts.put(&layout).map(drop)
    };
    context.mend(CheckFinding { action: format!("found again: {whence}"), ..finding }, put);
    Some(Arc::new(layout))
}

fn found_again(context: &Context<'_>, hash: &[u8; 32], damaged: &[u8]) -> Option<(Layout, String)> {
    let right = |bytes: &[u8]| {
        let servers = context.ground.pool.servers.len();
        (blake3::hash(bytes) == *hash).then(|| Layout::from_bytes_within(bytes, servers).ok()).flatten()
    };
    // A copy that was half-way to its name.
    let mut directories = vec![context.ground.pool.namespace.clone()];
    directories.extend(context.options.layouts_from.iter().cloned());
    for directory in directories {
        let path = directory.join(crate::pool::layouts::LAYOUTS);
        let Ok(fd) = open_directory(&path) else { continue };
        for entry in crate::tools::walk::entries(&fd, ".".as_ref()).into_iter().flatten().flatten() {
            let same_name = entry.file_name().to_bytes() == hex(hash).as_bytes();
            if !same_name && !entry.file_name().to_bytes().starts_with(b".") {
                continue;
            }
            let found = read_file_at(&fd, entry.file_name(), MAX_BYTES).ok().and_then(|bytes| right(&bytes));
            if let Some(layout) = found {
                let name = std::ffi::OsStr::from_bytes(entry.file_name().to_bytes());
                return Some((layout, path.join(name).display().to_string()));
            }
        }
    }
    let usual = usual_layouts(context).find(|layout| layout.hash() == *hash);
    if let Some(layout) = usual {
        return Some((layout, "it is plain striping over the pool's servers".into()));
    }
    if !damaged.is_empty() && damaged.len() <= MAX_CORRECTED_BYTES {
        let mut bytes = damaged.to_vec();
        for at in 0..bytes.len() {
            let stood = bytes[at];
            for byte in 0..=255 {
                bytes[at] = byte;
                if let Some(layout) = right(&bytes) {
                    return Some((layout, format!("byte {at} was wrong, by the hash")));
                }
            }
            bytes[at] = stood;
        }
    }
    None
}

/// Layouts that people most often have: all servers, or those of a tier, with one width.
fn usual_layouts<'a>(context: &'a Context<'_>) -> impl Iterator<Item = Layout> + 'a {
    let pool = &context.ground.pool;
    let all = std::iter::once(pool.servers.iter().map(|server| server.id).collect::<Vec<ServerId>>());
    let used = pool.servers.iter().filter(|server| server.is_used()).map(|server| server.id).collect();
    let groups = all.chain([used]).chain(pool.tiers.iter().map(|tier| tier.servers.clone()));
    let single = pool.servers.iter().map(|server| vec![server.id]);
    groups.chain(single).flat_map(|servers| {
        let widths = (9..=30).map(|power| 1_u64 << power).chain([pool.default_width_bytes]);
        widths.filter_map(move |width_bytes| Layout::striped(servers.clone(), width_bytes).ok())
    })
}

/// Looks at the layouts that no file needed: damaged ones are corrected or told.
pub(super) fn check_rest(context: &Context<'_>, lost: &Lost) -> Result<()> {
    let entries = crate::tools::walk::entries(&context.ground.layouts, ".".as_ref());
    for entry in
        entries.map_err(Error::io("read", context.ground.pool.namespace.join(crate::pool::layouts::LAYOUTS)))?
    {
        let entry = entry.map_err(Error::io("read", crate::pool::layouts::LAYOUTS))?;
        let Some(hash) = entry.file_name().to_str().ok().and_then(crate::pool::layouts::from_hex) else { continue };
        lost.get(context, &hash);
    }
    Ok(())
}
