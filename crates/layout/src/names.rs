//! Textual names of servers: `hdd.0`, `ssd.1`, `meta`.

use crate::layout::ServerId;

/// The tiers of a pool by name and number of servers, in the pool file's order: what turns `hdd.3` into a [`ServerId`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerNames {
    pub(crate) tiers: Vec<(String, u16)>,
}

/// The name of the metadata tier.
pub const META_NAME: &str = "meta";

impl ServerNames {
    /// From `(tier, servers)` in the pool file's order. `None` when they are more than the 65,535 that a layout can name.
    pub fn new(tiers: impl IntoIterator<Item = (String, u16)>) -> Option<Self> {
        let tiers: Vec<(String, u16)> = tiers.into_iter().collect();
        let servers: u64 = tiers.iter().map(|&(_, servers)| u64::from(servers)).sum();
        // The last id is the metadata tier's.
        (servers <= u64::from(ServerId::META.0)).then_some(Self { tiers })
    }

    /// Tier names and their numbers of servers.
    pub fn tiers(&self) -> &[(String, u16)] {
        &self.tiers
    }

    /// First server and number of servers of a tier.
    pub fn tier(&self, name: &str) -> Option<(ServerId, u16)> {
        let mut first = 0;
        for (tier, servers) in &self.tiers {
            if tier == name {
                return Some((ServerId(first), *servers));
            }
            first += servers;
        }
        None
    }

    /// The tier of a server and its place in it; `None` for the metadata tier and for unknown servers. O(tiers).
    pub fn place(&self, server: ServerId) -> Option<(&str, u16)> {
        let mut first = 0;
        for (tier, servers) in &self.tiers {
            // Never below the tier's first: it would have been in a tier before.
            if server.0 - first < *servers {
                return Some((tier, server.0 - first));
            }
            first += servers;
        }
        None
    }

    /// The server of that name.
    pub fn id(&self, name: &str) -> Option<ServerId> {
        if name == META_NAME {
            return Some(ServerId::META);
        }
        let (tier, place) = name.rsplit_once('.')?;
        let (first, servers) = self.tier(tier)?;
        let place: u16 = decimal(place)?;
        (place < servers).then(|| ServerId(first.0 + place))
    }

    /// The name of a server; `#7` for one that the pool does not have.
    pub fn name(&self, server: ServerId) -> String {
        match self.place(server) {
            Some((tier, place)) => format!("{tier}.{place}"),
            None => server.to_string(),
        }
    }
}

/// Digits only: no sign, no blanks.
pub(crate) fn decimal(text: &str) -> Option<u16> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ids_are_inverse() {
        let names = ServerNames::new([("hdd".into(), 6), ("none".into(), 0), ("ssd.fast".into(), 2)]).unwrap();
        for id in (0..8).map(ServerId).chain([ServerId::META]) {
            assert_eq!(names.id(&names.name(id)), Some(id));
        }
        assert_eq!(names.name(ServerId(6)), "ssd.fast.0");
        assert_eq!(names.name(ServerId(8)), "#8");
        for unknown in ["hdd.6", "hdd", "hdd.", "hdd.-1", "hdd.+1", "ssd.0", "none.0", "", "hdd.99999"] {
            assert_eq!(names.id(unknown), None, "{unknown}");
        }
        assert_eq!(ServerNames::new([("a".into(), 65535), ("b".into(), 1)]), None);
        assert!(ServerNames::new([("a".into(), 65535)]).is_some());
    }
}
