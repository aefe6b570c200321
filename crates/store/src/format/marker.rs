//! The markers by which the namespace and the servers' directories of a pool are known.

use serde::Deserialize;

/// Name of the marker file in each server's directory and in the namespace.
pub const MARKER_FILE: &str = ".stripewise";

/// What a marker says.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Marker {
    /// Name of the pool.
    pub(crate) pool: String,
    /// Its uuid.
    pub(crate) uuid: String,
    /// Which directory of the pool it is.
    pub(crate) server: String,
    /// Several users use the pool directly (`crate::pool::shared`); what the namespace's says counts.
    #[serde(default)]
    pub(crate) shared: bool,
}

/// The text of a marker.
pub(crate) fn marker_text(marker: &Marker) -> String {
    let Marker { pool, uuid, server, shared } = marker;
    let shared = if *shared { "shared = true\n" } else { "" };
    format!(
        "# A directory of a Stripewise pool. Do not remove: without this file it counts as missing.\n\
         pool = \"{pool}\"\nuuid = \"{uuid}\"\nserver = \"{server}\"\n{shared}"
    )
}

/// Reads the text of a marker; says what is wrong otherwise.
pub(crate) fn read_marker(text: &[u8]) -> Result<Marker, String> {
    let text = std::str::from_utf8(text).map_err(|_| format!("its {MARKER_FILE} is not text"))?;
    toml::from_str(text).map_err(|error| format!("its {MARKER_FILE} is damaged: {}", error.message()))
}

/// What a marker calls a server: name and id, because layouts name servers by id, and adding one in the middle of the
/// pool file would shift the ids of those behind it.
pub(crate) fn marker_server(name: &str, id: stripewise_layout::ServerId) -> String {
    format!("{name} #{}", id.0)
}

/// Checks that the marker `text` is that of `server` in the pool of `uuid`; says what is wrong otherwise.
pub(crate) fn check_marker(text: &[u8], uuid: &str, server: &str) -> Result<(), String> {
    let marker = read_marker(text)?;
    if marker.uuid != uuid {
        return Err(format!("it belongs to another pool, '{}' ({})", marker.pool, marker.uuid));
    }
    if marker.server != server {
        return Err(format!(
            "it is server {}, the pool file makes it {server}; keep the order of servers, add new ones in a tier at the end",
            marker.server
        ));
    }
    Ok(())
}
