//! The naive twin of frames: lists that are searched from end to end, and every sum counted anew whenever it is asked for.
//! Orders are exact LRU, coldest first.

#[path = "naive/heat.rs"]
mod heat;
#[path = "naive/requests.rs"]
mod requests;

use std::collections::BTreeMap;

use tiermem_policy::frames::{Arrival, Config, Outcome, References};
use tiermem_policy::prefetch::Insertion;

use super::{FRAMES, Op};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    pub tier: Option<u8>,
    pub copy: Option<u8>,
    pub owner: u16,
    pub pins: u16,
    pub dirty: bool,
    pub zero: bool,
    pub unused: bool,
    seen: bool,
    bit: bool,
    /// Uses since it came to memory, halved now and then, and when the last one was.
    heat: (u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Fill,
    Fetch,
    Demote,
    Drop,
    WriteBack,
}

#[derive(Clone, Debug)]
struct Moving {
    page: u32,
    kind: Kind,
    from: Option<u8>,
    to: Option<u8>,
    owner: u16,
    why: &'static str,
    stays: bool,
    awaited: bool,
    write: bool,
    zero: bool,
    unused: bool,
    void: bool,
    insertion: Insertion,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Room {
    Free,
    After(usize),
    Busy,
    None,
}

pub struct Naive {
    config: Config,
    pub pages: Vec<Page>,
    /// By tier and owner (0 where all share one), coldest first.
    orders: BTreeMap<(u8, u16), Vec<u32>>,
    /// By tier, oldest first.
    copies: BTreeMap<u8, Vec<u32>>,
    moves: BTreeMap<usize, Moving>,
    opened: usize,
    quotas: BTreeMap<(u16, u8), u32>,
    refilling: [bool; 4],
    candidates: Vec<u32>,
    heat: heat::Clock,
    acts: Vec<String>,
}

impl Naive {
    pub fn new(config: Config) -> Self {
        Naive {
            heat: heat::Clock::of(&config),
            config,
            pages: vec![Page::default(); FRAMES as usize],
            orders: BTreeMap::new(),
            copies: BTreeMap::new(),
            moves: BTreeMap::new(),
            opened: 0,
            quotas: BTreeMap::new(),
            refilling: [false; 4],
            candidates: Vec::new(),
            acts: Vec::new(),
        }
    }

    fn last(&self) -> u8 {
        self.config.tiers.len() as u8 - 1
    }
    fn in_place(&self, tier: Option<u8>) -> bool {
        tier.is_some_and(|tier| self.config.tiers[tier as usize].in_place)
    }
    fn page(&mut self, page: u32) -> &mut Page {
        &mut self.pages[page as usize]
    }
    fn moving(&self, page: u32) -> Option<usize> {
        let live = self.moves.iter().find(|(_, one)| one.page == page && !one.void);
        live.filter(|(_, one)| one.kind != Kind::WriteBack).map(|(number, _)| *number)
    }
    fn writing(&self, page: u32) -> Option<usize> {
        let live = self.moves.iter().find(|(_, one)| one.page == page && !one.void);
        live.filter(|(_, one)| one.kind == Kind::WriteBack).map(|(number, _)| *number)
    }
    pub fn is_moving(&self, page: u32) -> bool {
        self.moving(page).is_some()
    }
    pub fn is_writing(&self, page: u32) -> bool {
        self.writing(page).is_some()
    }
    pub fn charged(&self, owner: u16, tier: u8) -> u32 {
        let lie = self.pages.iter().filter(|page| page.owner == owner && page.tier == Some(tier)).count();
        let ends =
            self.moves.values().filter(|one| one.owner == owner).map(|one| {
                usize::from(one.to == Some(tier)) + usize::from(one.void && one.from == Some(tier))
            });
        (lie + ends.sum::<usize>()) as u32
    }
    fn leaving_of(&self, owner: u16, tier: u8) -> u32 {
        let back = |one: &&Moving| one.owner == owner;
        let count = |one: &Moving| {
            usize::from(one.from == Some(tier) && (one.void || one.kind != Kind::WriteBack))
                + usize::from(one.void && one.to == Some(tier))
        };
        self.moves.values().filter(back).map(count).sum::<usize>() as u32
    }
    pub fn used(&self, tier: u8) -> u32 {
        (0..self.config.owners as u16).map(|owner| self.charged(owner, tier)).sum()
    }
    pub fn leaving(&self, tier: u8) -> u32 {
        (0..self.config.owners as u16).map(|owner| self.leaving_of(owner, tier)).sum()
    }
    pub fn copies(&self, tier: u8) -> u32 {
        self.copies.get(&tier).map_or(0, Vec::len) as u32
    }
    fn free(&self, tier: u8) -> u32 {
        self.config.tiers[tier as usize].frames.saturating_sub(self.used(tier))
    }
    fn at_quota(&self, owner: u16, tier: u8) -> bool {
        self.quotas.get(&(owner, tier)).is_some_and(|quota| self.charged(owner, tier) >= *quota)
    }
    fn free_moves(&self) -> usize {
        self.config.moves_max as usize - self.moves.len()
    }

    // Orders.
    fn order(&mut self, page: u32, tier: u8) -> &mut Vec<u32> {
        let owner = if self.config.apart { self.pages[page as usize].owner } else { 0 };
        self.orders.entry((tier, owner)).or_default()
    }
    fn enter(&mut self, page: u32, tier: u8, from_cold: Option<usize>) {
        if tier < self.last() && self.pages[page as usize].pins == 0 {
            let order = self.order(page, tier);
            let at = from_cold.unwrap_or(order.len()).min(order.len());
            order.insert(at, page);
        }
    }
    fn leave(&mut self, page: u32, tier: u8) {
        self.order(page, tier).retain(|other| *other != page);
    }
    fn lift(&mut self, page: u32, tier: u8) {
        if self.order(page, tier).contains(&page) {
            self.leave(page, tier);
            self.enter(page, tier, None);
        }
    }

    // Copies.
    fn forget_copy(&mut self, page: u32) {
        if let Some(tier) = self.page(page).copy.take() {
            self.copies.get_mut(&tier).unwrap().retain(|other| *other != page);
        }
    }
    fn give_up_copy(&mut self, page: u32) {
        if let Some(tier) = self.pages[page as usize].copy {
            self.forget_copy(page);
            self.acts.push(format!("Free {{ frame: Frame({page}), tier: {tier} }}"));
        }
    }
    fn keep_copy(&mut self, page: u32, tier: u8) {
        self.page(page).copy = Some(tier);
        self.copies.entry(tier).or_default().push(page);
    }
    /// Where the next page of a tier needs the place of a copy, the oldest goes.
    fn squeeze(&mut self, tier: u8) {
        if self.copies(tier) > 0
            && self.used(tier) + self.copies(tier) >= self.config.tiers[tier as usize].frames
        {
            let oldest = self.copies[&tier][0];
            self.give_up_copy(oldest);
        }
    }

    // Room.
    fn room(&mut self, tier: u8, owner: u16, why: &'static str) -> Room {
        if self.free(tier) > 0 && !self.at_quota(owner, tier) {
            self.squeeze(tier);
            return Room::Free;
        }
        let only = self.at_quota(owner, tier).then_some(owner);
        let room = if tier < self.last() { self.evict(tier, only, why) } else { Room::None };
        let leaving = only.map_or_else(|| self.leaving(tier), |owner| self.leaving_of(owner, tier));
        if room == Room::None && leaving > 0 { Room::Busy } else { room }
    }
    fn rank(&self, owner: u16, tier: u8) -> Option<(u32, u32, u16)> {
        self.orders.get(&(tier, owner)).filter(|order| !order.is_empty())?;
        let staying = self.charged(owner, tier) - self.leaving_of(owner, tier);
        let (class, most) = match self.quotas.get(&(owner, tier)) {
            Some(quota) if staying > *quota => (3, staying - quota),
            Some(_) => (1, staying),
            None => (2, staying),
        };
        Some((class, most, u16::MAX - owner))
    }
    fn evict(&mut self, tier: u8, only: Option<u16>, why: &'static str) -> Room {
        let givers = match only {
            Some(owner) => vec![owner],
            None if !self.config.apart => vec![0],
            None => {
                let mut ranked: Vec<_> =
                    (0..self.config.owners as u16).filter_map(|owner| self.rank(owner, tier)).collect();
                ranked.sort();
                ranked.iter().rev().take(8).map(|(_, _, owner)| u16::MAX - owner).collect()
            }
        };
        for giver in givers {
            let Some(page) = self.coldest(giver, tier) else { continue };
            match self.send_down(page, tier, why) {
                Room::None => {}
                room => return room,
            }
        }
        Room::None
    }
    fn coldest(&mut self, giver: u16, tier: u8) -> Option<u32> {
        if let Some(page) = self.least_used(tier) {
            return Some(page);
        }
        for _ in 0..63 {
            let page = *self.orders.get(&(tier, giver))?.first()?;
            if self.config.references == References::Told || !std::mem::take(&mut self.page(page).bit) {
                return Some(page);
            }
            self.page(page).unused = false;
            self.lift(page, tier);
        }
        let page = *self.orders.get(&(tier, giver))?.first()?;
        self.page(page).bit = false;
        Some(page)
    }
    fn send_down(&mut self, page: u32, tier: u8, why: &'static str) -> Room {
        if let Some(number) = self.writing(page) {
            return Room::After(number);
        }
        if self.free_moves() == 0 {
            return Room::Busy;
        }
        let Page { copy, owner, zero, unused, .. } = self.pages[page as usize].clone();
        let below = tier + 1;
        let has_copy = copy == Some(below);
        let to = (!zero).then_some(below);
        let fits_over_copy = has_copy && self.free(below) > 0 && !self.at_quota(owner, below);
        if !zero && !fits_over_copy {
            match self.room(below, owner, why) {
                Room::Free => {}
                other => return other,
            }
        }
        if has_copy && !zero {
            self.forget_copy(page);
        }
        self.leave(page, tier);
        let unused = unused && !self.in_place(to);
        let drop = zero || has_copy && self.config.writes_told;
        let kind = if drop { Kind::Drop } else { Kind::Demote };
        let number = self.open(Moving { unused, why, ..Moving::of(page, kind, Some(tier), to, owner) });
        self.acts.push(if drop {
            format!("Drop {{ ticket: #{number}, frame: Frame({page}), from: {tier}, to: {to:?} }}")
        } else {
            format!(
                "Demote {{ ticket: #{number}, frame: Frame({page}), from: {tier}, to: {below}, has_copy: {has_copy} }}"
            )
        });
        Room::After(number)
    }
    fn open(&mut self, one: Moving) -> usize {
        self.moves.insert(self.opened, one);
        self.opened += 1;
        self.opened - 1
    }

    // Calls.
    fn refer(&mut self, page: u32, tier: u8) -> &'static str {
        self.heat_up(page);
        if self.moving(page).is_some() {
            self.page(page).bit = true;
            return "Moving";
        }
        match self.config.references {
            References::Sampled => self.page(page).bit = true,
            References::Told => self.lift(page, tier),
        }
        if tier > 0 && self.config.arrival == Arrival::First {
            let seen = &mut self.page(page).seen;
            *seen = !*seen;
            if !*seen {
                if self.candidates.len() == self.config.candidates as usize {
                    self.candidates.remove(0);
                }
                if self.candidates.last() != Some(&page) {
                    self.candidates.push(page);
                }
            }
        }
        if std::mem::take(&mut self.page(page).unused) { "FirstUse" } else { "Used" }
    }
    fn touch(&mut self, page: u32) -> &'static str {
        match self.pages[page as usize].tier {
            Some(tier) if self.in_place(Some(tier)) => self.refer(page, tier),
            _ => "Away",
        }
    }
    fn wrote(&mut self, page: u32) -> &'static str {
        let Some(tier) = self.pages[page as usize].tier.filter(|tier| self.in_place(Some(*tier))) else {
            return "Away";
        };
        for one in self.moves.values_mut().filter(|one| one.page == page && !one.void) {
            one.stays = true;
        }
        self.make_dirty(page);
        self.refer(page, tier)
    }
    fn make_dirty(&mut self, page: u32) {
        self.give_up_copy(page);
        (self.page(page).dirty, self.page(page).zero) = (true, false);
    }
    fn demand_of(&self, page: u32) -> &'static str {
        let Page { tier, unused, .. } = self.pages[page as usize];
        if self.in_place(tier) {
            return if unused { "PrefetchHit" } else { "Hit" };
        }
        match self.moving(page).map(|number| &self.moves[&number]) {
            Some(one) if one.kind == Kind::Fetch && one.why == "Prefetch" && !one.awaited => "LatePrefetch",
            Some(one) if matches!(one.kind, Kind::Fetch | Kind::Fill) => "UnderMiss",
            _ => "Miss",
        }
    }
    fn fault(&mut self, page: u32, write: bool) -> String {
        if let Some(number) = self.moving(page) {
            let one = self.moves.get_mut(&number).unwrap();
            if !one.awaited && matches!(one.kind, Kind::Demote | Kind::Drop) {
                self.acts.push(format!("Recall {{ ticket: #{number} }}"));
            }
            one.awaited = true;
            one.write |= write;
            return format!("After(#{number})");
        }
        let Page { tier, owner, .. } = self.pages[page as usize];
        if self.in_place(tier) {
            if write {
                self.wrote(page)
            } else {
                self.touch(page)
            };
            return "Here".to_owned();
        }
        if self.free_moves() == 0 {
            return "Busy".to_owned();
        }
        let to = self.arrival(owner);
        match self.room(to, owner, "Demand") {
            Room::After(number) => format!("Room(#{number})"),
            Room::Busy => "Busy".to_owned(),
            Room::None => "Full".to_owned(),
            Room::Free => format!("After(#{})", self.bring(page, to, "Demand", write, Insertion::Mru)),
        }
    }
    fn bring(&mut self, page: u32, to: u8, why: &'static str, write: bool, insertion: Insertion) -> usize {
        let Page { tier: from, owner, .. } = self.pages[page as usize];
        if let Some(from) = from {
            self.leave(page, from);
        }
        let kind = if from.is_some() { Kind::Fetch } else { Kind::Fill };
        let awaited = why == "Demand" && !self.in_place(from);
        let one = Moving { why, write, insertion, awaited, ..Moving::of(page, kind, from, Some(to), owner) };
        let number = self.open(one);
        self.acts.push(match from {
            Some(from) => format!(
                "Fetch {{ ticket: #{number}, frame: Frame({page}), from: {from}, to: {to}, why: {why} }}"
            ),
            None => format!("Fill {{ ticket: #{number}, frame: Frame({page}), to: {to} }}"),
        });
        number
    }
    fn prefetch(&mut self, page: u32, insertion: Insertion) -> String {
        let Page { tier, owner, .. } = self.pages[page as usize];
        let is_below = tier.is_some() && !self.in_place(tier) && self.moving(page).is_none();
        if !is_below || self.free_moves() <= self.config.moves_max as usize / 4 {
            return "No".to_owned();
        }
        let to = self.arrival(owner);
        let low = self.config.tiers[to as usize].low;
        let room = if low == 0 {
            self.room(to, owner, "Prefetch")
        } else if self.free(to) <= low {
            self.refilling[to as usize] = true;
            return "AfterStep".to_owned();
        } else if !self.at_quota(owner, to) {
            Room::Free
        } else {
            Room::None
        };
        match room {
            Room::After(number) => format!("Room(#{number})"),
            Room::Busy | Room::None => "No".to_owned(),
            Room::Free => format!("Sent(#{})", self.bring(page, to, "Prefetch", false, insertion)),
        }
    }
    fn done(&mut self, number: usize, outcome: Outcome) -> String {
        let one = self.moves.remove(&number).unwrap();
        let outcome = if one.stays && outcome == Outcome::Done { Outcome::Touched } else { outcome };
        let arrived = outcome == Outcome::Done;
        let page = one.page;
        let stayed = |copy_stays| format!("Arrived {{ copy_stays: {copy_stays} }}");
        let end = match one.kind {
            _ if one.void => "Void".to_owned(),
            Kind::WriteBack => {
                let to = one.to.unwrap();
                if arrived && self.free(to) > self.copies(to) {
                    self.page(page).dirty = false;
                    self.keep_copy(page, to);
                    stayed(false)
                } else {
                    "Stayed".to_owned()
                }
            }
            Kind::Fill | Kind::Fetch if arrived => stayed(self.arrive(&one)),
            Kind::Demote | Kind::Drop if arrived => {
                let lies = one.to.filter(|_| !one.zero);
                let is_in_place = self.in_place(lies);
                let cell = self.page(page);
                cell.tier = lies;
                (cell.dirty, cell.unused) = (cell.dirty && is_in_place, cell.unused && is_in_place);
                (cell.zero, cell.seen, cell.bit) = (false, false, false);
                if let Some(to) = lies {
                    self.enter(page, to, None);
                }
                if lies.is_none() && one.to.is_some() {
                    self.give_up_copy(page);
                    "Zero".to_owned()
                } else {
                    stayed(false)
                }
            }
            _ => {
                self.page(page).bit = false;
                self.heat_of_refused(&one);
                if let Some(from) = one.from {
                    self.enter(page, from, None);
                }
                "Stayed".to_owned()
            }
        };
        let unused = one.unused && (end.starts_with("Arrived") || end == "Zero");
        format!(
            "Settled {{ frame: Frame({page}), from: {:?}, to: {:?}, end: {end}, why: {}, awaited: {}, unused_prefetch: {unused} }}",
            one.from, one.to, one.why, one.awaited
        )
    }
    /// A page has come to a tier in place. Returns whether its copy stays.
    fn arrive(&mut self, one: &Moving) -> bool {
        let (page, to) = (one.page, one.to.unwrap());
        self.page(page).tier = Some(to);
        let copy_stays = one.from.is_some_and(|from| {
            self.config.tiers[from as usize].keeps_copies
                && !one.write
                && self.pages[page as usize].copy.is_none()
                && self.free(from) > self.copies(from)
        });
        let told = self.config.writes_told;
        let was_in_place = self.in_place(one.from);
        let cell = self.page(page);
        cell.unused = one.why == "Prefetch" && !one.awaited;
        if !was_in_place {
            cell.zero = one.kind == Kind::Fill && told;
        }
        (cell.bit, cell.seen) = (false, false);
        if !was_in_place {
            self.heat_begins(page, one.why != "Prefetch" || one.awaited);
        }
        if one.write {
            self.make_dirty(page);
        }
        if copy_stays {
            self.keep_copy(page, one.from.unwrap());
        }
        let known = one.from.is_some_and(|from| from < self.last());
        let len = self.order(page, to).len();
        let low = match one.insertion {
            _ if known || one.awaited || one.why == "Demand" => None,
            Insertion::Mru => None,
            Insertion::Mid => Some(len / 2),
            Insertion::Quarter => Some(len / 4),
            Insertion::Lru => Some(0),
        };
        self.enter(page, to, low);
        copy_stays
    }
    fn step(&mut self, budget: u32) -> String {
        let start = self.opened;
        let spare = |it: &Self| {
            it.opened - start < budget as usize && it.free_moves() > it.config.moves_max as usize / 4
        };
        for tier in (0..self.last()).rev() {
            while spare(self) {
                let opened = self.opened;
                let ranked = (0..self.config.owners as u16).filter_map(|owner| self.rank(owner, tier)).max();
                if let Some((3, _, owner)) = ranked.filter(|_| self.config.apart) {
                    self.evict(tier, Some(u16::MAX - owner), "Demand");
                }
                if self.opened == opened && self.wants_room(tier) {
                    self.evict(tier, None, "Demand");
                }
                if self.opened == opened {
                    break;
                }
            }
        }
        while spare(self) && !self.candidates.is_empty() {
            let page = self.candidates.remove(0);
            let Page { tier, owner, pins, .. } = self.pages[page as usize];
            let below = self.in_place(tier) && tier != Some(0);
            if !below || pins > 0 || self.moving(page).is_some() || self.writing(page).is_some() {
                continue;
            }
            match self.room(0, owner, "Demand") {
                Room::Free => {
                    self.bring(page, 0, "Demand", false, Insertion::Mru);
                }
                room => {
                    self.page(page).seen = true;
                    if !matches!(room, Room::After(_)) {
                        break;
                    }
                }
            }
        }
        while self.opened - start + 2 <= budget as usize && spare(self) && self.exchange() {}
        format!("{}", self.opened - start)
    }
    fn wants_room(&mut self, tier: u8) -> bool {
        let level = self.config.tiers[tier as usize];
        let staying = self.used(tier) - self.leaving(tier);
        let wanted = if self.refilling[tier as usize] { level.high } else { level.low };
        self.refilling[tier as usize] = staying + wanted > level.frames;
        self.refilling[tier as usize]
    }
}

impl Moving {
    fn of(page: u32, kind: Kind, from: Option<u8>, to: Option<u8>, owner: u16) -> Self {
        Moving {
            page,
            kind,
            from,
            to,
            owner,
            why: "Demand",
            stays: false,
            awaited: false,
            write: false,
            zero: false,
            unused: false,
            void: false,
            insertion: Insertion::Mru,
        }
    }
}
