//! Room for replies: how long the next reply may be, when others wait to be sent.
//!
//! Clients that do not read must not fill memory, and clients that do must get what they ask for. So each longest value may always
//! be had while any room is left; without room a reply may still be as long as one client's buffer; and beyond twice the memory for
//! replies it may only be short, however many clients ask. What does not fit waits in line ([`crate::reply_line`]).

/// Memory for replies, and what is to be had of it whatever waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyRoom {
    /// What the replies of all clients may take, in bytes.
    pub total_bytes_max: usize,
    /// What the replies of one client may take before no more of its requests are read.
    pub client_bytes_max: usize,
    /// A reply with the longest value.
    pub value_reply_bytes: usize,
    /// A reply that is to be had when nothing else is.
    pub short_reply_bytes: usize,
    /// The longest reply of all.
    pub reply_bytes_max: usize,
    /// Whether several shards put a reply together.
    pub has_shards: bool,
}

/// Where the one who asks for room stands among those who wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may exceed the room.
    Privileged,
    /// Nobody waits before it.
    First,
    /// Others do.
    Behind,
}

impl ReplyRoom {
    /// How long the next reply may be, when `waiting_bytes` of replies are not sent yet, in all shards.
    #[inline]
    pub fn grant(&self, waiting_bytes: usize, standing: Standing) -> usize {
        match standing {
            Standing::Privileged => self.reply_bytes_max,
            Standing::First => self.left(waiting_bytes),
            Standing::Behind => self.left(waiting_bytes).min(self.client_bytes_max),
        }
    }

    fn left(&self, waiting_bytes: usize) -> usize {
        let left = self.bytes_max().saturating_sub(waiting_bytes);
        let least = if left > 0 {
            self.value_reply_bytes.max(self.client_bytes_max)
        } else if waiting_bytes < self.total_bytes_max.saturating_mul(2) {
            self.client_bytes_max
        } else {
            self.short_reply_bytes
        };
        self.reply_bytes_max.min(left.max(least))
    }

    /// A large reply is put together where its client is at home: what the client reads at once counts there as if it were left,
    /// and once more where it comes from. So with several shards it may be half as much again.
    fn bytes_max(&self) -> usize {
        if self.has_shards { self.total_bytes_max.saturating_mul(2) / 4 * 3 } else { self.total_bytes_max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rooms() -> impl Strategy<Value = ReplyRoom> {
        let sizes = (64usize << 10..256 << 20, 16usize << 10..8 << 20, 1usize << 10..32 << 20);
        (sizes, any::<bool>()).prop_map(
            |((total_bytes_max, client_bytes_max, value_reply_bytes), has_shards)| ReplyRoom {
                total_bytes_max,
                client_bytes_max,
                value_reply_bytes,
                short_reply_bytes: 16 << 10,
                reply_bytes_max: value_reply_bytes.max(64 << 20),
                has_shards,
            },
        )
    }

    proptest! {
        /// Clients that never read take a bounded amount, and short replies beyond that. Who reads gets the longest value whenever
        /// any room is left, and a short reply always.
        #[test]
        fn those_who_never_read_are_bounded_and_others_served(
            room in rooms(),
            asked in prop::collection::vec(1usize..64 << 20, 1..200),
        ) {
            let ReplyRoom { total_bytes_max, client_bytes_max, value_reply_bytes, short_reply_bytes, .. } = room;
            let (mut waiting, mut short) = (0, 0);
            for bytes in asked {
                let granted = room.grant(waiting, Standing::First);
                prop_assert!(granted >= short_reply_bytes.min(client_bytes_max));
                prop_assert!(granted <= room.reply_bytes_max);
                prop_assert!(room.grant(waiting, Standing::Behind) <= granted.min(client_bytes_max.max(short_reply_bytes)));
                prop_assert_eq!(room.grant(waiting, Standing::Privileged), room.reply_bytes_max);
                prop_assert!(room.grant(waiting + bytes, Standing::First) <= granted, "who waits for more gets no more");
                if waiting < total_bytes_max {
                    prop_assert!(granted >= value_reply_bytes.min(room.reply_bytes_max));
                }
                if bytes <= granted {
                    waiting += bytes;
                    short += if bytes <= short_reply_bytes { bytes } else { 0 };
                }
                let longest = value_reply_bytes.max(client_bytes_max);
                prop_assert!(waiting - short <= (2 * total_bytes_max).max(room.bytes_max() + longest) + client_bytes_max);
            }
        }
    }

    #[test]
    fn the_room_is_that_of_all_shards_together() {
        let room = ReplyRoom {
            total_bytes_max: 64 << 20,
            client_bytes_max: 1 << 20,
            value_reply_bytes: 16 << 20,
            short_reply_bytes: 16 << 10,
            reply_bytes_max: 64 << 20,
            has_shards: false,
        };
        let of = |room: ReplyRoom, waiting_mib: usize| room.grant(waiting_mib << 20, Standing::First) >> 10;
        let mib = [0, 40, 48, 63, 64, 95, 96, 127, 128, 1000];
        let alone: Vec<usize> = mib.iter().map(|&it| of(room, it)).collect();
        assert_eq!(alone, [65_536, 24_576, 16_384, 16_384, 1024, 1024, 1024, 1024, 16, 16]);
        let several: Vec<usize> =
            mib.iter().map(|&it| of(ReplyRoom { has_shards: true, ..room }, it)).collect();
        assert_eq!(several, [65_536, 57_344, 49_152, 33_792, 32_768, 16_384, 1024, 1024, 16, 16]);
    }
}
