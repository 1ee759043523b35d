//! Geometry of a flash back end: channels, ways (chips on a channel), dies, planes, blocks, pages, units.

/// Counts of each level. A *unit* is what the mapping table maps and the cache holds as a line; a page holds one or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Buses that transfer at the same time.
    pub channels: u32,
    /// Chips that share a channel.
    pub ways: u32,
    /// Parts of a chip that work at the same time.
    pub dies: u32,
    /// Parts of a die that carry out the same command together.
    pub planes: u32,
    /// Blocks of a plane, spare ones included.
    pub blocks_per_plane: u32,
    /// Pages of a block, which are erased together.
    pub pages_per_block: u32,
    /// Units of a page, which are programmed together.
    pub units_per_page: u32,
    /// Bytes of a unit.
    pub unit_bytes: u32,
}

/// A plane by its place in the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneAt {
    /// The die, counted over the whole device, channel by channel.
    pub die: u32,
    /// The plane in its die.
    pub plane: u32,
}

impl Geometry {
    /// Dies that share a channel.
    pub fn dies_per_channel(&self) -> u32 {
        self.ways * self.dies
    }

    /// Dies of the device.
    pub fn die_count(&self) -> u32 {
        self.channels * self.dies_per_channel()
    }

    /// Planes of the device.
    pub fn plane_count(&self) -> u32 {
        self.die_count() * self.planes
    }

    /// Units of a block.
    pub fn units_per_block(&self) -> u32 {
        self.pages_per_block * self.units_per_page
    }

    /// Units of a plane.
    pub fn units_per_plane(&self) -> u64 {
        u64::from(self.blocks_per_plane) * u64::from(self.units_per_block())
    }

    /// Bytes of the device, spare blocks included.
    pub fn raw_bytes(&self) -> u64 {
        self.units_per_plane() * u64::from(self.plane_count()) * u64::from(self.unit_bytes)
    }

    /// The plane whose turn it is when `turn` others had theirs: planes of a die first, so that they work together, then
    /// channels, ways and dies (the order that MQSim calls PCWD).
    pub fn in_turn(&self, turn: u64) -> PlaneAt {
        let part = |turn: &mut u64, count: u32| {
            let part = *turn % u64::from(count);
            *turn /= u64::from(count);
            part as u32
        };
        let mut turn = turn;
        let plane = part(&mut turn, self.planes);
        let channel = part(&mut turn, self.channels);
        let way = part(&mut turn, self.ways);
        let die = part(&mut turn, self.dies);
        PlaneAt { die: (channel * self.ways + way) * self.dies + die, plane }
    }

    /// The turn of a plane: the inverse of [`Self::in_turn`], below the number of planes.
    pub fn turn_of(&self, at: PlaneAt) -> u64 {
        let (die, way) = (at.die % self.dies, at.die / self.dies % self.ways);
        let channel = self.channel_of(at.die);
        let die_turn = (u64::from(die) * u64::from(self.ways) + u64::from(way)) * u64::from(self.channels);
        (die_turn + u64::from(channel)) * u64::from(self.planes) + u64::from(at.plane)
    }

    /// The plane's number in the device.
    pub fn plane_number(&self, at: PlaneAt) -> u32 {
        at.die * self.planes + at.plane
    }

    /// The plane with this number.
    pub fn plane_at(&self, number: u32) -> PlaneAt {
        PlaneAt { die: number / self.planes, plane: number % self.planes }
    }

    /// The channel of a die.
    pub fn channel_of(&self, die: u32) -> u32 {
        die / self.dies_per_channel()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plane_has_its_turn_before_any_has_its_second() {
        let geometry = Geometry {
            channels: 3,
            ways: 2,
            dies: 2,
            planes: 4,
            blocks_per_plane: 8,
            pages_per_block: 16,
            units_per_page: 4,
            unit_bytes: 4096,
        };
        let planes = u64::from(geometry.plane_count());
        let turns = |round: u64| -> Vec<_> {
            (round * planes..(round + 1) * planes)
                .map(|turn| geometry.plane_number(geometry.in_turn(turn)))
                .collect()
        };
        let mut sorted = turns(0);
        assert_eq!(sorted, turns(1));
        // The first four are the planes of one die, the fifth lies on another channel.
        assert_eq!(sorted[..4], [0, 1, 2, 3]);
        assert_eq!(geometry.channel_of(geometry.in_turn(4).die), 1);
        assert!((0..planes).all(|turn| geometry.turn_of(geometry.in_turn(turn)) == turn));
        sorted.sort_unstable();
        assert_eq!(sorted, (0..geometry.plane_count()).collect::<Vec<_>>());
        assert!((0..geometry.plane_count()).all(|n| geometry.plane_number(geometry.plane_at(n)) == n));
        assert_eq!(geometry.raw_bytes(), 48 * 8 * 16 * 16384);
    }
}
