//! The cleaner of the block cache: it decides which dirty bytes are written back, when, how many at a time, in which order, and
//! when writers wait. A machine without bytes, which the live engine and the simulator drive.
//!
//! A driver asks [`Cleaner::may_write`] before a write and plans every request by [`Cleaner::plan`]. After every request and
//! completion, and at the time that [`Act::Wait`] named, it calls [`Cleaner::step`] and carries out the acts; each act has an
//! answer ([`Cleaner::done`]). Time comes with each call and never goes back: a clock that is set back stands still until it is
//! where it was; one that jumps ahead makes bytes old at once, which costs writes and nothing else.
//!
//! The decisions and their reasons:
//!
//! - **Dirty bytes**, as the marks count them, are dirty and not on their way to the store. Bytes on their way will be clean
//!   soon; counting them would write back more than the low mark asks for.
//! - **One budget for all volumes, the oldest first.** The marks are about the room of the cache, which all volumes share. A
//!   budget for each volume wrote back the excess once for each of them. The volume with the oldest dirty bytes is first, since
//!   these had the most time to be overwritten. It yields to the next volume while its store has all that it may have at a time,
//!   or is left alone. *Age* and *waiters for a volume* concern one volume, and their bytes are due in addition to the budget.
//! - **Batches of 1 MiB** ([`BATCH_BYTES`]): a copy keeps writers off its range while it reads, so it should be no longer than
//!   one operation of a client; a trip to the store for less would cost more than its bytes.
//! - **At most 8 MiB of a volume on the way** ([`LEAVING_BYTES_MAX`]), so that a remote store is kept busy and a store that hangs
//!   takes a bounded number of buffers. The limit is per volume, or one store that hangs would stop the others.
//! - **A store is flushed when a flush is due**: when all of the oldest epoch is written, when half a reserve of the cold end was
//!   written (or as much as the driver's log can note at once), when half of what is dirty at the cold end lacks nothing else, or
//!   when a request waits and nothing more is on the way that the flush could cover. A flush after each batch would cost a trip for
//!   each megabyte; with later flushes the places at the cold end would not be clean in time. (Where little of each block is dirty,
//!   half a reserve of dirty bytes may be all there is.)
//! - **A request that waits for room** has [`watermarks::WAITING_BYTES`] on their way to become clean at any time, and the parts
//!   that its plan names are first. A read never waits: it takes a clean place further up, or bypasses the cache.
//! - **Writers stop** when 90% of the cache are dirty ([`DIRTY_PERCENT_MAX`]), so that reads find places. Only the writers of
//!   volumes with more than an even part of the dirty bytes stop: a store that hangs stops the writes of its own volumes, not
//!   those of others. For the same reason a write that would wait for a block whose store fails or hangs treats that block as
//!   used and takes the next one.
//! - **The cold end is looked at** when a part of its clean reserve may have been used up, but not sooner than 0.5 ms after the
//!   last look; and 20 ms after it if anything has happened since. Where nothing has happened, nothing is found. All shares are
//!   looked at, each for a reserve of its own limit: a small share is not kept clean as a whole for the sake of a large cache.
//! - **Flushes wait in groups** ([`epochs`]): the store gets all that is dirty, with one flush where that is little, so neither a
//!   flush nor a write waits for it. A group that ends with a flush is carried to its end, as the store is whole only then. What it
//!   needs is copied before it is overwritten; 64 MiB of a volume at most, since copies are held in memory until the store takes
//!   them. Beyond that, or where the store fails or hangs, the group grows to a later flush instead.
//! - **A store that failed is left alone**, 100 ms at first and twice as long each time, 30 s at most. Bytes whose write failed
//!   are dirty again.
//! - **A store without room** ([`no_room`]) is a store that failed; besides, writes that must wait for it are refused after a minute.
//! - **A trim reaches the store behind the dirty bytes** ([`trims`]): when the store has all that was written before it, as an image as of
//!   an earlier flush must have what was there. Units that are written meanwhile are taken out of it. The cache takes writes to what is
//!   being trimmed, and sends them afterwards. A store that fails a trim is asked again as late as one that fails a write; writes go on.
//! - **While the driver's log has no room nothing begins**: bytes that become clean must be noted there. Writes that have begun
//!   go on.

mod acts;
pub mod epochs;
mod no_room;
mod order_counts;
mod outcomes;
mod pause;
mod select;
mod trims;
mod volume;
mod watermarks;

use std::ops::Range;

use crate::evict::Evict;

use super::geometry::UNIT_BYTES;
use super::store_speed::Measured;
use super::{Extents, Mode, Part, Plan, Request, Verdict, Volume};

pub use acts::{Act, Outcome, Token};
pub use order_counts::OrderCounts;
pub use watermarks::{CleanerRules, WriteBackOrder};

use acts::{Pending, UnderWay};
pub use volume::TrimsLeft;
use volume::{ColdEnd, VolumeState};
use watermarks::{ColdWatch, Scale, percent};

/// Bytes of one copy at most, and those taken from the order of write-back at a time.
pub const BATCH_BYTES: u64 = 1 << 20;
/// Bytes of one volume that are copied or written back at a time.
pub const LEAVING_BYTES_MAX: u64 = 8 << 20;
/// How much of the cache may be dirty before writers wait.
pub const DIRTY_PERCENT_MAX: u64 = 90;
/// The least that is written back between two flushes of a store, however little the driver can note at a time.
const FLUSH_EVERY_BYTES_MIN: u64 = 1 << 20;
/// Flushes for each reserve of the cold end: the one half becomes clean while the other is used up.
const FLUSHES_PER_RESERVE: u64 = 2;
/// Most times of stores that are kept until a request is planned.
const MEASURED_MAX: usize = 64;
/// Dirty blocks of stores that fail or hang that one look of a write passes over; the next look begins after them.
const PASSED_OVER_MAX: u32 = 256;

/// How a volume stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Bytes that are dirty and not leaving.
    pub dirty_bytes: u64,
    /// Bytes that are being copied or written back.
    pub leaving_bytes: u64,
    /// Since when some of the dirty ones have been, on the driver's clock; see [`epochs`].
    pub first_dirty_ns: Option<u64>,
    /// Groups of writes between two flushes that wait to go to the store one after the other; 0 where it lacks nothing.
    pub epochs: u64,
    /// What the order of write-back has kept, and at which price.
    pub counts: OrderCounts,
    /// Since when the store is whole: no group is under way. `None` while one is, and in other orders than
    /// [`WriteBackOrder::Group`].
    pub whole_since_ns: Option<u64>,
    /// Until when its store is left alone.
    pub retry_at_ns: u64,
    /// The store's session, as it was told last.
    pub session: u64,
    /// Since when the store has had no room for some of what is written back; `None` where it has.
    pub full_since_ns: Option<u64>,
    /// Whether writes that would have to wait for it are refused.
    pub refuses: bool,
    /// What is left to do of its trims.
    pub trims_left: TrimsLeft,
}

impl Standing {
    /// Bytes that the store was not given yet, or has not taken.
    pub fn unwritten_bytes(&self) -> u64 {
        self.dirty_bytes + self.leaving_bytes
    }
}

/// The cleaner of a cache.
#[derive(Clone, Debug)]
pub struct Cleaner {
    rules: CleanerRules,
    scale: Scale,
    flush_every_bytes: u64,
    /// By their numbers; a number without a volume is one of which nothing is dirty.
    volumes: Vec<VolumeState>,
    under_way: UnderWay,
    cold_watch: ColdWatch,
    /// The rest of the bytes that were found to be in excess, of all volumes together.
    budget_bytes: u64,
    /// A write waits for clean room, whosever.
    is_waited_for: bool,
    /// All is to be written back.
    is_closing: bool,
    has_log_room: bool,
    now_ns: u64,
    /// How long stores took, until the next plan.
    measured: Vec<(Volume, Measured)>,
    // Kept for their memory.
    named: (Vec<Part>, Vec<Volume>),
    runs: Vec<Range<u64>>,
    order: Vec<(u64, usize)>,
}

fn units_of(range: &Range<u64>) -> Range<u64> {
    range.start / UNIT_BYTES..range.end.div_ceil(UNIT_BYTES)
}

/// Whether all units that are dirty here are dirty in the cache, and an act under way will tell the outcome of all that are
/// leaving. There may be more of both: lost units stay dirty in the cache, and are on their way all the same.
fn adds_up<O: Evict>(volumes: &[VolumeState], under_way: &UnderWay, extents: &Extents<O>) -> bool {
    let dirty_bytes: u64 = volumes.iter().map(|volume| volume.epochs.dirty_bytes()).sum();
    let is_answered = |(at, volume): (usize, &VolumeState)| {
        volume.epochs.leaving_bytes() <= under_way.bytes_of(Volume(at as u16))
    };
    dirty_bytes <= extents.units().dirty_bytes() && volumes.iter().enumerate().all(is_answered)
}

impl Cleaner {
    /// A cleaner for a cache of `capacity_bytes`, of which nothing is dirty. The driver notes up to `notes_units_max` units that
    /// have become clean at a time.
    pub fn new(rules: CleanerRules, capacity_bytes: u64, notes_units_max: u64) -> Self {
        Cleaner::miniature(rules, capacity_bytes, notes_units_max, 1)
    }

    /// The same for a miniature of a cache `times` as large, of whose requests it gets one in `times`: what is an amount of bytes
    /// there is that part of it here, so that it lasts and takes as long.
    pub fn miniature(rules: CleanerRules, capacity_bytes: u64, notes_units_max: u64, times: u64) -> Self {
        let scale = Scale::new(times);
        let flush_every_bytes = notes_units_max.saturating_mul(UNIT_BYTES).max(FLUSH_EVERY_BYTES_MIN);
        Cleaner {
            rules,
            scale,
            measured: Vec::new(),
            flush_every_bytes,
            volumes: Vec::new(),
            under_way: UnderWay::default(),
            cold_watch: ColdWatch::new(capacity_bytes, scale),
            budget_bytes: 0,
            is_waited_for: false,
            is_closing: false,
            has_log_room: true,
            now_ns: 0,
            named: Default::default(),
            runs: Vec::new(),
            order: Vec::new(),
        }
    }

    /// Adds a volume. `session` is a number of its store that grows whenever writes that the store took and did not flush may be
    /// lost.
    pub fn add(&mut self, volume: Volume, session: u64) {
        let at = usize::from(volume.0);
        while self.volumes.len() <= at {
            self.volumes.push(VolumeState::new(self.rules.order, self.flush_every_bytes, 0));
        }
        debug_assert!(self.volumes[at].epochs.is_empty(), "a volume begins once");
        self.volumes[at].session = session;
    }

    fn volume(&self, volume: Volume) -> &VolumeState {
        &self.volumes[usize::from(volume.0)]
    }

    fn volume_mut(&mut self, volume: Volume) -> &mut VolumeState {
        &mut self.volumes[usize::from(volume.0)]
    }

    fn tick(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// A store took so long. While nothing is planned nobody asks.
    fn note_measured(&mut self, volume: Volume, measured: Measured) {
        if self.measured.len() < MEASURED_MAX {
            self.measured.push((volume, measured));
        }
    }

    /// How a volume stands.
    pub fn standing(&self, volume: Volume) -> Standing {
        let VolumeState { epochs, no_room, pause, session, whole_since_ns, .. } = self.volume(volume);
        let is_whole = self.rules.order == WriteBackOrder::Group && !epochs.list().is_under_way();
        Standing {
            dirty_bytes: epochs.dirty_bytes(),
            leaving_bytes: epochs.leaving_bytes(),
            first_dirty_ns: epochs.first_dirty_ns(),
            epochs: if epochs.is_empty() { 0 } else { epochs.epochs() as u64 },
            counts: self.volume(volume).order_counts(),
            whole_since_ns: is_whole.then_some(*whole_since_ns),
            retry_at_ns: pause.until_ns(),
            session: *session,
            full_since_ns: no_room.since_ns(),
            refuses: no_room.refuses(),
            trims_left: self.volume(volume).trims_left(self.now_ns),
        }
    }

    /// Whether a volume's store lacks nothing.
    pub fn is_settled(&self, volume: Volume) -> bool {
        self.volume(volume).epochs.is_empty()
    }

    /// Whether a volume's store has all of its epochs up to this one, which [`Self::close_epoch`] has named.
    pub fn is_flushed(&self, volume: Volume, epoch: u64) -> bool {
        self.volume(volume).epochs.is_flushed(epoch)
    }

    /// Appends the runs of a range of which the volume's store lacks nothing.
    pub fn lacks_nothing_of(&self, volume: Volume, units: Range<u64>, out: &mut Vec<Range<u64>>) {
        self.volume(volume).epochs.lacks_nothing_of(units, out);
    }

    /// Units are dirty that no plan made so, and of which the store may have a part. They were when the driver took up the cache: their
    /// order relative to flushes is no longer known, they are one epoch. Or they were lost, and are written through the cache: what was
    /// promised of them is replaced only when the store has that flushed.
    pub fn restore(&mut self, volume: Volume, units: Range<u64>) {
        let now_ns = self.now_ns;
        self.volume_mut(volume).epochs.restore(units, now_ns);
    }

    /// Closes the current epoch, because a flush is being acknowledged to a client or a caller wants the present dirty bytes in
    /// the store: later writes go to the store after these. Returns the last epoch that the store lacks bytes of, if there is
    /// one.
    pub fn close_epoch(&mut self, volume: Volume) -> Option<u64> {
        let epochs = &mut self.volume_mut(volume).epochs;
        epochs.boundary();
        (!epochs.is_empty()).then(|| epochs.current() - 1)
    }

    /// A client trims units, which nothing is being written to: they may hold anything until they are written anew. Their clean bytes are
    /// not cached any more. The store hears of it when it has all that was written before.
    pub fn trim(&mut self, volume: Volume, units: Range<u64>) {
        let state = self.volume_mut(volume);
        let epoch = state.epochs.current();
        state.trims.add(&units, epoch);
    }

    /// Notes that a caller waits for a volume's epochs up to this one to be in the store.
    pub fn want(&mut self, volume: Volume, epoch: u64) {
        let now_ns = self.now_ns;
        let volume = self.volume_mut(volume);
        volume.no_room.waits(now_ns);
        volume.wanted = volume.wanted.max(Some(epoch));
    }

    /// Whether all of a volume that is dirty is to be written back at once, for its writes go elsewhere.
    pub fn drain(&mut self, volume: Volume, drains: bool) {
        self.volume_mut(volume).drains = drains;
    }

    /// All is to be written back, of all volumes.
    pub fn close(&mut self) {
        self.is_closing = true;
    }

    /// Whether the driver's log has room for what becomes clean.
    pub fn set_log_room(&mut self, has_room: bool) {
        self.has_log_room = has_room;
    }

    /// No write waits any more that had to ([`Self::may_write`], [`Self::plan`]).
    pub fn nobody_waits(&mut self) {
        self.is_waited_for = false;
        self.volumes.iter_mut().for_each(|volume| volume.is_waited_for = false);
    }

    /// The cache has lost these units, or never had them: they cannot be written back.
    pub fn lost(&mut self, volume: Volume, units: Range<u64>) {
        let now_ns = self.now_ns;
        self.volume_mut(volume).lost(now_ns, units);
    }

    /// Whether a write may change its range now, going where `request.write` says; a read always may. If not, it waits: until something
    /// has become clean ([`Verdict::Clean`]) or an act has ended ([`Verdict::Busy`]). What it waits for is written back or copied. Where
    /// the store has no room for that, the write fails after a while ([`Verdict::Full`]).
    pub fn may_write<O: Evict>(&mut self, now_ns: u64, extents: &Extents<O>, request: &Request) -> Verdict {
        self.tick(now_ns);
        let now_ns = self.now_ns;
        let Some(mode) = request.write else { return Verdict::Ready };
        let state = self.volume_mut(request.volume);
        // Where the cache may have no place for it, a write in write-back mode goes to the store as well.
        let may_go_past = || extents.units().has_lost(0..u64::MAX) || extents.map().retired_bytes() > 0;
        if state.trims.are_asked(&request.units()) && (mode != Mode::WriteBack || may_go_past()) {
            return Verdict::Busy;
        }
        if mode != Mode::WriteBack {
            // Of another mode's time there may be bytes that the store must get first.
            state.is_waited_for |= !state.epochs.is_empty();
            let is_empty = state.epochs.is_empty();
            return if is_empty { Verdict::Ready } else { self.wait_or_fail(request.volume) };
        }
        let units = units_of(&extents.written_range(request));
        match state.overwrite(now_ns, units) {
            Verdict::Ready => {}
            Verdict::Clean => return self.wait_or_fail(request.volume),
            verdict => return verdict,
        }
        let is_over = self.is_over_limit(extents, request.volume);
        self.is_waited_for |= is_over;
        if is_over { self.wait_or_fail(request.volume) } else { Verdict::Ready }
    }

    /// A write must wait until something of its volume's store is clean, or fails.
    fn wait_or_fail(&mut self, volume: Volume) -> Verdict {
        let now_ns = self.now_ns;
        let no_room = &mut self.volume_mut(volume).no_room;
        no_room.waits(now_ns);
        if no_room.refuses() { Verdict::Full } else { Verdict::Clean }
    }

    /// Whether the cache is so dirty that the writers of a volume wait: the volume has more than an even part, among the volumes
    /// with dirty bytes, of the limit. One of them always has, so the dirty bytes grow no further.
    fn is_over_limit<O: Evict>(&self, extents: &Extents<O>, volume: Volume) -> bool {
        let limit_bytes = percent(extents.geometry().capacity_bytes(), DIRTY_PERCENT_MAX);
        if extents.units().dirty_bytes() <= limit_bytes {
            return false;
        }
        let dirtying = self.volumes.iter().filter(|volume| !volume.epochs.is_empty()).count();
        let part_bytes = limit_bytes / dirtying.max(1) as u64;
        self.volume(volume).epochs.lacking_bytes() > part_bytes
    }

    /// Plans a request ([`Extents::plan`]), and notes the units that the plan makes dirty. Only a write gets [`Verdict::Clean`]:
    /// the units that it waits for are being written back, as far as that is possible now; plan again, as for [`Verdict::Busy`],
    /// when units have become clean. Or it fails ([`Verdict::Full`]), as in [`Self::may_write`]. A read never waits.
    pub fn plan<O: Evict>(
        &mut self,
        now_ns: u64,
        extents: &mut Extents<O>,
        request: &mut Request,
        plan: &mut Plan,
        acts: &mut Vec<Act>,
    ) -> Verdict {
        self.tick(now_ns);
        extents.sizer_mut().tick(self.now_ns);
        for (volume, measured) in self.measured.drain(..) {
            extents.sizer_mut().measured(volume, measured);
        }
        let mut passed_over = 0;
        let verdict = loop {
            match (extents.plan(request, plan), request.write) {
                (Verdict::Clean, None) => {
                    self.cold_watch.missed();
                    plan.settle_for_less(request);
                }
                (Verdict::Clean, Some(mode)) => {
                    plan.again = true;
                    let is_stuck = |of: &Volume| self.volume(*of).is_stuck(self.now_ns);
                    let may_pass = mode != Mode::WriteAround && passed_over < PASSED_OVER_MAX;
                    if !may_pass || !plan.clean_volumes.iter().any(is_stuck) {
                        break Verdict::Clean;
                    }
                    passed_over += 1;
                    extents.pass_over(&plan.clean);
                }
                (verdict, _) => break verdict,
            }
        };
        match verdict {
            Verdict::Ready => {
                self.cold_watch.allocated(plan.allocated_bytes);
                let now_ns = self.now_ns;
                let VolumeState { epochs, trims, .. } = self.volume_mut(request.volume);
                if request.write.is_some() {
                    trims.written(&request.units());
                }
                let epoch = epochs.current();
                for range in &plan.dirtied {
                    // Dirty from now on, not from when the bytes are stored: a copy of them waits for that.
                    epochs.dirtied(units_of(range), epoch, now_ns);
                    trims.written(&units_of(range));
                }
            }
            Verdict::Clean => {
                self.wait_for(plan, acts);
                return self.wait_or_fail(request.volume);
            }
            Verdict::Busy => plan.again = true,
            Verdict::Full => {}
        }
        verdict
    }

    /// A write waits for what its plan names.
    fn wait_for(&mut self, plan: &Plan, acts: &mut Vec<Act>) {
        self.is_waited_for = true;
        self.cold_watch.missed();
        if self.has_log_room {
            self.take_parts(&plan.clean, &plan.clean_volumes, acts);
        }
    }

    /// Decides the next acts and appends them. A driver may call it as often as it likes: a second call with nothing in between
    /// begins nothing.
    pub fn step<O: Evict>(&mut self, now_ns: u64, extents: &Extents<O>, acts: &mut Vec<Act>) {
        self.tick(now_ns);
        let now_ns = self.now_ns;
        debug_assert!(adds_up(&self.volumes, &self.under_way, extents));
        for (at, volume) in self.volumes.iter_mut().enumerate() {
            volume.look_for_room(now_ns, self.rules.full_wait_ns);
            if std::mem::take(&mut volume.calls_waiters) {
                acts.push(Act::Clean { volume: Volume(at as u16), runs: Vec::new() });
            }
        }
        if !self.has_log_room {
            // The driver steps again when it has.
            return;
        }
        self.copy_overwritten(acts);
        if extents.units().dirty_bytes() > 0 {
            self.look_at_cold(extents, acts);
        }
        // The rest of a volume may be due in addition to what was taken: a step that follows at once then finds nothing more.
        while self.find_due(extents.geometry().capacity_bytes()) && self.take_due(acts) {}
        self.flush_due(extents, acts);
        // One trim of each store at a time, behind all that was written before it.
        for at in 0..self.volumes.len() {
            if let Some(units) = self.volumes[at].next_trim(now_ns) {
                let volume = Volume(at as u16);
                let token = self.under_way.begin(Pending::Trim { volume });
                acts.push(Act::Trim { token, volume, units });
            }
        }
        if let Some(until_ns) = self.next_ns(extents.units().dirty_bytes() > 0) {
            acts.push(Act::Wait { until_ns });
        }
    }

    /// Whether a step may begin something because of a request that did not wait: where a step after each request would cost much,
    /// others can be left out.
    pub fn is_due_after_request<O: Evict>(&self, extents: &Extents<O>) -> bool {
        let dirty_bytes = extents.units().dirty_bytes();
        let is_cold_due = self.cold_watch.next_ns().is_some_and(|next_ns| next_ns <= self.now_ns);
        dirty_bytes > 0
            && (is_cold_due || self.rules.excess_bytes(dirty_bytes, extents.geometry().capacity_bytes()) > 0)
    }

    /// Has stores flushed for which it is time.
    fn flush_due<O: Evict>(&mut self, extents: &Extents<O>, acts: &mut Vec<Act>) {
        for at in 0..self.volumes.len() {
            let (state, volume) = (&self.volumes[at], Volume(at as u16));
            let unflushed_bytes = state.epochs.unflushed_bytes();
            if unflushed_bytes == 0 || state.flush.is_some() || state.is_left_alone(self.now_ns) {
                continue;
            }
            let is_waited_for = self.is_waited_for || self.is_closing || state.is_urgent();
            let covers_all = state.epochs.leaving_bytes() == 0;
            // The reserve is that of the volume's share, which may be small.
            let reserve_bytes =
                self.scale.reserve_bytes(extents.shares().limit_bytes(extents.shares().of(volume)));
            let is_much = unflushed_bytes >= reserve_bytes / FLUSHES_PER_RESERVE;
            let is_due = is_much
                || state.epochs.must_flush()
                || state.cold.lacks_flush()
                || is_waited_for && covers_all;
            if is_due && let Some(token) = self.begin_flush(volume) {
                acts.push(Act::Flush { token, volume });
            }
        }
    }

    /// A flush of a volume's store begins on behalf of a caller outside the cleaner. Returns the token under which the flush is
    /// answered as an [`Act::Flush`]; `None` where one is under way.
    pub fn begin_flush(&mut self, volume: Volume) -> Option<Token> {
        let now_ns = self.now_ns;
        if self.volume(volume).flush.is_some() {
            return None;
        }
        let token = self.under_way.begin(Pending::Flush { volume, asked_ns: now_ns });
        let state = self.volume_mut(volume);
        state.epochs.flush_begins();
        state.store_flushes += 1;
        state.cold = ColdEnd::default();
        state.flush = Some(token);
        state.ask(now_ns);
        Some(token)
    }

    /// When time alone changes something.
    fn next_ns(&self, any_dirty: bool) -> Option<u64> {
        let mut next_ns = self.cold_watch.next_ns().filter(|_| any_dirty).unwrap_or(u64::MAX);
        for volume in self.volumes.iter().filter(|volume| !volume.epochs.is_empty()) {
            let times = match volume.is_left_alone(self.now_ns) {
                true => [Some(volume.pause.until_ns()), None],
                false => [volume.old_ns(&self.rules), volume.hangs_at_ns()],
            };
            let refuses_at_ns = volume.no_room.refuses_at_ns(self.rules.full_wait_ns);
            let ahead = times.into_iter().chain([refuses_at_ns]).flatten().filter(|ns| *ns > self.now_ns);
            next_ns = ahead.fold(next_ns, u64::min);
        }
        let trims_at_ns = self.volumes.iter().filter_map(|volume| volume.trims_at_ns(self.now_ns));
        next_ns = trims_at_ns.fold(next_ns, u64::min);
        (next_ns < u64::MAX).then(|| next_ns.max(self.now_ns + 1))
    }
}
