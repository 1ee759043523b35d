//! Toy engine that keeps the journal's rules over a disk that can lose power, and a model of what it was promised.
#![allow(clippy::unwrap_used, dead_code)] // Helpers of tests are tests; each test uses some of them.

use std::collections::BTreeMap;
use std::ops::Range;

use tiermem_base::Rng;
use tiermem_block::journal::{
    self, Journal, LayoutConfig, Lsn, Record, Recovered, UnitState, VolumeInfo, VolumeState, checksum,
};
use tiermem_tier::block::{
    AlignedBuffer, BlockIo, Completion, Faults, Faulty, Immediate, MemoryDisk, Request,
};

pub const UNIT: u64 = 4096;
pub const VOLUMES: u16 = 2;
const SECTORS: usize = 8;

/// Content of a unit: for each sector the number of the write that it is from; 0 is its initial content.
pub type Content = [u32; SECTORS];

/// A block's name: its volume and its first unit there.
pub type Key = (u16, u64);

/// The process or the machine died.
#[derive(Debug)]
pub struct Crash;

#[derive(Clone, Copy, Debug)]
struct Write {
    /// Its number; `None` says that the unit was lost.
    number: Option<u32>,
    lsn: Lsn,
}

/// Allowed contents of a unit of a volume.
#[derive(Clone, Debug, Default)]
struct Expected {
    base: Content,
    base_lost: bool,
    writes: Vec<Write>,
}

#[derive(Clone, Debug)]
struct Block {
    slot: u32,
    class: u8,
    /// The last OPEN, the last CLEAN, the last record.
    open: Option<Lsn>,
    cleaned: Lsn,
    last: Lsn,
}

/// One life after the other of a cache.
pub struct World {
    pub disk: MemoryDisk,
    pub config: LayoutConfig,
    /// Memory for the table.
    table_bytes: Option<u64>,
    pub rng: Rng,
    device: Immediate,
    pub journal: Journal,
    /// Submitted, and perhaps done.
    pending: Vec<Request>,
    arrived: Vec<Completion>,
    data_done: bool,
    now_ns: u64,
    fuel: u64,
    number: u32,
    units: u64,
    backing: BTreeMap<Key, Content>,
    expected: BTreeMap<Key, Expected>,
    blocks: BTreeMap<Key, Block>,
    volumes: BTreeMap<u16, Vec<(Lsn, VolumeInfo)>>,
    pub taken: u64,
    pub dropped: u64,
    pub kept: u64,
    pub poisoned: u64,
}

fn fill(volume: u16, unit: u64, content: &Content) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(UNIT as usize);
    for number in content {
        let mut pattern = [0; 16];
        pattern[..4].copy_from_slice(&number.to_le_bytes());
        pattern[4..6].copy_from_slice(&volume.to_le_bytes());
        pattern[8..].copy_from_slice(&unit.to_le_bytes());
        bytes.extend(pattern.iter().cycle().take(512));
    }
    bytes
}

/// The content of a unit of that volume, if each sector is one of its.
fn content_of(volume: u16, unit: u64, bytes: &[u8]) -> Option<Content> {
    let mut content = [0; SECTORS];
    for (number, sector) in content.iter_mut().zip(bytes.chunks_exact(512)) {
        *number = u32::from_le_bytes([sector[0], sector[1], sector[2], sector[3]]);
    }
    (fill(volume, unit, &content) == bytes).then_some(content)
}

impl World {
    pub fn new(
        config: LayoutConfig,
        table_bytes: Option<u64>,
        disk_bytes: usize,
        units: u64,
        seed: u64,
    ) -> Self {
        let disk = MemoryDisk::new(disk_bytes);
        let mut device = disk.open();
        journal::format(&mut device, &config, false).unwrap();
        let (journal, recovered) = journal::open(&mut device, &config, table_bytes).unwrap();
        assert_eq!(recovered, Recovered::default());
        World {
            disk,
            config,
            table_bytes,
            rng: Rng::seeded(seed),
            device,
            journal,
            pending: Vec::new(),
            arrived: Vec::new(),
            data_done: false,
            now_ns: 0,
            fuel: 0,
            number: 0,
            units,
            backing: BTreeMap::new(),
            expected: BTreeMap::new(),
            blocks: BTreeMap::new(),
            volumes: BTreeMap::new(),
            taken: 0,
            dropped: 0,
            kept: 0,
            poisoned: 0,
        }
    }

    fn stored(&self, volume: u16, unit: u64) -> Content {
        self.backing.get(&(volume, unit)).copied().unwrap_or_default()
    }

    /// One thing happens: something is submitted, done, or noticed.
    fn step(&mut self) -> Result<(), Crash> {
        self.fuel = self.fuel.checked_sub(1).ok_or(Crash)?;
        self.now_ns += self.rng.below(3_000_000);
        let mut requests = Vec::new();
        self.journal.poll(self.now_ns, &mut requests);
        assert_eq!(self.journal.failed(), None);
        self.pending.append(&mut requests);
        if !self.pending.is_empty() && self.rng.below(3) > 0 {
            let at = self.rng.below(self.pending.len() as u64) as usize;
            self.device.submit(self.pending.swap_remove(at));
            self.device.completed(&mut self.arrived);
        }
        if !self.arrived.is_empty() && self.rng.below(3) > 0 {
            let at = self.rng.below(self.arrived.len() as u64) as usize;
            let done = self.arrived.swap_remove(at);
            match Journal::owns(done.token) {
                true => self.journal.complete(done),
                false => self.data_done = true,
            }
        }
        Ok(())
    }

    fn until(&mut self, is_done: impl Fn(&Self) -> bool) -> Result<(), Crash> {
        while !is_done(self) {
            self.step()?;
        }
        Ok(())
    }

    fn synced(&mut self, lsn: Lsn) -> Result<(), Crash> {
        self.journal.want_synced(lsn);
        self.until(|it| it.journal.synced() >= lsn)
    }

    fn write_data(&mut self, unit: u64, bytes: &[u8]) -> Result<(), Crash> {
        let mut buffer = AlignedBuffer::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        self.pending.push(Request::write(7, self.journal.layout().unit_at(unit), buffer));
        self.data_done = false;
        self.until(|it| it.data_done)?;
        self.journal.note_data(bytes.len() as u64);
        Ok(())
    }

    fn class_units(&self, class: u8) -> u64 {
        self.config.block_bytes[usize::from(class)] / UNIT
    }

    fn block_units(&self, block: &Block) -> Range<u64> {
        let first = u64::from(block.slot) * self.class_units(0);
        first..first + self.class_units(block.class)
    }

    /// The block with a unit of a volume, and where in the cache the unit lies.
    fn find(&self, volume: u16, unit: u64) -> Option<(Key, u64)> {
        let (key, block) = self.blocks.range(..=(volume, unit)).next_back()?;
        let here = key.0 == volume && unit < key.1 + self.class_units(block.class);
        here.then(|| (*key, self.block_units(block).start + unit - key.1))
    }

    fn append(&mut self, key: Key, record: Record<'_>) -> Lsn {
        let lsn = self.journal.append(record);
        if let Some(block) = self.blocks.get_mut(&key) {
            block.last = lsn;
        }
        lsn
    }

    /// Finds or makes a place for a unit.
    fn place(&mut self, volume: u16, unit: u64) -> Result<Option<(Key, u64)>, Crash> {
        if let Some(found) = self.find(volume, unit) {
            return Ok(Some(found));
        }
        let class = self.rng.below(self.config.block_bytes.len() as u64) as u8;
        let units = self.class_units(class);
        let first = unit / units * units;
        if (first..(first + units).min(self.units)).any(|unit| self.find(volume, unit).is_some()) {
            return Ok(None);
        }
        let geometry = self.journal.layout().geometry.clone();
        let mut groups = vec![(None, Vec::new()); geometry.groups() as usize];
        for block in self.blocks.values() {
            let group = &mut groups[geometry.group_of(block.slot) as usize];
            group.0 = Some(block.class);
            group.1.push(block.slot);
        }
        let pieces = geometry.class_pieces(usize::from(class)) as usize;
        let slots = (0..geometry.slots()).step_by(pieces).find(|slot| {
            let (of, taken) = &groups[geometry.group_of(*slot) as usize];
            of.is_none_or(|of| of == class) && !taken.contains(slot)
        });
        let Some(slot) = slots else {
            let at = self.rng.below(self.blocks.len() as u64) as usize;
            let victim = *self.blocks.keys().nth(at).unwrap();
            self.evict(victim)?;
            return Ok(None);
        };
        let none = Lsn(0);
        self.blocks.insert((volume, first), Block { slot, class, open: None, cleaned: none, last: none });
        let piece = first / self.class_units(0);
        self.append((volume, first), Record::Map { slot, class, volume, piece });
        Ok(self.find(volume, unit))
    }

    fn open_block(&mut self, key: Key) -> Result<(), Crash> {
        let block = self.blocks[&key].clone();
        let lsn = match block.open {
            Some(lsn) => lsn,
            None => self.append(key, Record::Open { slot: block.slot }),
        };
        self.blocks.get_mut(&key).unwrap().open = Some(lsn);
        self.synced(lsn)
    }

    fn may_overwrite(&mut self, units: Range<u64>) -> Result<(), Crash> {
        // This engine takes all that is synced as promised, so it may rely on the rest being promised to no client.
        while self.journal.is_unsealed(units.clone()) {
            let lsn = self.journal.appended();
            self.journal.want_sealed(lsn);
            self.until(|it| it.journal.sealed() >= lsn)?;
        }
        Ok(())
    }

    fn expect(&mut self, volume: u16, unit: u64, number: Option<u32>, lsn: Lsn) {
        let expected = self.expected.entry((volume, unit)).or_default();
        expected.writes.push(Write { number, lsn });
    }

    /// Writes some units, back or through; a write that fails loses them.
    fn write(&mut self, volume: u16, unit: u64, how: u64) -> Result<(), Crash> {
        let Some((key, at)) = self.place(volume, unit)? else { return Ok(()) };
        let end = self.block_units(&self.blocks[&key]).end.min(at + 1 + self.rng.below(4));
        let units = at..end.min(at + self.units - unit);
        if how > 0 || units.clone().any(|unit| self.journal.is_recorded(unit)) {
            self.open_block(key)?;
            self.may_overwrite(units.clone())?;
        }
        self.number += 1;
        let content = [self.number; SECTORS];
        let (mut bytes, mut sums) = (Vec::new(), Vec::new());
        for offset in 0..units.end - at {
            let data = fill(volume, unit + offset, &content);
            sums.push(checksum(volume, (unit + offset) * UNIT, &data));
            bytes.extend(data);
            // From now on it may be there; `u64::MAX` is no promise.
            self.expect(volume, unit + offset, Some(self.number), Lsn(u64::MAX));
            if how == 1 {
                self.backing.insert((volume, unit + offset), content);
            }
        }
        self.write_data(at, &bytes)?;
        let lsn = match how {
            2 => self.append(key, Record::Poison(units.clone())),
            _ => self.append(key, Record::Units { first: at, dirty: how == 0, sums: &sums }),
        };
        for offset in 0..units.end - at {
            let number = (how != 2).then_some(self.number);
            self.expect(volume, unit + offset, number, lsn);
        }
        Ok(())
    }

    fn read(&mut self, volume: u16, unit: u64) -> Result<(), Crash> {
        let Some((key, at)) = self.place(volume, unit)? else { return Ok(()) };
        // A cached unit is not fetched, and one of a block that may be written is left alone.
        if self.journal.state(at) != UnitState::Invalid {
            return Ok(());
        }
        if self.journal.is_recorded(at) {
            self.open_block(key)?;
        }
        let data = fill(volume, unit, &self.stored(volume, unit));
        self.write_data(at, &data)?;
        let sum = checksum(volume, unit * UNIT, &data);
        self.append(key, Record::Units { first: at, dirty: false, sums: &[sum] });
        Ok(())
    }

    /// Writes a block's dirty units back; lost ones stay.
    fn clean(&mut self, key: Key) {
        let units = self.block_units(&self.blocks[&key]);
        for at in units.clone() {
            if self.journal.state(at) == UnitState::Dirty {
                let unit = key.1 + at - units.start;
                let bytes = self.data(at);
                let content = content_of(key.0, unit, &bytes).expect("its own");
                self.backing.insert((key.0, unit), content);
            }
        }
        let lsn = self.append(key, Record::Clean(units));
        self.blocks.get_mut(&key).unwrap().cleaned = lsn;
    }

    fn data(&mut self, at: u64) -> Vec<u8> {
        let mut bytes = vec![0; UNIT as usize];
        self.device.read_at(self.journal.layout().unit_at(at), &mut bytes).unwrap();
        bytes
    }

    fn evict(&mut self, key: Key) -> Result<(), Crash> {
        let units = self.block_units(&self.blocks[&key]);
        let is_lost = |it: &Self| units.clone().any(|at| it.journal.state(at) == UnitState::Poisoned);
        if is_lost(self) {
            return Ok(());
        }
        self.clean(key);
        let Block { slot, class, cleaned, .. } = self.blocks[&key].clone();
        self.synced(cleaned)?;
        self.append(key, Record::Unmap { slot, class });
        self.blocks.remove(&key);
        Ok(())
    }

    fn drop_clean(&mut self, key: Key) {
        let units = self.block_units(&self.blocks[&key]);
        for at in units {
            if self.journal.state(at) == UnitState::Clean && self.rng.below(2) == 0 {
                self.append(key, Record::Drop(at..at + 1));
            }
        }
    }

    fn volume(&mut self, number: u16) {
        let state = match self.rng.below(2) {
            0 => VolumeState::Writing { which: None },
            _ => VolumeState::Settled { which: Some(self.number.to_string()), version: None },
        };
        let size_bytes = self.units * UNIT;
        let info = VolumeInfo { number, name: format!("volume {number}"), size_bytes, state, marks: None };
        let lsn = self.journal.append(Record::Volume(&info));
        self.volumes.entry(number).or_default().push((lsn, info));
    }

    fn act(&mut self) -> Result<(), Crash> {
        self.until(|it| it.journal.has_room())?;
        let volume = self.rng.below(u64::from(VOLUMES)) as u16;
        let unit = self.rng.below(self.units);
        let some = (!self.blocks.is_empty()).then(|| {
            let at = self.rng.below(self.blocks.len() as u64) as usize;
            *self.blocks.keys().nth(at).unwrap()
        });
        // A few hot units.
        let unit = if self.rng.below(2) == 0 { unit % 5 } else { unit };
        match (self.rng.below(20), some) {
            (0..=6, _) => self.write(volume, unit, 0),
            (7..=8, _) => self.write(volume, unit, 1),
            (9, _) if unit.is_multiple_of(7) => self.write(volume, unit, 2),
            (10..=12, _) => self.read(volume, unit),
            (13, _) => {
                let lsn = self.journal.appended();
                self.synced(lsn)
            }
            (14, Some(key)) => {
                self.clean(key);
                Ok(())
            }
            (15, Some(key)) => self.evict(key),
            (16, Some(key)) => {
                let slot = self.blocks[&key].slot;
                if self.blocks.get_mut(&key).unwrap().open.take().is_some() {
                    self.append(key, Record::Close { slot });
                }
                Ok(())
            }
            (17, Some(key)) => {
                self.drop_clean(key);
                Ok(())
            }
            (18, _) if self.rng.below(5) == 0 => {
                self.volume(volume);
                Ok(())
            }
            _ => self.step(),
        }
    }

    /// Runs for this number of steps, and dies in the middle of one.
    pub fn live(&mut self, steps: u64) {
        self.fuel = steps;
        while self.act().is_ok() {}
    }

    /// Stops in order: no block is open, and all is sealed.
    pub fn settle(&mut self) {
        self.fuel = u64::MAX;
        for key in self.blocks.keys().copied().collect::<Vec<_>>() {
            let slot = self.blocks[&key].slot;
            if self.journal.is_open(slot) {
                self.append(key, Record::Close { slot });
            }
        }
        let lsn = self.journal.appended();
        self.journal.want_sealed(lsn);
        self.until(|it| it.journal.sealed() >= lsn).unwrap();
    }

    /// The checksum of a unit, wherever it lies now.
    fn sum(&mut self, at: u64) -> Option<u32> {
        while !self.journal.has_sums(at..at + 1) {
            self.fuel += 1;
            self.step().unwrap();
        }
        self.journal.sum(at)
    }

    /// Units that must be as they are after power loss, or after the death of the process, and their checksums if these are in memory.
    fn strict(&self, upto: Lsn) -> BTreeMap<u64, (UnitState, Option<u32>)> {
        let sure = self.blocks.values().filter(|block| block.open.is_none() && block.last <= upto);
        let units = sure.flat_map(|block| self.block_units(block));
        units.map(|at| (at, (self.journal.state(at), self.journal.sum(at)))).collect()
    }

    /// Dies, is opened again, perhaps after a recovery or two that died as well, and is compared with what was promised.
    pub fn crash(&mut self, power: bool) {
        let (promised, strict) = match power {
            true => (self.journal.synced(), self.strict(self.journal.sealed())),
            false => (self.journal.written(), self.strict(self.journal.written())),
        };
        for request in std::mem::take(&mut self.pending) {
            if self.rng.below(2) == 0 {
                self.device.submit(request);
            }
        }
        self.arrived.clear();
        self.lose(power);
        while self.rng.below(4) > 0 {
            let most = if self.rng.below(4) > 0 { 50 } else { 1 << self.rng.below(12) };
            let after = Some(self.rng.below(most));
            let faults = Faults { error_after: after, ..Faults::default() };
            let mut device = Faulty::new(self.disk.open(), faults, self.rng.clone());
            let _ = journal::open(&mut device, &self.config, self.table_bytes);
            drop(device);
            let power = power && self.rng.below(4) > 0;
            self.lose(power);
        }
        self.device = self.disk.open();
        let (journal, recovered) = journal::open(&mut self.device, &self.config, self.table_bytes).unwrap();
        self.journal = journal;
        self.taken += recovered.taken_units;
        self.dropped += recovered.dropped_units;
        self.kept += recovered.kept_units;
        self.poisoned += recovered.poisoned_units;
        for (at, (state, sum)) in strict {
            assert_eq!(self.journal.state(at), state, "unit {at} of the cache");
            if sum.is_some() {
                assert_eq!(self.sum(at), sum, "unit {at} of the cache");
            }
        }
        self.check_volumes(promised, &recovered);
        self.check_units(promised);
    }

    fn lose(&mut self, power: bool) {
        match (power, self.rng.below(3)) {
            (false, _) => (),
            (true, 0) => self.disk.lose_unsynced(),
            (true, _) => self.disk.lose_some_unsynced(&mut self.rng),
        }
    }

    fn check_volumes(&mut self, promised: Lsn, recovered: &Recovered) {
        for (number, states) in &mut self.volumes {
            let first = states.iter().rposition(|(lsn, _)| *lsn <= promised);
            let found = recovered.volumes.iter().find(|info| info.number == *number);
            match found {
                None => assert_eq!(first, None, "volume {number} is gone"),
                Some(info) => {
                    let sound = states[first.unwrap_or(0)..].iter().any(|(_, it)| it == info);
                    assert!(sound, "volume {number} is {info:?}");
                }
            }
            states.clear();
            states.extend(found.map(|info| (Lsn(0), info.clone())));
        }
    }

    fn check_units(&mut self, promised: Lsn) {
        self.blocks.clear();
        let mut blocks = Vec::new();
        self.journal.each_block(&mut self.device, |block| blocks.push(block.clone())).unwrap();
        for block in blocks {
            assert!(!self.journal.is_open(block.slot));
            let key = (block.volume, block.piece * self.class_units(0));
            let none = Lsn(0);
            let new = Block { slot: block.slot, class: block.class, open: None, cleaned: none, last: none };
            let overlaps =
                (0..self.class_units(block.class)).any(|at| self.find(key.0, key.1 + at).is_some());
            assert!(!overlaps && self.blocks.insert(key, new).is_none(), "two blocks for {key:?}");
        }
        let units = self.units;
        for (volume, unit) in (0..VOLUMES).flat_map(|volume| (0..units).map(move |unit| (volume, unit))) {
            let expected = self.expected.remove(&(volume, unit)).unwrap_or_default();
            let found = self.look(volume, unit);
            let first = expected.writes.iter().rposition(|write| write.lsn <= promised);
            let later = &expected.writes[first.unwrap_or(0)..];
            let may_be_lost =
                later.iter().any(|write| write.number.is_none()) || first.is_none() && expected.base_lost;
            match found {
                None => assert!(may_be_lost, "unit {unit} of volume {volume} is lost: {expected:?}"),
                Some(content) => {
                    for (sector, number) in content.iter().enumerate() {
                        let is_base = first.is_none() && *number == expected.base[sector];
                        let is_later = later.iter().any(|write| write.number == Some(*number));
                        assert!(
                            is_base || is_later,
                            "sector {sector} of unit {unit} of volume {volume} is {number}, promised {promised:?}: \
                             {expected:?}"
                        );
                    }
                }
            }
            let base = found.unwrap_or(expected.base);
            self.expected
                .insert((volume, unit), Expected { base, base_lost: found.is_none(), writes: Vec::new() });
        }
    }

    /// The content that a client reads; `None` is an error.
    fn look(&mut self, volume: u16, unit: u64) -> Option<Content> {
        let stored = self.stored(volume, unit);
        let Some((_, at)) = self.find(volume, unit) else { return Some(stored) };
        let bytes = self.data(at);
        let fits = self.sum(at) == Some(checksum(volume, unit * UNIT, &bytes));
        match self.journal.state(at) {
            UnitState::Invalid => Some(stored),
            UnitState::Poisoned => None,
            UnitState::Dirty => {
                assert!(fits, "unit {unit} of volume {volume} is dirty and spoiled");
                Some(content_of(volume, unit, &bytes).expect("another's data"))
            }
            UnitState::Clean if !fits => Some(stored),
            UnitState::Clean => {
                let content = content_of(volume, unit, &bytes);
                assert_eq!(content, Some(stored), "unit {unit} of volume {volume} is clean and differs");
                content
            }
        }
    }
}
