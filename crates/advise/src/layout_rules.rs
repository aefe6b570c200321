//! [`LayoutRule`]: a layout that all files might be given, as an administrator sets it for a whole file system.

use crate::cluster_file::{ClusterFile, DefaultLayout};
use crate::interval::Gain;
use stripewise_layout::Layout;

/// As many servers as there are.
const ALL: u16 = u16::MAX;

const MIB: u64 = 1 << 20;

/// A layout for all files. Each file begins on the server after the last one's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutRule {
    /// Such as `4 x 1MiB`.
    pub name: &'static str,
    /// What that means.
    pub words: &'static str,
    /// First byte of each part and the servers that it is on; of fewer servers it is all.
    parts: &'static [(u64, u16)],
    /// Stripe width in bytes.
    width_bytes: u64,
}

/// The rules that are tried: what people set by hand, and a progressive layout.
pub const RULES: [LayoutRule; 7] = [
    LayoutRule { name: "1 x 1MiB", words: "1 server, stripes of 1MiB", parts: &[(0, 1)], width_bytes: MIB },
    LayoutRule { name: "4 x 1MiB", words: "4 servers, stripes of 1MiB", parts: &[(0, 4)], width_bytes: MIB },
    LayoutRule { name: "16 x 1MiB", words: "16 servers, stripes of 1MiB", parts: &[(0, 16)], width_bytes: MIB },
    LayoutRule { name: "all x 1MiB", words: "all servers, stripes of 1MiB", parts: &[(0, ALL)], width_bytes: MIB },
    LayoutRule { name: "4 x 4MiB", words: "4 servers, stripes of 4MiB", parts: &[(0, 4)], width_bytes: 4 * MIB },
    LayoutRule { name: "all x 4MiB", words: "all servers, stripes of 4MiB", parts: &[(0, ALL)], width_bytes: 4 * MIB },
    LayoutRule {
        name: "progressive",
        words: "1 server up to 256MiB, 4 up to 16GiB, then all, stripes of 1MiB",
        parts: &[(0, 1), (256 * MIB, 4), (16 << 30, ALL)],
        width_bytes: MIB,
    },
];

impl LayoutRule {
    /// The layouts of `files` files. O(files x servers of a file).
    pub(crate) fn layouts(&self, servers: &ClusterFile, files: usize) -> Vec<Layout> {
        let part = |count: u16| {
            let default = DefaultLayout { count, width_bytes: self.width_bytes, ..servers.default };
            ClusterFile { default, ..servers.clone() }
        };
        let parts: Vec<(u64, ClusterFile)> = self.parts.iter().map(|&(from, count)| (from, part(count))).collect();
        let of_file = |file: usize| {
            let regions =
                parts.iter().map(|(from, part)| (*from, part.default_layout(file).regions()[0].stripes().to_vec()));
            Layout::new(regions).expect("parts are in order, and each is a default layout's round")
        };
        (0..files).map(of_file).collect()
    }
}

/// What a rule would give.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleGain {
    /// Name of the rule.
    pub name: &'static str,
    /// What the name means.
    pub words: &'static str,
    /// Bytes per second of all files.
    pub bytes_per_s: f64,
    /// Over the present layouts.
    pub gain: Gain,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_file::ClusterTier;
    use stripewise_model::presets;

    #[test]
    fn a_rule_spreads_files_and_takes_no_more_servers_than_there_are() {
        let profile = presets::set_p(1, 1, false).tiers[0].profile;
        let tier =
            ClusterTier { name: "ost".into(), servers: 6, profile, preset: None, capacity_bytes: None, pool: None };
        let default = DefaultLayout { tier: None, count: 1, width_bytes: MIB };
        let servers = ClusterFile { name: "c".into(), file_system: None, default, tiers: vec![tier], meta: None };
        let counts = |rule: &LayoutRule| -> Vec<Vec<usize>> {
            let layouts = rule.layouts(&servers, 6);
            layouts
                .iter()
                .map(|layout| layout.regions().iter().map(|region| region.stripes().len()).collect())
                .collect()
        };
        let of = |name: &str| RULES.iter().find(|rule| rule.name.starts_with(name)).unwrap();
        assert_eq!(counts(of("4 x 1MiB")), vec![vec![4]; 6]);
        assert_eq!(counts(of("16 x 1MiB")), vec![vec![6]; 6]);
        assert_eq!(counts(of("progressive")), vec![vec![1, 4, 6]; 6]);
        let mut firsts: Vec<_> =
            of("1 x").layouts(&servers, 6).iter().map(|layout| layout.regions()[0].stripes()[0].server).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 6, "six files on one server each are on six servers");
        assert!(RULES.iter().all(|rule| rule.width_bytes.is_power_of_two() && rule.width_bytes >= MIB));
    }
}
