//! The room of all servers together: what can still be written, which servers new files leave out, and whether moves
//! fit.

use crate::backend::Server;
use crate::format::handle::Optimisations;
use crate::format::parser;
use crate::os::error::Result;
use crate::os::room::{LONGEST, Room, until_filled};
use crate::pool::open_pool::OpenPool;
use std::sync::Arc;
use std::time::Duration;
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_optimisation::{OptimisationSetting, SMALL, TABLE};

/// What a pool has as one file system, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// In all: every device of the servers once.
    pub total_bytes: u64,
    /// Free on any of them.
    pub free_bytes: u64,
    /// What an ordinary user can still write to files of the default layout.
    pub available_bytes: u64,
}

/// What moves of files would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forecast {
    /// Bytes of each file that would be copied, in the order of the moves.
    pub moved_bytes: Vec<u64>,
    /// Each server that is there, with the bytes that an ordinary user can write before the moves and after them.
    /// Servers on one file system share them; one without sizes has bytes without end.
    pub rooms: Vec<(ServerId, u64, u64)>,
}

/// A look at the room of all servers that is due, by which new files go from then on. A server that does not answer
/// makes it wait; until it is done there is no other, and new files go by what is known.
#[derive(Debug)]
pub struct RoomSurvey {
    pool: Arc<OpenPool>,
    good_for: Duration,
}

impl RoomSurvey {
    /// Asks all servers and the metadata tier, and whether there are other servers by now. Four system calls each.
    pub fn take(mut self) {
        self.pool.spill.look_at_file(self.pool.pool());
        let (servers, good_for) = self.pool.nearly_full();
        *self.pool.spill.known() = servers.into();
        let meta = self.pool.room(ServerId::META).ok();
        let watch = self.pool.plane().meta_watch();
        watch.know_room(meta);
        // A tier that does not say gets no heads. Else a head is given only where it can grow.
        let spare_bytes = meta.map_or(0, |room| watch.room_for_heads(&room));
        self.pool.spill.know_meta(spare_bytes);
        watch.look(|| meta);
        // A tier that fills up is looked at again before it can be full.
        self.good_for = good_for.min(until_filled(spare_bytes));
    }
}

impl Drop for RoomSurvey {
    fn drop(&mut self) {
        self.pool.spill.done(self.good_for);
    }
}

impl OpenPool {
    /// The room of a server; an error when it is not there.
    pub fn room(&self, id: ServerId) -> Result<Room> {
        let server = self.plane().server(id)?;
        server.current()?.room().map_err(server.error("ask for the free space"))
    }

    /// The servers by id, each with its room if it is there and in use.
    fn rooms(&self) -> Vec<(ServerId, Option<Room>)> {
        let latest = self.spill.latest();
        let servers = latest.as_ref().map_or(&self.pool().servers, |latest| &latest.pool.servers);
        let room = |server: &Server| self.room(server.id).ok().filter(|_| server.is_used());
        servers.iter().map(|server| (server.id, room(server))).collect()
    }

    /// The layout that files get which no rule names, when they have their place, as the pool file was when servers were last
    /// looked at.
    pub(crate) fn default_now(&self) -> Arc<Layout> {
        self.spill.latest().map_or_else(|| self.default_layout().clone(), |latest| latest.default_layout)
    }

    /// The layout that new files get which no rule names: as [`OpenPool::default_now`], or that of the tier on which they land.
    pub(crate) fn made_now(&self) -> Arc<Layout> {
        self.spill.latest().map_or_else(|| self.made_layout().clone(), |latest| latest.made_layout)
    }

    /// Whether a server takes new files, as the pool file was when servers were last looked at.
    fn is_used_now(&self, id: ServerId) -> bool {
        let latest = self.spill.latest();
        latest.as_ref().map_or(self.pool(), |latest| &latest.pool).server(id).is_some_and(Server::is_used)
    }

    /// What the pool has as one file system; `None` when no server says. Servers that are being drained are not counted.
    pub fn space(&self) -> Option<Space> {
        space(self.rooms().into_iter().filter_map(|(_, room)| room), self.pool().default_width_bytes)
    }

    /// The look at the servers' room that is to be taken before a file is made, if it is time for one.
    pub fn due_look(self: &Arc<Self>) -> Option<RoomSurvey> {
        self.spill.is_due().then(|| RoomSurvey { pool: self.clone(), good_for: LONGEST })
    }

    /// The layout that a new file gets in place of `layout`: without servers that were nearly full, read-only or away
    /// when they were last looked at.
    pub(crate) fn with_room(&self, layout: Arc<Layout>) -> Arc<Layout> {
        let left_out = self.spill.known().clone();
        match without(&layout, &left_out, &self.default_now()) {
            Some(other) if self.check_layout(&other).is_ok() => Arc::new(other),
            _ => layout,
        }
    }

    /// The layout that a new file gets in place of `layout`, with the optimisations that its directory `hinted`, and those of
    /// them that it has got.
    ///
    /// A rule of `apply` names the place of every byte, so that hints change no place there. A metadata tier that has only its
    /// reserve left takes no heads of files, and one that is busy, filling or small smaller ones, or none.
    pub(crate) fn layout_hinted(&self, layout: Arc<Layout>, hinted: &Optimisations) -> (Arc<Layout>, Optimisations) {
        let (is_default, mut got) = (Arc::ptr_eq(&layout, &self.made_now()), Optimisations::default());
        let layout = self.with_room(layout);
        let add = |got: &mut Optimisations, setting: OptimisationSetting| {
            let (index, parameters) = setting.pack();
            // The table keeps its bounds.
            let _ = got.enable(index, parameters);
        };
        // What says where bytes are is looked at below.
        for of in TABLE.iter().filter(|of| of.index != SMALL.index) {
            if let Some(setting) = parser::setting(hinted, of) {
                add(&mut got, setting);
            }
        }
        let Some(small_bytes) = parser::small_bytes(hinted).filter(|_| is_default) else { return (layout, got) };
        let size = &SMALL.parameters[0];
        let head_bytes = self.plane().meta_watch().head_of_new(small_bytes, size.multiple);
        let most_bytes = self.spill.most_head_bytes();
        let head_bytes = head_bytes.min(most_bytes - most_bytes % size.multiple);
        let Ok(small) = OptimisationSetting::new(&SMALL, &[head_bytes]) else { return (layout, got) };
        match layout.with_head_in_inode(head_bytes) {
            Ok(with_head) => {
                add(&mut got, small);
                (Arc::new(with_head), got)
            }
            Err(_) => (layout, got),
        }
    }

    /// The servers of `planned` that a file of layout `found` leaves out, if that is all that tells the two apart.
    pub fn left_out(&self, planned: &Layout, found: &Layout) -> Vec<ServerId> {
        let missing: Vec<ServerId> = servers(planned).filter(|id| !servers(found).any(|other| other == *id)).collect();
        let same = without(planned, &missing, &self.default_now()).is_some_and(|other| other == *found);
        if same { missing } else { Vec::new() }
    }

    /// The servers that new files leave out now, and how soon that can change.
    fn nearly_full(&self) -> (Vec<ServerId>, Duration) {
        let (rooms, width_bytes) = (self.rooms(), self.pool().default_width_bytes);
        let spare = |room: &Option<Room>| room.map_or(0, |room| room.spare_bytes(width_bytes));
        let least = rooms.iter().map(|(_, room)| spare(room)).filter(|&spare| spare > 0).min();
        let good_for = least.map_or(LONGEST, until_filled);
        let available = |room: &Option<Room>| room.map_or(0, |room| room.available_bytes);
        let without = |room_of: &dyn Fn(&Option<Room>) -> u64| {
            let is_out = |room: &Option<Room>| room_of(room) == 0 || room.is_some_and(|room| room.has_no_inode);
            let out: Vec<ServerId> = rooms.iter().filter(|(_, room)| is_out(room)).map(|(id, _)| *id).collect();
            (out.len() < rooms.len()).then_some(out)
        };
        // Where all are nearly full, those that can take nothing; where none can take anything, the layout stays.
        let unused = || rooms.iter().filter(|(id, _)| !self.is_used_now(*id)).map(|(id, _)| *id).collect();
        (without(&spare).or_else(|| without(&available)).unwrap_or_else(unused), good_for)
    }
}

/// Servers of a layout, the metadata tier left out.
fn servers(layout: &Layout) -> impl Iterator<Item = ServerId> {
    let all = layout.regions().iter().flat_map(|region| region.stripes()).map(|stripe| stripe.server);
    all.filter(|id| *id != ServerId::META)
}

/// `layout` without the servers `left_out`: the others keep their widths. A region that has no other gets the servers
/// of `default` that are not left out. `None` where that changes nothing, or leaves no server.
fn without(layout: &Layout, left_out: &[ServerId], default: &Layout) -> Option<Layout> {
    if !servers(layout).any(|id| left_out.contains(&id)) {
        return None;
    }
    let rest = |stripes: &[Stripe]| -> Vec<Stripe> {
        stripes.iter().filter(|stripe| !left_out.contains(&stripe.server)).copied().collect()
    };
    let round = |stripes: &[Stripe]| match rest(stripes) {
        none if none.is_empty() => rest(default.regions()[0].stripes()),
        some => some,
    };
    Layout::new(layout.regions().iter().map(|region| (region.offset(), round(region.stripes())))).ok()
}

/// New files leave a server out when only its reserve is left. So all that is above the reserves can be written,
/// whichever server has it, and then, over all servers alike, as much as the first of them to be full can take.
fn space(rooms: impl Iterator<Item = Room>, width_bytes: u64) -> Option<Space> {
    let mut devices: Vec<(Room, u64)> = Vec::new();
    for room in rooms.filter(|room| room.total_bytes > 0) {
        match devices.iter_mut().find(|(other, _)| other.device == room.device) {
            Some((_, servers)) => *servers += 1,
            None => devices.push((room, 1)),
        }
    }
    let sum = |of: &dyn Fn(&Room) -> u64| devices.iter().fold(0_u64, |sum, (room, _)| sum.saturating_add(of(room)));
    let last = |room: &Room| room.available_bytes.min(room.reserve_bytes(width_bytes));
    let open = || devices.iter().filter(|(room, _)| room.available_bytes > 0);
    let shares: u64 = open().map(|(_, servers)| servers).sum();
    let least = open().map(|(room, servers)| u128::from(last(room)) * u128::from(shares) / u128::from(*servers)).min();
    let striped = u64::try_from(least.unwrap_or(0)).unwrap_or(u64::MAX);
    (!devices.is_empty()).then(|| Space {
        total_bytes: sum(&|room| room.total_bytes),
        free_bytes: sum(&|room| room.free_bytes),
        available_bytes: sum(&|room| room.spare_bytes(width_bytes)).saturating_add(striped),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn room(device: u64, total_bytes: u64, available_bytes: u64) -> Room {
        let free_bytes = available_bytes;
        Room { device, total_bytes, free_bytes, available_bytes, is_read_only: false, has_no_inode: false }
    }

    fn striped(servers: &[u16]) -> Layout {
        Layout::striped(servers.iter().map(|&id| ServerId(id)), 64 << 10).unwrap()
    }

    #[test]
    fn equal_devices_give_all_that_they_have_and_a_shared_one_counts_once() {
        let space_of = |rooms: &[Room]| space(rooms.iter().copied(), 64 << 10).unwrap();
        let one = room(1, 1000 * MIB, 300 * MIB);
        assert_eq!(space_of(&[one, one, one]).available_bytes, 300 * MIB);
        assert_eq!(space_of(&[one, room(2, 1000 * MIB, 300 * MIB)]).available_bytes, 600 * MIB);
        // The full one takes nothing; the other one's last hundredth is written with it, so not at all.
        let full = space_of(&[room(1, 1000 * MIB, 0), room(2, 1000 * MIB, 500 * MIB)]);
        assert_eq!(full.available_bytes, 500 * MIB);
        let nearly = space_of(&[room(1, 1000 * MIB, MIB), room(2, 1000 * MIB, 500 * MIB)]);
        assert_eq!(nearly.available_bytes, 484 * MIB + 2 * MIB);
        assert_eq!(space(std::iter::empty(), 1), None);
    }

    #[test]
    fn a_region_keeps_its_widths_and_an_empty_one_gets_the_others() {
        let default = striped(&[0, 1, 2]);
        assert_eq!(without(&default, &[ServerId(1)], &default), Some(striped(&[0, 2])));
        assert_eq!(without(&default, &[], &default), None);
        assert_eq!(without(&striped(&[0]), &[ServerId(1)], &default), None);
        assert_eq!(without(&striped(&[1]), &[ServerId(1)], &default), Some(striped(&[0, 2])));
        assert_eq!(without(&striped(&[3]), &[0, 1, 2, 3].map(ServerId), &default), None);
        let meta = Stripe { server: ServerId::META, width_bytes: 4096 };
        let with_meta = |rest: &Layout| Layout::new([(0, vec![meta]), (4096, rest.regions()[0].stripes().to_vec())]);
        let found = without(&with_meta(&default).unwrap(), &[ServerId(0)], &default);
        assert_eq!(found, with_meta(&striped(&[1, 2])).ok());
    }

    proptest! {
        #[test]
        fn never_more_is_said_to_be_writable_than_is_free(
            rooms in prop::collection::vec((0_u64..4, 1..10_000 * MIB, 0.0..=1.0_f64), 1..9),
        ) {
            // Rooms of one device are equal.
            let of = |(device, ..): &(u64, u64, f64)| {
                let (_, total, part) = rooms.iter().find(|other| other.0 == *device).unwrap();
                room(*device, *total, (*total as f64 * part) as u64)
            };
            let found = space(rooms.iter().map(of), 64 << 10).unwrap();
            prop_assert!(found.available_bytes <= found.free_bytes && found.free_bytes <= found.total_bytes);
        }
    }
}
