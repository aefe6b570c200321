//! Servers by the file that names them: a cluster file, or a pool file in its place.

use crate::error::WhatifError;
use crate::target::Target;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use stripewise_advise::{ClusterFile, ClusterTier, DefaultLayout};
use stripewise_store::Pool;

/// What a cluster file says, or what a pool file would say as one.
#[derive(Debug, Clone)]
pub struct Servers {
    /// The servers.
    pub cluster: ClusterFile,
    /// The pool file, where it is one: then files are at hand.
    pub pool_file: Option<PathBuf>,
}

impl Servers {
    /// Reads a cluster file, a pool file, or the pool file of a directory: only a pool file says where a `namespace` is.
    ///
    /// # Errors
    /// What is wrong with the file; a tier of a pool without a profile.
    pub fn load(path: &Path) -> Result<Self, WhatifError> {
        let file = if path.is_dir() { path.join("pool.toml") } else { path.to_owned() };
        let table = std::fs::read_to_string(&file).ok().and_then(|text| text.parse::<toml::Table>().ok());
        if !table.is_some_and(|table| table.contains_key("namespace") || table.contains_key("mount")) {
            return Ok(Self { cluster: ClusterFile::load(&file)?, pool_file: None });
        }
        let pool = Pool::load(&file)?;
        if !pool.is_plain() {
            return Err(WhatifError::Asked(format!(
                "servers of the pool of {} have been drained, removed or added to a tier in front of others, and advice on logs \
                 counts servers in order; describe them in a cluster file (`plan` takes the pool file)",
                file.display()
            )));
        }
        let priced = Target::of_pool(&pool, &HashMap::new())?.cluster;
        let tiers = pool.tiers.iter().zip(priced.tiers).map(|(tier, priced)| ClusterTier {
            name: priced.name,
            servers: tier.servers.len() as u16,
            profile: priced.profile,
            preset: None,
            capacity_bytes: tier.capacity_bytes,
            pool: None,
        });
        let tiers = tiers.collect();
        let count = pool.servers.len() as u16;
        let default = DefaultLayout { tier: None, count, width_bytes: pool.default_width_bytes };
        let meta = Some(pool.meta.profile.0);
        let cluster = ClusterFile { name: pool.name, file_system: None, default, tiers, meta };
        Ok(Self { cluster, pool_file: Some(file) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_store::pool::{PoolSpec, TierSpec};

    #[test]
    fn a_pool_file_is_taken_for_a_cluster_file_and_told_from_one() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path();
        let cluster = "name = \"orion\"\n[[tier]]\nname = \"hdd\"\nservers = 6\npreset = \"hdd-7200\"\n";
        std::fs::write(base.join("orion.toml"), cluster).unwrap();
        let described = Servers::load(&base.join("orion.toml")).unwrap();
        assert_eq!((described.cluster.name.as_str(), described.pool_file), ("orion", None));
        let tier = TierSpec {
            name: "disk".into(),
            servers: vec![base.join("s0"), base.join("s1")],
            emulate: Some("hdd-7200".into()),
            ..TierSpec::default()
        };
        let spec = PoolSpec {
            name: "scratch".into(),
            mount: base.join("mount"),
            namespace: base.join("names"),
            default_width_bytes: None,
            tiers: vec![tier],
        };
        let file = base.join("pool.toml");
        Pool::init(&file, &spec).unwrap();
        // The directory stands for its pool file.
        for path in [file.as_path(), base] {
            let servers = Servers::load(path).unwrap();
            assert_eq!(servers.cluster.tiers.iter().map(|tier| tier.servers).collect::<Vec<_>>(), [2]);
            assert_eq!(servers.pool_file.as_deref(), Some(file.as_path()));
        }
        // Without emulation, and not calibrated.
        let text = std::fs::read_to_string(&file).unwrap().replace("emulate", "# emulate");
        std::fs::write(&file, text).unwrap();
        let error = Servers::load(&file).unwrap_err().to_string();
        assert!(error.starts_with("tier disk has no profile"), "{error}");
    }
}
