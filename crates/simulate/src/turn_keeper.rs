//! Who is served when: the orchestrator's own windows, policies and standings on the simulator's clock.
//!
//! What the pages of a pool know of programs is counted here without pages, by the same rules: gaps and reuse distances as
//! sub-requests are served, bursts as requests come. The means of a window are those that looks would find, without a look at
//! each figure: between two changes a figure counts once for each look.

use crate::places::Places;
use crate::program_turns::ProgramTurns;
use crate::report::TurnUse;
use crate::system::{Startup, System};
use crate::time::{ns, seconds};
use stripewise_model::{Cluster, Profile};
use stripewise_schedule::{
    BURST_GAP_NS, Conductor, FULL_STROKE_BYTES, HELD_LOOK_NS, Looked, NextWindow, ProgramKey, ProgramTraits, SeekTime,
    ServerUseBy, Turn, TurnClock, UserTraffic, paced, policies, weighed,
};

/// What a program, or all of them, did on one server: as in the pages of a pool, with the sums of a window.
#[derive(Debug, Clone, Copy, Default)]
struct UseSums {
    end: u64,
    last_ns: u64,
    /// 0: none yet, else one more than the file; one for all on a disk, where positions are addresses.
    file: u32,
    requests: u32,
    reuses: u32,
    /// The look from which the figures have been what they are.
    since: u32,
    gap: Figure,
    reuse: Figure,
}

/// A moving average, and the mean of what looks have found of it.
#[derive(Debug, Clone, Copy, Default)]
struct Figure {
    now: f32,
    sum: f32,
    looks: u32,
}

impl Figure {
    fn add(&mut self, looks: u32) {
        self.sum += self.now * looks as f32;
        self.looks += looks;
    }

    /// Ends a window; its mean, or what stands now where there was no look.
    fn take(&mut self) -> f32 {
        let mean = if self.looks > 0 { self.sum / self.looks as f32 } else { self.now };
        (self.sum, self.looks) = (0.0, 0);
        mean
    }
}

/// One sub-request as a server has served it.
#[derive(Debug, Clone, Copy)]
struct Served {
    file: u32,
    position: u64,
    bytes: u64,
    now_ns: u64,
    resumed_ns: u64,
    look: u32,
}

impl UseSums {
    /// Counts the looks since the figures were last counted.
    fn catch_up(&mut self, look: u32) {
        let looks = look - self.since;
        if self.requests >= 2 {
            self.gap.add(looks);
        }
        if self.reuses > 0 {
            self.reuse.add(looks);
        }
        self.since = look;
    }

    /// Takes one sub-request. O(1).
    #[inline]
    fn note(&mut self, of: &Served) {
        self.catch_up(of.look);
        let (before, end, last_ns) = (self.file, self.end, self.last_ns);
        (self.file, self.end, self.last_ns) = (of.file, of.position.wrapping_add(of.bytes), of.now_ns);
        self.requests = self.requests.saturating_add(1);
        if before == 0 {
            return;
        }
        let apart = if before == of.file { end.abs_diff(of.position) as f64 } else { FULL_STROKE_BYTES };
        let known = (self.requests > 2).then_some(f64::from(self.gap.now));
        self.gap.now = weighed(known, apart.min(FULL_STROKE_BYTES)) as f32;
        if last_ns >= of.resumed_ns && of.now_ns >= last_ns {
            let known = (self.reuses > 0).then_some(f64::from(self.reuse.now));
            self.reuses = self.reuses.saturating_add(1);
            self.reuse.now = weighed(known, (of.now_ns - last_ns) as f64) as f32;
        }
    }

    /// Ends a window of looks: the gap, and the reuse distance or what is not a number; `None` before there was a gap.
    fn take(&mut self, look: u32) -> Option<(f32, f32)> {
        self.catch_up(look);
        self.since = 0;
        let reuse_ns = if self.reuses > 0 { self.reuse.take() } else { f32::NAN };
        (self.requests >= 2).then(|| (self.gap.take(), reuse_ns))
    }

    /// The figures as they are.
    fn now(&self) -> Option<(f32, f32)> {
        let reuse_ns = if self.reuses > 0 { self.reuse.now } else { f32::NAN };
        (self.requests >= 2).then_some((self.gap.now, reuse_ns))
    }
}

/// A process whose request waits.
#[derive(Debug, Clone, Copy)]
struct HeldProcess {
    process: u32,
    since_ns: u64,
    /// When its program's limit lets the request pass.
    paced_ns: u64,
}

/// A program's side of the pages.
#[derive(Debug)]
struct ProgramUse {
    /// By server: its place in `sums`, or none.
    places: Vec<u32>,
    /// Servers that it uses, and what it does there.
    sums: Vec<(u32, UseSums)>,
    /// Whether the traits have the figures as they are.
    is_told: bool,
    resumed_ns: u64,
    held: Vec<HeldProcess>,
    /// Bytes that servers have been asked for, and have not served yet.
    flying_bytes: u64,
    /// Bytes in a second; 0: no limit, or none yet.
    limit: u64,
    /// Until when the limit is used up.
    paced_ns: u64,
}

const NOWHERE: u32 = u32::MAX;

impl ProgramUse {
    fn new(servers: usize) -> Self {
        let places = vec![NOWHERE; servers];
        Self {
            places,
            sums: Vec::new(),
            is_told: false,
            resumed_ns: 0,
            held: Vec::new(),
            flying_bytes: 0,
            limit: 0,
            paced_ns: 0,
        }
    }

    #[inline]
    fn sums(&mut self, server: usize) -> &mut UseSums {
        let place = &mut self.places[server];
        if *place == NOWHERE {
            *place = self.sums.len() as u32;
            self.sums.push((server as u32, UseSums::default()));
        }
        &mut self.sums[*place as usize].1
    }
}

/// The turns of a run.
pub(crate) struct TurnKeeper {
    clock: TurnClock,
    program_of: Vec<u32>,
    names: Vec<String>,
    /// By program: its place in the lists that follow, in which programs stand in the order of their first requests.
    places: Vec<u32>,
    traits: Vec<ProgramTraits>,
    uses: Vec<ProgramUse>,
    /// By server: what all programs do in windows of all.
    mix: Vec<UseSums>,
    traffic: Vec<Vec<UserTraffic>>,
    /// By server: whether positions are addresses on a disk.
    has_addresses: Vec<bool>,
    /// Looks in this window so far.
    look: u32,
    next_look_ns: u64,
    next_glance_ns: u64,
    /// By process: bytes of its request.
    asked_bytes: Vec<u64>,
    /// When [`TurnKeeper::wake`] is to be called next.
    due_ns: u64,
}

/// Whether a request goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passing {
    /// Now.
    Now,
    /// Not before the next call of [`TurnKeeper::wake`].
    Held,
    /// As [`Passing::Held`], and that call is due then: sooner than it was.
    HeldUntil(u64),
}

/// A process that goes on, and when.
pub(crate) type Released = (u32, u64);

impl TurnKeeper {
    pub(crate) fn new(asked: &ProgramTurns, cluster: &Cluster, places: &Places, system: &System) -> Self {
        let window_ns = ns(asked.window_s);
        let policy = policies::named(&asked.policy).expect("checked");
        let seek = |of: &Option<(usize, Profile)>| {
            of.as_ref().map_or(SeekTime::NONE, |(tier, profile)| {
                let is_tier = *tier < cluster.tiers.len();
                if is_tier { seek_time(&system.device(*tier).startup, profile) } else { SeekTime::NONE }
            })
        };
        let seeks: Vec<SeekTime> = places.of.iter().map(seek).collect();
        let servers = seeks.len();
        let is_disk = |of: &Option<(usize, Profile)>| {
            of.as_ref().is_some_and(|(tier, _)| matches!(system.device(*tier).startup, Startup::Seek { .. }))
        };
        let conductor = Conductor::new(policy, window_ns, asked.rules.clone(), seeks);
        let clock = TurnClock::new(conductor, window_ns, 0);
        Self {
            next_look_ns: clock.look_ns(),
            next_glance_ns: clock.glance_ns(),
            asked_bytes: vec![0; asked.program_of.len()],
            due_ns: clock.look_ns(),
            clock,
            program_of: asked.program_of.clone(),
            names: asked.names.clone(),
            places: vec![NOWHERE; asked.names.len()],
            traits: Vec::new(),
            uses: Vec::new(),
            mix: vec![UseSums::default(); servers],
            traffic: vec![Vec::new(); servers],
            has_addresses: places.of.iter().map(is_disk).collect(),
            look: 0,
        }
    }

    /// When [`TurnKeeper::wake`] is due.
    pub(crate) fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// A process has a request of `bytes`. O(slices).
    #[inline]
    pub(crate) fn enter(&mut self, process: u32, bytes: u64, now_ns: u64) -> Passing {
        let program = self.program_of[process as usize] as usize;
        if self.places[program] == NOWHERE {
            self.places[program] = self.traits.len() as u32;
            let mut traits = ProgramTraits::named(ProgramKey(program as u64 + 1), &self.names[program]);
            (traits.first_ns, traits.last_ns, traits.burst_ns) = (now_ns, now_ns, now_ns);
            self.traits.push(traits);
            self.uses.push(ProgramUse::new(self.mix.len()));
        }
        let place = self.places[program] as usize;
        let (traits, uses) = (&mut self.traits[place], &mut self.uses[place]);
        if now_ns.saturating_sub(traits.last_ns) > BURST_GAP_NS {
            let begun_ns = std::mem::replace(&mut traits.burst_ns, now_ns);
            traits.period_ns = Some(weighed(traits.period_ns, now_ns.saturating_sub(begun_ns) as f64));
        }
        traits.last_ns = now_ns;
        traits.requests += 1;
        self.asked_bytes[process as usize] = bytes;
        let deadline_ns = now_ns.saturating_add(2 * self.clock.window_ns());
        let mut begin_ns = now_ns;
        if uses.limit > 0 {
            (begin_ns, uses.paced_ns) = paced(uses.paced_ns, bytes, uses.limit, now_ns, deadline_ns);
        }
        self.passes_by(HeldProcess { process, since_ns: now_ns, paced_ns: begin_ns }, now_ns)
    }

    /// A process whose request has waited since `since_ns` looks at the plan. O(slices).
    pub(crate) fn passes(&mut self, process: u32, since_ns: u64, now_ns: u64) -> Passing {
        self.passes_by(HeldProcess { process, since_ns, paced_ns: since_ns }, now_ns)
    }

    fn passes_by(&mut self, one: HeldProcess, now_ns: u64) -> Passing {
        let HeldProcess { process, since_ns, paced_ns } = one;
        let place = self.places[self.program_of[process as usize] as usize] as usize;
        let (traits, uses) = (&mut self.traits[place], &mut self.uses[place]);
        let is_overdue = now_ns >= since_ns.saturating_add(2 * self.clock.window_ns());
        let wait_ns = match self.clock.turn(traits.key, now_ns) {
            Turn::In(wait_ns) => wait_ns.max(1),
            Turn::Now => 0,
        };
        let turn_ns = now_ns.saturating_add(wait_ns).max(paced_ns);
        if !is_overdue && turn_ns > now_ns {
            uses.held.push(one);
            if turn_ns >= self.due_ns {
                return Passing::Held;
            }
            self.due_ns = turn_ns;
            return Passing::HeldUntil(turn_ns);
        }
        uses.flying_bytes = uses.flying_bytes.saturating_add(self.asked_bytes[process as usize]);
        if now_ns > since_ns {
            uses.resumed_ns = now_ns;
            traits.held += 1;
            traits.waited_ns += now_ns - since_ns;
            traits.last_ns = now_ns;
        }
        Passing::Now
    }

    /// A server has served `bytes` at `position` of `file` for `process`. O(1).
    #[inline]
    pub(crate) fn served(
        &mut self,
        process: u32,
        server: usize,
        (file, position, bytes): (u32, u64, u64),
        now_ns: u64,
    ) {
        let place = self.places[self.program_of[process as usize] as usize] as usize;
        let file = if self.has_addresses[server] { 1 } else { file.saturating_add(1) };
        let mut part = Served { file, position, bytes, now_ns, resumed_ns: 0, look: self.look };
        if self.clock.plan().is_open() {
            self.mix[server].note(&part);
        }
        let uses = &mut self.uses[place];
        part.resumed_ns = uses.resumed_ns;
        uses.flying_bytes = uses.flying_bytes.saturating_sub(bytes);
        uses.is_told = false;
        uses.sums(server).note(&part);
        let traits = &mut self.traits[place];
        traits.bytes = traits.bytes.saturating_add(bytes);
        traits.last_ns = traits.last_ns.max(now_ns);
    }

    /// What is due at `now_ns`: a look at the programs, or the next slice. Processes that go on are added to `released`.
    /// O(programs), at the end of a window O(programs x their servers).
    pub(crate) fn wake(&mut self, now_ns: u64, released: &mut Vec<Released>) {
        let is_look = now_ns >= self.next_look_ns;
        let has_moved = if is_look { self.look_at_programs(now_ns) } else { self.glance_at_programs(now_ns) };
        let mut slice_ns = u64::MAX;
        for (traits, uses) in self.traits.iter().zip(&mut self.uses) {
            if uses.held.is_empty() {
                continue;
            }
            let turn_ns = match self.clock.turn(traits.key, now_ns) {
                Turn::In(wait_ns) => now_ns.saturating_add(wait_ns.max(1)),
                Turn::Now => now_ns,
            };
            let most_ns = 2 * self.clock.window_ns();
            // A plan that has changed is seen at a held request's own next look; a slice that comes as planned at once.
            let seen_ns = |since_ns: u64| {
                let looks = if has_moved { now_ns.saturating_sub(since_ns).div_ceil(HELD_LOOK_NS) } else { 0 };
                now_ns.max(since_ns.saturating_add(looks * HELD_LOOK_NS))
            };
            uses.held.retain(|&HeldProcess { process, since_ns, paced_ns }| {
                let goes = turn_ns.max(paced_ns) <= now_ns || now_ns >= since_ns.saturating_add(most_ns);
                if goes {
                    released.push((process, seen_ns(since_ns)));
                } else {
                    slice_ns = slice_ns.min(turn_ns.max(paced_ns).max(now_ns + 1));
                }
                !goes
            });
        }
        let glance_ns = if self.clock.plan().is_open() { u64::MAX } else { self.next_glance_ns };
        self.due_ns = self.next_look_ns.min(glance_ns).min(slice_ns);
    }

    /// Whether a slice was given up.
    fn glance_at_programs(&mut self, now_ns: u64) -> bool {
        if self.clock.plan().is_open() || now_ns < self.next_glance_ns {
            return false;
        }
        self.next_glance_ns = now_ns + self.clock.glance_ns();
        self.tell_what_is_under_way(now_ns);
        let has_given_up = self.clock.glance(&self.traits, now_ns);
        if self.clock.is_over(now_ns) {
            self.next_look_ns = now_ns + 1;
        }
        has_given_up
    }

    /// A program that waits for its turn, or for servers, is at work.
    fn tell_what_is_under_way(&mut self, now_ns: u64) {
        let is_in_turns = !self.clock.plan().is_open();
        for (traits, uses) in self.traits.iter_mut().zip(&self.uses) {
            if !uses.held.is_empty() || (is_in_turns && uses.flying_bytes > 0) {
                traits.last_ns = now_ns;
            }
        }
    }

    /// Whether the plan is another one now.
    fn look_at_programs(&mut self, now_ns: u64) -> bool {
        self.next_look_ns = now_ns + self.clock.look_ns();
        self.next_glance_ns = now_ns + self.clock.glance_ns();
        self.look += 1;
        self.tell_what_is_under_way(now_ns);
        let is_over = self.clock.is_over(now_ns);
        // Between windows the figures tell whether the program of a slice may be idle.
        let has_slices = !self.clock.plan().is_open();
        for (traits, uses) in self.traits.iter_mut().zip(&mut self.uses) {
            let of = |(server, figures): (u32, (f32, f32))| ServerUseBy {
                server,
                gap_bytes: figures.0,
                reuse_ns: figures.1,
            };
            let look = self.look;
            if is_over {
                traits.uses.clear();
                let means = uses.sums.iter_mut().filter_map(|(server, sums)| Some((*server, sums.take(look)?)));
                traits.uses.extend(means.map(of));
                uses.is_told = false;
            } else if has_slices && !uses.is_told && now_ns.saturating_sub(traits.last_ns) > self.clock.look_ns() {
                uses.is_told = true;
                traits.uses.clear();
                let means = uses.sums.iter().filter_map(|(server, sums)| Some((*server, sums.now()?)));
                traits.uses.extend(means.map(of));
            }
        }
        if is_over {
            for (traffic, mix) in self.traffic.iter_mut().zip(&mut self.mix) {
                traffic.clear();
                let (requests, figures) = (f64::from(mix.requests), mix.take(self.look));
                traffic.extend(figures.map(|(gap, _)| UserTraffic { requests, gap_bytes: f64::from(gap) }));
            }
            self.look = 0;
        }
        let seen: &[ProgramTraits] = &self.traits;
        match self.clock.look(seen, &self.traffic, now_ns) {
            Looked::Same => false,
            Looked::GivenUp => true,
            Looked::Window(next) => {
                self.list(&next);
                true
            }
        }
    }

    /// A limit holds from the end of the first window that a program takes part in, as in a pool.
    fn list(&mut self, next: &NextWindow) {
        let rules = self.clock.conductor().rules();
        if rules.limits.is_empty() {
            return;
        }
        self.uses.iter_mut().for_each(|uses| uses.limit = 0);
        for (key, name, ..) in &next.standings {
            // The key of a program is one more than its number.
            let place = self.places[key.0 as usize - 1];
            self.uses[place as usize].limit = rules.limit(name);
        }
    }

    /// Whether any process is held.
    pub(crate) fn holds(&self) -> bool {
        self.uses.iter().any(|uses| !uses.held.is_empty())
    }

    /// How often requests were held and for how long, by program.
    pub(crate) fn used(&self) -> Vec<TurnUse> {
        let of = |place: &u32| {
            let traits = self.traits.get(*place as usize);
            let (held, waited_ns) = traits.map_or((0, 0), |traits| (traits.held, traits.waited_ns));
            TurnUse { held, waited_s: seconds(waited_ns) }
        };
        self.places.iter().map(of).collect()
    }
}

/// What the orchestrator of a pool takes for a seek of such a server.
fn seek_time(startup: &Startup, profile: &Profile) -> SeekTime {
    let in_ns = |seconds: f64| seconds * 1e9;
    match startup {
        Startup::Seek { read, .. } => {
            let [least_ns, most_ns] = [read.settle_s, read.full_stroke_s].map(|s| in_ns(s + 0.5 * read.rotation_s));
            SeekTime::new(in_ns(read.sequential_s), least_ns, most_ns, read.stroke_bytes as f64)
        }
        Startup::Drawn => profile.read.head.map_or(SeekTime::NONE, |head| {
            let times = [head.sequential_startup_s, profile.read.startup_min_s, profile.read.startup_max_s].map(in_ns);
            SeekTime::new(times[0], times[1], times[2], FULL_STROKE_BYTES)
        }),
    }
}
