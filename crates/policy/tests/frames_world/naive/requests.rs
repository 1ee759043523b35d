//! Requests to the naive twin, one at a time.

use super::*;

impl Naive {
    fn pin(&mut self, page: u32) -> &'static str {
        let Page { tier, pins, .. } = self.pages[page as usize];
        let pinned = self.pages.iter().filter(|page| page.pins > 0).count() as u32;
        if !self.in_place(tier) {
            return "Away";
        }
        if pins == 15 || pins == 0 && pinned >= self.config.pinned_max {
            return "TooMany";
        }
        match self.moving(page) {
            Some(number) => self.moves.get_mut(&number).unwrap().stays = true,
            None => self.leave(page, tier.unwrap()),
        }
        self.page(page).pins += 1;
        "Pinned"
    }
    fn unpin(&mut self, page: u32) -> bool {
        let Page { tier, pins, .. } = self.pages[page as usize];
        if pins == 0 {
            return false;
        }
        self.page(page).pins -= 1;
        if pins == 1 && self.moving(page).is_none() {
            self.enter(page, tier.unwrap(), None);
        }
        true
    }
    fn discard(&mut self, page: u32) -> bool {
        let Page { tier, owner, pins, .. } = self.pages[page as usize];
        if pins > 0 {
            return false;
        }
        self.give_up_copy(page);
        let live = self.moving(page).or(self.writing(page));
        if let Some(tier) = tier {
            self.leave(page, tier);
            if live.is_none() {
                self.acts.push(format!("Free {{ frame: Frame({page}), tier: {tier} }}"));
            }
        }
        if let Some(number) = live {
            self.moves.get_mut(&number).unwrap().void = true;
            self.acts.push(format!("Recall {{ ticket: #{number} }}"));
        }
        *self.page(page) = Page { owner, ..Page::default() };
        true
    }
    fn write_back(&mut self, page: u32) -> bool {
        let Page { tier, owner, copy, zero, .. } = self.pages[page as usize];
        let Some(from) = tier.filter(|tier| self.in_place(Some(*tier)) && *tier < self.last()) else {
            return false;
        };
        let to = from + 1;
        let may = self.moving(page).is_none()
            && self.writing(page).is_none()
            && copy.is_none()
            && !zero
            && self.config.tiers[to as usize].keeps_copies
            && self.free_moves() > 0
            && self.free(to) > 0
            && !self.at_quota(owner, to);
        if may {
            self.squeeze(to);
            let number = self.open(Moving::of(page, Kind::WriteBack, Some(from), Some(to), owner));
            self.acts.push(format!(
                "WriteBack {{ ticket: #{number}, frame: Frame({page}), from: {from}, to: {to} }}"
            ));
        }
        may
    }
    fn adopt(&mut self, page: u32, tier: u8) -> bool {
        let Page { tier: lies, owner, .. } = self.pages[page as usize];
        let may = lies.is_none()
            && self.moving(page).is_none()
            && tier <= self.last()
            && self.free(tier) > 0
            && !self.at_quota(owner, tier);
        if may {
            self.squeeze(tier);
            self.page(page).tier = Some(tier);
            self.heat_begins(page, false);
            self.enter(page, tier, None);
        }
        may
    }

    fn faulted_in(&mut self, page: u32, write: bool) -> String {
        let Page { tier, owner, .. } = self.pages[page as usize];
        let in_place = self.in_place(tier);
        match write {
            _ if !in_place => "",
            true => self.wrote(page),
            false => self.touch(page),
        };
        let moving = self.moving(page);
        if let Some(one) = moving.and_then(|number| self.moves.get_mut(&number)) {
            one.awaited = true;
            one.write |= write;
            one.stays |= matches!(one.kind, Kind::Demote | Kind::Drop);
            self.page(page).unused = false;
        }
        if in_place || moving.is_some() {
            return "None".to_owned();
        }
        if let Some(from) = tier {
            self.leave(page, from);
        }
        let to = self.arrival(owner);
        let room = if self.free_moves() > 0 { self.room(to, owner, "Demand") } else { Room::Busy };
        let kind = if tier.is_some() { Kind::Fetch } else { Kind::Fill };
        self.arrive(&Moving { write, awaited: true, ..Moving::of(page, kind, tier, Some(to), owner) });
        match room {
            Room::After(number) => format!("Some(#{number})"),
            _ => "None".to_owned(),
        }
    }
    fn found(&mut self, page: u32, tier: u8) -> bool {
        let Page { tier: was, owner, pins, .. } = self.pages[page as usize];
        let is_busy = self.moving(page).is_some() || self.writing(page).is_some() || pins > 0;
        if was == Some(tier) || tier > self.last() || is_busy {
            return false;
        }
        self.give_up_copy(page);
        if let Some(was) = was {
            self.leave(page, was);
        }
        *self.page(page) = Page { owner, ..Page::default() };
        self.squeeze(tier);
        self.page(page).tier = Some(tier);
        self.heat_begins(page, false);
        self.enter(page, tier, None);
        true
    }

    /// As the world runs it; `tickets` are the numbers of those under way, oldest first.
    pub fn run(&mut self, op: Op, tickets: &[usize]) -> (String, Vec<String>) {
        self.acts.clear();
        let nth = |nth: usize| tickets.get(nth % tickets.len().max(1)).copied();
        let answer = match op {
            Op::Fault { frame, write } => {
                let found = self.demand_of(frame);
                format!("{found} {}", self.fault(frame, write))
            }
            Op::FaultedIn { frame, write } => self.faulted_in(frame, write),
            Op::Found { frame, tier } => self.found(frame, tier).to_string(),
            Op::Touch { frame } => self.touch(frame).to_owned(),
            Op::Granule { frame, frames_log2 } => {
                let first = frame >> frames_log2 << frames_log2;
                let one_tier = self.config.tiers.iter().filter(|tier| tier.in_place).count() == 1;
                for page in first..(first + (1 << frames_log2)).min(FRAMES) {
                    if self.config.references == References::Sampled && one_tier {
                        self.page(page).bit = true;
                    } else {
                        self.touch(page);
                    }
                }
                String::new()
            }
            Op::Wrote { frame } => self.wrote(frame).to_owned(),
            Op::Prefetch { frame, insertion } => self.prefetch(frame, insertion),
            Op::Done { nth: at, outcome } => {
                nth(at).map_or(String::new(), |number| self.done(number, outcome))
            }
            Op::FoundZero { nth: at } => {
                let found = nth(at).and_then(|number| self.moves.get_mut(&number));
                found.filter(|one| one.kind == Kind::Demote).into_iter().for_each(|one| one.zero = true);
                String::new()
            }
            Op::Step { budget } => self.step(budget),
            Op::Pin { frame } => self.pin(frame).to_owned(),
            Op::Unpin { frame } => self.unpin(frame).to_string(),
            Op::Discard { frame } => self.discard(frame).to_string(),
            Op::WriteBack { frame } => self.write_back(frame).to_string(),
            Op::Adopt { frame, tier } => self.adopt(frame, tier).to_string(),
            Op::Assign { frame, owner } => {
                let nowhere = self.pages[frame as usize].tier.is_none() && self.moving(frame).is_none();
                let may = nowhere && u32::from(owner) < self.config.owners;
                if may {
                    self.page(frame).owner = owner;
                }
                may.to_string()
            }
            Op::Quota { owner, tier, frames } => {
                let may = self.config.apart && u32::from(owner) < self.config.owners && tier <= self.last();
                if may {
                    match frames {
                        Some(frames) => self.quotas.insert((owner, tier), frames),
                        None => self.quotas.remove(&(owner, tier)),
                    };
                }
                may.to_string()
            }
            Op::Capacity { tier, frames } => {
                let may = tier <= self.last();
                if may {
                    self.config.tiers[tier as usize].frames = frames;
                    while self.free(tier) < self.copies(tier) {
                        let oldest = self.copies[&tier][0];
                        self.give_up_copy(oldest);
                    }
                }
                may.to_string()
            }
            Op::Watermarks { tier, low, high } => {
                let may = tier < self.last();
                if may {
                    let level = &mut self.config.tiers[tier as usize];
                    (level.low, level.high) = (low, high.max(low));
                }
                may.to_string()
            }
        };
        (answer, self.acts.clone())
    }
}
