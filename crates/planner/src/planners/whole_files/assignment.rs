//! Which file on which server: whole files dealt to servers so that the busiest has the least to do, within the
//! servers' room.
//!
//! A file asks as much of every server of a class (a tier), and something else of another class: machines that are
//! unrelated between classes. The greatest load is NP-hard to minimise; longest processing time first with a local
//! search behind it does well with many files, branch and bound is exact with few. Loads are whole nanoseconds, so that
//! sums and ties are the same everywhere.

/// Files, as the assignment sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileCosts {
    /// Nanoseconds that file `f` keeps a server of class `c` busy, at `f x classes + c`.
    pub loads_ns: Vec<u64>,
    /// Bytes of each file.
    pub bytes: Vec<u64>,
}

/// A server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerState {
    /// Its class.
    pub class: usize,
    /// Nanoseconds that it is busy whatever is assigned.
    pub busy_ns: u128,
    /// Bytes that it has room for.
    pub room_bytes: u64,
}

/// A server for every file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Index of the server of each file.
    pub server_of: Vec<usize>,
    /// Load of the busiest server in nanoseconds.
    pub greatest_ns: u128,
    /// Nothing is better: the search was complete.
    pub proved: bool,
}

/// Branches that the exact search may try before it gives up.
const MOST_BRANCHES: usize = 300_000;

/// Files and servers beyond which the exact search is not tried: it would not end.
const MOST_SEARCHED: usize = 24;

/// Moves and swaps that the local search looks at, about a second's worth.
const MOST_LOOKS: usize = 20_000_000;

/// Least busy servers of each class that the busiest one may swap files with.
const PARTNERS: usize = 8;

/// Files of one server that a swap looks at.
const MOST_SWAPPED: usize = 64;

/// Deals `files` to `servers`; `None` when no way was found in which every file has room. The best when
/// [`Assignment::proved`], as it is with few files; otherwise at a point where no move of one file off the busiest
/// server, and no swap of it with a file of the least busy ones, helps.
///
/// O(files log files + files x classes x log servers), and 20 million moves and swaps looked at; where rooms are nearly
/// full a file may look at every server of a class.
///
/// # Panics
/// When a class is not less than `classes`, or there are not `classes` loads for each file.
pub fn assign(files: &FileCosts, servers: &[ServerState], classes: usize) -> Option<Assignment> {
    assert!(servers.iter().all(|server| server.class < classes), "every class is known");
    assert_eq!(files.loads_ns.len(), files.bytes.len() * classes, "a load for every class");
    let table = Table { files, servers, classes, present: present(servers, classes) };
    if servers.is_empty() {
        return files.bytes.is_empty().then(|| Assignment { server_of: Vec::new(), greatest_ns: 0, proved: true });
    }
    let count = files.bytes.len();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|&file| (std::cmp::Reverse(table.least_ns(file)), file));
    let found = longest_first(&table, &order).or_else(|| {
        // Room is scarce: the largest files first, while there is room for them.
        let mut by_bytes = order.clone();
        by_bytes.sort_by_key(|&file| std::cmp::Reverse(files.bytes[file]));
        longest_first(&table, &by_bytes)
    });
    let improved = found.map(|mut state| {
        state.improve(&table);
        state
    });
    let start = improved.map(|state| (state.greatest_ns(), state.server_of));
    if count <= MOST_SEARCHED && servers.len() <= MOST_SEARCHED {
        return exact(&table, &order, start);
    }
    start.map(|(greatest_ns, server_of)| {
        let proved = greatest_ns <= table.least_greatest_ns();
        Assignment { server_of, greatest_ns, proved }
    })
}

/// Classes that have a server.
fn present(servers: &[ServerState], classes: usize) -> Vec<usize> {
    (0..classes).filter(|&class| servers.iter().any(|server| server.class == class)).collect()
}

struct Table<'a> {
    files: &'a FileCosts,
    servers: &'a [ServerState],
    classes: usize,
    present: Vec<usize>,
}

impl Table<'_> {
    fn ns(&self, file: usize, class: usize) -> u128 {
        u128::from(self.files.loads_ns[file * self.classes + class])
    }

    /// Load of a file where it is least.
    fn least_ns(&self, file: usize) -> u128 {
        self.present.iter().map(|&class| self.ns(file, class)).min().unwrap_or(0)
    }

    /// A bound of every assignment: the mean, and the largest file where it is least.
    fn least_greatest_ns(&self) -> u128 {
        let least = (0..self.files.bytes.len()).map(|file| self.least_ns(file));
        let (sum, most) = least.fold((0, 0), |(sum, most), ns| (sum + ns, most.max(ns)));
        let busy: u128 = self.servers.iter().map(|server| server.busy_ns).sum();
        let busiest = self.servers.iter().map(|server| server.busy_ns).max().unwrap_or(0);
        (busy + sum).div_ceil(self.servers.len() as u128).max(most).max(busiest)
    }
}

/// The servers of one class as a tournament: the least busy one with room for a number of bytes, in about O(log
/// servers).
struct Class {
    /// Servers in order.
    servers: Vec<usize>,
    leaves: usize,
    /// Least load and most room below each node; the root is 1.
    nodes: Vec<(u128, u64)>,
}

/// No server: never the least busy, room for nothing.
const NOBODY: (u128, u64) = (u128::MAX, 0);

impl Class {
    fn new(class: usize, servers: &[ServerState]) -> Self {
        let of: Vec<usize> = (0..servers.len()).filter(|&server| servers[server].class == class).collect();
        let leaves = of.len().next_power_of_two();
        let mut nodes = vec![NOBODY; 2 * leaves];
        for (at, &server) in of.iter().enumerate() {
            nodes[leaves + at] = (servers[server].busy_ns, servers[server].room_bytes);
        }
        let mut class = Self { servers: of, leaves, nodes };
        (1..leaves).rev().for_each(|node| class.refresh(node));
        class
    }

    fn refresh(&mut self, node: usize) {
        let (a, b) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
        self.nodes[node] = (a.0.min(b.0), a.1.max(b.1));
    }

    fn set(&mut self, place: usize, load_ns: u128, room_bytes: u64) {
        let mut node = self.leaves + place;
        self.nodes[node] = (load_ns, room_bytes);
        while node > 1 {
            node /= 2;
            self.refresh(node);
        }
    }

    /// Place of the least busy server with room for `bytes`, the first of equals, with its load.
    fn least_busy(&self, bytes: u64) -> Option<(u128, usize)> {
        let mut best = None;
        self.descend(1, bytes, &mut best);
        best
    }

    fn descend(&self, node: usize, bytes: u64, best: &mut Option<(u128, usize)>) {
        let (load_ns, room_bytes) = self.nodes[node];
        if load_ns == u128::MAX || room_bytes < bytes || best.is_some_and(|found| load_ns > found.0) {
            return;
        }
        if node >= self.leaves {
            let found = (load_ns, node - self.leaves);
            *best = Some(best.map_or(found, |before| before.min(found)));
            return;
        }
        let (left, right) = (2 * node, 2 * node + 1);
        let nearer = if self.nodes[right].0 < self.nodes[left].0 { [right, left] } else { [left, right] };
        nearer.into_iter().for_each(|child| self.descend(child, bytes, best));
    }
}

/// The file to move off a server, the file to take for it, if any, and the other server.
type Step = (usize, Option<usize>, usize);

/// An assignment under construction.
struct State {
    server_of: Vec<usize>,
    files_of: Vec<Vec<usize>>,
    load_ns: Vec<u128>,
    room_bytes: Vec<u64>,
    trees: Vec<Class>,
    /// Place of each server in its class.
    place: Vec<usize>,
}

impl State {
    fn new(table: &Table) -> Self {
        let servers = table.servers;
        let trees: Vec<Class> = (0..table.classes).map(|class| Class::new(class, servers)).collect();
        let mut place = vec![0; servers.len()];
        trees.iter().for_each(|tree| tree.servers.iter().enumerate().for_each(|(at, &server)| place[server] = at));
        Self {
            server_of: vec![usize::MAX; table.files.bytes.len()],
            files_of: vec![Vec::new(); servers.len()],
            load_ns: servers.iter().map(|server| server.busy_ns).collect(),
            room_bytes: servers.iter().map(|server| server.room_bytes).collect(),
            trees,
            place,
        }
    }

    fn greatest_ns(&self) -> u128 {
        self.load_ns.iter().copied().max().unwrap_or(0)
    }

    fn publish(&mut self, table: &Table, server: usize) {
        let (load_ns, room_bytes) = (self.load_ns[server], self.room_bytes[server]);
        self.trees[table.servers[server].class].set(self.place[server], load_ns, room_bytes);
    }

    fn put(&mut self, table: &Table, file: usize, server: usize) {
        self.load_ns[server] += table.ns(file, table.servers[server].class);
        self.room_bytes[server] -= table.files.bytes[file];
        self.server_of[file] = server;
        self.files_of[server].push(file);
        self.publish(table, server);
    }

    fn take(&mut self, table: &Table, file: usize) {
        let server = self.server_of[file];
        self.load_ns[server] -= table.ns(file, table.servers[server].class);
        self.room_bytes[server] += table.files.bytes[file];
        self.files_of[server].retain(|&other| other != file);
        self.publish(table, server);
    }

    /// The server where a file would end first, with the load that the server would have.
    fn earliest(&self, table: &Table, file: usize) -> Option<(u128, usize)> {
        let ends = self.trees.iter().enumerate().filter_map(|(class, tree)| {
            let (load_ns, place) = tree.least_busy(table.files.bytes[file])?;
            Some((load_ns + table.ns(file, class), tree.servers[place]))
        });
        ends.min()
    }

    /// Takes files off the busiest server, or swaps them, while that helps.
    fn improve(&mut self, table: &Table) {
        let mut busiest = std::collections::BTreeSet::new();
        busiest.extend(self.load_ns.iter().enumerate().map(|(server, &ns)| (ns, server)));
        let mut looks = MOST_LOOKS;
        while looks > 0 {
            let &(ns, server) = busiest.last().expect("there are servers");
            let Some((mine, theirs, other)) = self.step(table, server, &mut looks) else { break };
            busiest.remove(&(ns, server));
            busiest.remove(&(self.load_ns[other], other));
            self.take(table, mine);
            if let Some(theirs) = theirs {
                self.take(table, theirs);
                self.put(table, theirs, server);
            }
            self.put(table, mine, other);
            busiest.insert((self.load_ns[server], server));
            busiest.insert((self.load_ns[other], other));
        }
    }

    /// The step after which the busier of the two servers has the least load, if that is less than `server` has now.
    fn step(&self, table: &Table, server: usize, looks: &mut usize) -> Option<Step> {
        let now = self.load_ns[server];
        let class = table.servers[server].class;
        let mut best: Option<(u128, Step)> = None;
        let mut offer = |ns: u128, step: Step| {
            if ns < now && best.as_ref().is_none_or(|found| (ns, step) < *found) {
                best = Some((ns, step));
            }
        };
        let mut mine: Vec<usize> = self.files_of[server].clone();
        mine.sort_by_key(|&file| (std::cmp::Reverse(table.ns(file, class)), file));
        *looks = looks.saturating_sub(mine.len());
        for &file in &mine {
            if let Some((ns, other)) = self.earliest(table, file)
                && other != server
            {
                offer(ns.max(now - table.ns(file, class)), (file, None, other));
            }
        }
        mine.truncate(MOST_SWAPPED);
        for tree in &self.trees {
            for other in tree.least_few(PARTNERS) {
                if other == server {
                    continue;
                }
                let to = table.servers[other].class;
                *looks = looks.saturating_sub(mine.len() * self.files_of[other].len().min(MOST_SWAPPED));
                for &theirs in self.files_of[other].iter().take(MOST_SWAPPED) {
                    for &file in &mine {
                        let bytes = |file: usize| table.files.bytes[file];
                        let room = self.room_bytes[other] + bytes(theirs) >= bytes(file)
                            && self.room_bytes[server] + bytes(file) >= bytes(theirs);
                        if room {
                            let here = now - table.ns(file, class) + table.ns(theirs, class);
                            let there = self.load_ns[other] - table.ns(theirs, to) + table.ns(file, to);
                            offer(here.max(there), (file, Some(theirs), other));
                        }
                    }
                }
            }
        }
        best.map(|found| found.1)
    }
}

impl Class {
    /// The least busy servers, at most `most`, the least busy first.
    fn least_few(&self, most: usize) -> Vec<usize> {
        let mut open = std::collections::BinaryHeap::new();
        open.push((std::cmp::Reverse(self.nodes[1].0), std::cmp::Reverse(1)));
        let mut few = Vec::with_capacity(most);
        while few.len() < most {
            let Some((std::cmp::Reverse(load_ns), std::cmp::Reverse(node))) = open.pop() else { break };
            if load_ns == u128::MAX {
                break;
            }
            if node >= self.leaves {
                few.push(self.servers[node - self.leaves]);
            } else {
                for child in [2 * node, 2 * node + 1] {
                    open.push((std::cmp::Reverse(self.nodes[child].0), std::cmp::Reverse(child)));
                }
            }
        }
        few
    }
}

/// Each file, in order, to the server where it ends first; `None` when one has room nowhere.
fn longest_first(table: &Table, order: &[usize]) -> Option<State> {
    let mut state = State::new(table);
    for &file in order {
        let (_, server) = state.earliest(table, file)?;
        state.put(table, file, server);
    }
    Some(state)
}

/// Branch and bound from a first assignment. The result is proved when the search ended by itself.
fn exact(table: &Table, order: &[usize], start: Option<(u128, Vec<usize>)>) -> Option<Assignment> {
    let mut left_ns = vec![0; order.len() + 1];
    for (at, &file) in order.iter().enumerate().rev() {
        left_ns[at] = left_ns[at + 1] + table.least_ns(file);
    }
    let mut search = Exact {
        table,
        order,
        left_ns,
        least_ns: table.least_greatest_ns(),
        load_ns: table.servers.iter().map(|server| server.busy_ns).collect(),
        room_bytes: table.servers.iter().map(|server| server.room_bytes).collect(),
        server_of: vec![0; order.len()],
        best: start,
        branches: MOST_BRANCHES,
    };
    let (sum_ns, most_ns) = search.load_ns.iter().fold((0, 0), |(sum, most), &ns| (sum + ns, ns.max(most)));
    search.descend(0, sum_ns, most_ns);
    let proved = search.branches > 0;
    search.best.map(|(greatest_ns, server_of)| Assignment { server_of, greatest_ns, proved })
}

struct Exact<'a> {
    table: &'a Table<'a>,
    order: &'a [usize],
    /// Least load of the files from each place in the order on.
    left_ns: Vec<u128>,
    /// Nothing can be below.
    least_ns: u128,
    load_ns: Vec<u128>,
    room_bytes: Vec<u64>,
    server_of: Vec<usize>,
    best: Option<(u128, Vec<usize>)>,
    branches: usize,
}

impl Exact<'_> {
    fn descend(&mut self, at: usize, sum_ns: u128, most_ns: u128) {
        let bound = (sum_ns + self.left_ns[at]).div_ceil(self.load_ns.len() as u128).max(most_ns);
        if self.branches == 0 || self.best.as_ref().is_some_and(|best| bound >= best.0 || best.0 <= self.least_ns) {
            return;
        }
        let Some(&file) = self.order.get(at) else {
            self.best = Some((most_ns, self.server_of.clone()));
            return;
        };
        self.branches -= 1;
        let bytes = self.table.files.bytes[file];
        let ns = |server: usize| self.table.ns(file, self.table.servers[server].class);
        let mut ways: Vec<(u128, usize)> = Vec::with_capacity(self.load_ns.len());
        for server in 0..self.load_ns.len() {
            let state = |s: usize| (self.table.servers[s].class, self.load_ns[s], self.room_bytes[s]);
            // Servers in the same state are one choice.
            if self.room_bytes[server] >= bytes && (0..server).all(|before| state(before) != state(server)) {
                ways.push((self.load_ns[server] + ns(server), server));
            }
        }
        ways.sort_unstable();
        for (load_ns, server) in ways {
            let before = std::mem::replace(&mut self.load_ns[server], load_ns);
            self.room_bytes[server] -= bytes;
            self.server_of[file] = server;
            self.descend(at + 1, sum_ns + load_ns - before, most_ns.max(load_ns));
            self.load_ns[server] = before;
            self.room_bytes[server] += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn server(class: usize, room_bytes: u64) -> ServerState {
        ServerState { class, busy_ns: 0, room_bytes }
    }

    /// Loads of the servers under an assignment, or `None` when one has no room.
    fn loads(files: &FileCosts, servers: &[ServerState], classes: usize, server_of: &[usize]) -> Option<Vec<u128>> {
        let mut load: Vec<u128> = servers.iter().map(|server| server.busy_ns).collect();
        let mut room: Vec<u64> = servers.iter().map(|server| server.room_bytes).collect();
        for (file, &server) in server_of.iter().enumerate() {
            load[server] += u128::from(files.loads_ns[file * classes + servers[server].class]);
            room[server] = room[server].checked_sub(files.bytes[file])?;
        }
        Some(load)
    }

    #[test]
    fn longest_first_alone_would_not_do() {
        // The classic: 5 5 4 4 3 3 3 on three servers is 11 longest first, 9 at best.
        let files = FileCosts { loads_ns: vec![5, 5, 4, 4, 3, 3, 3], bytes: vec![1; 7] };
        let found = assign(&files, &[server(0, u64::MAX); 3], 1).unwrap();
        assert_eq!((found.greatest_ns, found.proved), (9, true));
    }

    #[test]
    fn nothing_to_place_or_nowhere_to_place_it() {
        assert_eq!(assign(&FileCosts::default(), &[], 0).unwrap().server_of, Vec::<usize>::new());
        let one = FileCosts { loads_ns: vec![5], bytes: vec![10] };
        assert_eq!(assign(&one, &[], 1), None);
        assert_eq!(assign(&one, &[server(0, 9)], 1), None);
        assert_eq!(assign(&one, &[server(0, 9), server(0, 10)], 1).unwrap().server_of, [1]);
    }

    #[test]
    fn many_files_keep_the_room_and_end_near_the_mean() {
        // 20,000 files on 500 servers of two speeds, room for hardly more than there is.
        let mut seed = 1_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut files = FileCosts::default();
        for _ in 0..20_000 {
            let size = 1 + next(1000);
            files.bytes.push(size);
            files.loads_ns.extend([1_000_000 + 100 * size, 10_000 + 20 * size]);
        }
        let bytes: u64 = files.bytes.iter().sum();
        let servers: Vec<ServerState> =
            (0..500).map(|s| server(usize::from(s >= 400), bytes / 500 * 11 / 10)).collect();
        let found = assign(&files, &servers, 2).unwrap();
        let load = loads(&files, &servers, 2, &found.server_of).expect("no room is exceeded");
        assert_eq!(load.iter().copied().max(), Some(found.greatest_ns));
        // Half of the files are on the slow servers, since the fast ones are full: about 40 on each, 1 ms apiece.
        let slow: Vec<u128> = load[..400].to_vec();
        let mean = slow.iter().sum::<u128>() / 400;
        assert!(found.greatest_ns <= mean * 103 / 100, "{} {mean}", found.greatest_ns);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn small_instances_have_the_exhaustive_optimum(
            files in prop::collection::vec((prop::collection::vec(0_u64..1000, 3), 0_u64..100), 0..8),
            servers in prop::collection::vec((0_usize..3, 0_u128..500, 50_u64..400), 1..5),
        ) {
            let files = FileCosts {
                loads_ns: files.iter().flat_map(|file| file.0.clone()).collect(),
                bytes: files.iter().map(|file| file.1).collect(),
            };
            let servers: Vec<ServerState> = servers.into_iter()
                .map(|(class, busy_ns, room_bytes)| ServerState { class, busy_ns, room_bytes }).collect();
            let count = files.bytes.len();
            let mut least = None;
            for number in 0..servers.len().pow(count as u32) {
                let digits = (0..count).scan(number, |n, _| { let d = *n % servers.len(); *n /= servers.len(); Some(d) });
                let server_of: Vec<usize> = digits.collect();
                if let Some(load) = loads(&files, &servers, 3, &server_of) {
                    let greatest = load.iter().copied().max().unwrap();
                    least = Some(least.map_or(greatest, |l: u128| l.min(greatest)));
                }
            }
            let found = assign(&files, &servers, 3);
            prop_assert_eq!(found.as_ref().map(|f| f.greatest_ns), least);
            if let Some(found) = found {
                prop_assert!(found.proved);
                let load = loads(&files, &servers, 3, &found.server_of).unwrap();
                prop_assert_eq!(load.iter().copied().max().unwrap(), found.greatest_ns);
            }
        }
    }
}
