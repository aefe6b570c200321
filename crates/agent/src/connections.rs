//! Connections that are open, and which of them have shown no key of a node. Strangers take places from each other alone.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use tokio::sync::oneshot;

use crate::wire::SILENT_S;

/// Connections without a key at a time. With those of nodes they have to fit into the files that a process may open.
const MOST_STRANGERS: usize = 256;
/// Of one address.
const MOST_OF_ONE: usize = 64;
/// A connection that has shown no key of a node for this time is closed: 20 s, twice what an agent has for each of its messages.
const MOST_STRANGE_NS: u64 = 2 * SILENT_S * 1_000_000_000;

#[derive(Debug)]
struct OpenConnection {
    source: IpAddr,
    /// Since when it has been a stranger; `None`: it speaks for a node.
    stranger_since_ns: Option<u64>,
    /// The connection is closed when this is dropped.
    _stop: oneshot::Sender<()>,
}

/// All connections, by their numbers: the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: BTreeMap<u64, OpenConnection>,
    last: u64,
}

/// What counts as one source: an address, or the network of an address of IPv6, of which one machine has all.
fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Connections {
    /// Begins one from `address`: its number, what says that it has to end, and whether another one was closed for it. It is a
    /// stranger until [`Self::believe`] is called. O(connections).
    pub(crate) fn begin(&mut self, address: IpAddr, now_ns: u64) -> (u64, oneshot::Receiver<()>, bool) {
        let source = source_of(address);
        let strangers = || self.open.iter().filter(|(_, one)| one.stranger_since_ns.is_some());
        let of_source = || strangers().filter(|(_, one)| one.source == source);
        let oldest = if of_source().count() >= MOST_OF_ONE {
            of_source().next()
        } else if strangers().count() >= MOST_STRANGERS {
            strangers().next()
        } else {
            None
        };
        let oldest = oldest.map(|(number, _)| *number);
        let has_closed = oldest.and_then(|number| self.open.remove(&number)).is_some();
        self.last += 1;
        let (stop, stopped) = oneshot::channel();
        self.open.insert(self.last, OpenConnection { source, stranger_since_ns: Some(now_ns), _stop: stop });
        (self.last, stopped, has_closed)
    }

    /// It speaks for a node whose key it has shown, or for none any more.
    pub(crate) fn believe(&mut self, number: u64, is_of_node: bool, now_ns: u64) {
        if let Some(one) = self.open.get_mut(&number) {
            let since_ns = one.stranger_since_ns.unwrap_or(now_ns);
            one.stranger_since_ns = (!is_of_node).then_some(since_ns);
        }
    }

    /// Closes those that have been strangers for too long. O(connections).
    pub(crate) fn close_old(&mut self, now_ns: u64) {
        let is_old = |since_ns: u64| now_ns.saturating_sub(since_ns) > MOST_STRANGE_NS;
        self.open.retain(|_, one| !one.stranger_since_ns.is_some_and(is_old));
    }

    /// It has ended.
    pub(crate) fn end(&mut self, number: u64) {
        self.open.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_closed(stopped: &mut oneshot::Receiver<()>) -> bool {
        !matches!(stopped.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    #[test]
    fn strangers_of_an_address_take_places_from_each_other() {
        let mut connections = Connections::default();
        let [one, other] = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse::<IpAddr>().unwrap());
        let mut joined = connections.begin(one, 0);
        connections.believe(joined.0, true, 0);
        let mut elsewhere = connections.begin(other, 0);
        let mut strangers: Vec<_> = (0..MOST_OF_ONE).map(|_| connections.begin(one, 0)).collect();
        assert!(strangers.iter().all(|(_, _, has_closed)| !has_closed));
        let mut last = connections.begin(one, 0);
        assert!(last.2 && is_closed(&mut strangers[0].1), "the oldest gives way");
        let rest = strangers[1..].iter_mut().chain([&mut joined, &mut elsewhere, &mut last]);
        assert_eq!(rest.filter_map(|one| is_closed(&mut one.1).then_some(one.0)).next(), None);
        // A node that has left is a stranger again: the oldest.
        connections.believe(joined.0, false, 0);
        connections.begin(one, 0);
        assert!(is_closed(&mut joined.1));
    }

    #[test]
    fn a_connection_that_shows_no_key_is_closed_after_a_time() {
        let mut connections = Connections::default();
        let address = IpAddr::from([10, 0, 0, 1]);
        let [mut joined, mut stranger] = [0, 0].map(|now_ns| connections.begin(address, now_ns));
        connections.believe(joined.0, true, 5);
        let late_ns = 10 * MOST_STRANGE_NS;
        let mut young = connections.begin(address, late_ns);
        connections.close_old(MOST_STRANGE_NS);
        assert!(!is_closed(&mut stranger.1));
        connections.close_old(late_ns);
        let closed = [&mut joined, &mut stranger, &mut young].map(|one| is_closed(&mut one.1));
        assert_eq!(closed, [false, true, false]);
        // One whose node has left has the time again.
        connections.believe(joined.0, false, late_ns);
        connections.close_old(late_ns + MOST_STRANGE_NS);
        assert!(!is_closed(&mut joined.1));
        connections.close_old(late_ns + MOST_STRANGE_NS + 1);
        assert!(is_closed(&mut joined.1) && is_closed(&mut young.1));
    }

    #[test]
    fn strangers_of_many_addresses_are_bounded_and_nodes_are_not_closed() {
        let mut connections = Connections::default();
        let address = |number: u32| IpAddr::from((0x0a00_0000 + number).to_be_bytes());
        let mut nodes: Vec<_> =
            (0..MOST_STRANGERS as u32).map(|number| connections.begin(address(number), 0)).collect();
        nodes.iter().for_each(|node| connections.believe(node.0, true, 0));
        let count = 3 * MOST_STRANGERS as u32;
        let mut strangers: Vec<_> = (0..count).map(|number| connections.begin(address(number), 0)).collect();
        let open = strangers.iter_mut().map(|one| !is_closed(&mut one.1)).filter(|is_open| *is_open).count();
        assert_eq!(open, MOST_STRANGERS);
        assert!(nodes.iter_mut().all(|node| !is_closed(&mut node.1)));
        strangers.iter().for_each(|one| connections.end(one.0));
        assert_eq!(connections.open.len(), MOST_STRANGERS);
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let [one, same, other] =
            ["2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"].map(|text| source_of(text.parse().unwrap()));
        assert!(one == same && one != other);
        assert_eq!(source_of("::ffff:10.0.0.1".parse().unwrap()), "10.0.0.1".parse::<IpAddr>().unwrap());
    }
}
