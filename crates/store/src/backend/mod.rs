//! Servers: what the store asks of one, and the kinds of servers that there are.
//!
//! A [`Backend`] ([`server`]) says where a server's datafiles are and what can be done there. Each kind stands in one file
//! and one line of [`KINDS`]. What holds for every kind is not its matter: whose a datafile has to be, that it is looked for
//! again when it went away ([`plane`]), and which bytes it has.
//!
//! Requests do not pass through here: a datafile's descriptor is kept open, and what each request asks of its server is
//! asked once ([`ServerLimits`]).

// For tests, which are built with debug assertions: no release has it.
#[cfg(debug_assertions)]
#[path = "../../tests/backends/catalogue.rs"]
mod catalogue;
mod directory;
pub mod emulate;
mod emulated;
pub(crate) mod meta;
pub mod plane;
mod removed;
pub(crate) mod server;

pub(crate) use server::{
    Backend, DatafileAccess, Found, KEPT, Kind, Server, ServerLimits, ServerState, Setting, Site, missing,
};

/// The kinds of servers.
const KINDS: &[Kind] = &[
    directory::KIND,
    #[cfg(debug_assertions)]
    catalogue::KIND,
];

/// The kind of a tier that names none.
pub(crate) const DEFAULT_KIND: &str = directory::KIND.name;

/// The kind of the metadata tier, which no tier of a pool file can have.
pub(crate) const META_KIND: &str = meta::KIND.name;

/// The kind of a server that was removed, which no tier of a pool file can have.
pub(crate) const REMOVED_KIND: &str = removed::KIND.name;

/// A kind of that name; otherwise the names there are.
pub(crate) fn kind(name: &str) -> Result<&'static str, String> {
    let known: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
    let found = known.iter().find(|known| **known == name);
    found.copied().ok_or_else(|| format!("no kind '{name}'; write one of {}", known.join(", ")))
}

fn kind_of(server: &Server) -> &'static Kind {
    match KINDS.iter().chain([&meta::KIND, &removed::KIND]).find(|kind| kind.name == server.kind) {
        Some(kind) => kind,
        None => unreachable!("a checked pool has known kinds of servers only, not '{}'", server.kind),
    }
}

/// The backend of a server. Opens nothing yet.
pub(crate) fn of(server: &Server, setting: &Setting) -> Box<dyn Backend> {
    let backend = (kind_of(server).open)(server, setting);
    match server.emulate {
        Some(config) => emulated::new(backend, config),
        None => backend,
    }
}

/// Whether requests ask this server, and others like it, one after the other: its file system answers when the device has served
/// a request, and not before. `false` of one that is not there.
pub fn serves_in_turn(server: &Server) -> bool {
    let backend = of(server, &Setting::default());
    backend.connect().is_ok() && backend.limits().in_turn
}

/// The place of a server.
pub(crate) fn site(server: &Server) -> Box<dyn Site> {
    (kind_of(server).site)(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_kind_is_refused_with_the_names_there_are() {
        assert_eq!(kind("directory"), Ok("directory"));
        assert!(kind("tape").unwrap_err().starts_with("no kind 'tape'; write one of directory"));
    }
}
