//! Textual names of servers: `hdd.0`, `ssd.1`, `meta`.

use crate::layout::ServerId;

/// The tiers of a pool by name with their servers, in the pool file's order: what turns `hdd.3` into a [`ServerId`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerNames {
    tiers: Vec<(String, Vec<ServerId>)>,
    /// By id: the tier of a server and its place there.
    places: Vec<Option<(u16, u16)>>,
}

/// The name of the metadata tier.
pub const META_NAME: &str = "meta";

impl ServerNames {
    /// From `(tier, servers)`, numbered one after the other. `None` when they are more than the 65,535 that a layout can name.
    pub fn new(tiers: impl IntoIterator<Item = (String, u16)>) -> Option<Self> {
        let mut next = 0_u32;
        let numbered = tiers.into_iter().map(|(name, servers)| {
            let first = next;
            next += u32::from(servers);
            // The last id is the metadata tier's.
            let ids = (first..next).map(|id| u16::try_from(id).ok().map(ServerId).filter(|id| *id != ServerId::META));
            Some((name, ids.collect::<Option<Vec<_>>>()?))
        });
        numbered.collect::<Option<Vec<_>>>().map(Self::of)
    }

    /// From the servers of each tier by their ids, each of which stands once: servers that came later stand in their tier and
    /// have the ids behind those of all others.
    pub fn of(tiers: Vec<(String, Vec<ServerId>)>) -> Self {
        let mut places = Vec::new();
        for (tier, (_, servers)) in tiers.iter().enumerate() {
            for (place, server) in servers.iter().enumerate() {
                places.resize(places.len().max(server.index() + 1), None);
                places[server.index()] = Some((tier as u16, place as u16));
            }
        }
        Self { tiers, places }
    }

    /// Tier names and their servers.
    pub fn tiers(&self) -> &[(String, Vec<ServerId>)] {
        &self.tiers
    }

    /// The servers of a tier in their order.
    pub fn tier(&self, name: &str) -> Option<&[ServerId]> {
        self.tiers.iter().find(|(tier, _)| tier == name).map(|(_, servers)| &**servers)
    }

    /// The tier of a server and its place in it; `None` for the metadata tier and for unknown servers. O(1).
    pub fn place(&self, server: ServerId) -> Option<(&str, u16)> {
        let (tier, place) = (*self.places.get(server.index())?)?;
        Some((&self.tiers[usize::from(tier)].0, place))
    }

    /// The server of that name.
    pub fn id(&self, name: &str) -> Option<ServerId> {
        if name == META_NAME {
            return Some(ServerId::META);
        }
        let (tier, place) = name.rsplit_once('.')?;
        let place: u16 = decimal(place)?;
        self.tier(tier)?.get(usize::from(place)).copied()
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

    #[test]
    fn a_server_that_came_later_is_of_its_tier_and_shifts_no_other() {
        let ids = |ids: &[u16]| ids.iter().map(|&id| ServerId(id)).collect::<Vec<_>>();
        let names = ServerNames::of(vec![("hdd".into(), ids(&[0, 1, 3])), ("ssd".into(), ids(&[2]))]);
        let named: Vec<_> = (0..5).map(|id| names.name(ServerId(id))).collect();
        assert_eq!(named, ["hdd.0", "hdd.1", "ssd.0", "hdd.2", "#4"]);
        assert!((0..4).map(ServerId).all(|id| names.id(&names.name(id)) == Some(id)));
        assert_eq!(names.id("ssd.1"), None);
    }
}
