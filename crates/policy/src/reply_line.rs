//! Clients whose reply waits for room: in which order they get it, and who may exceed the bound meanwhile.
//!
//! A large reply for which others' replies leave no room ([`ReplyRoom`](crate::reply_room::ReplyRoom)) waits in line until these are read. A
//! reply has a *piece* in each shard that puts a part of it together, and holds the pieces that are done while others of it still wait. So
//! all could wait for one another for ever. Therefore:
//!
//! - **One client is privileged**: its pieces get what they ask for, whatever waits. Where the first in line does not fit and nobody is
//!   privileged, its client becomes so. It stays so until it was sent what it had asked for, or is gone.
//! - **All others go by room**, the first in line first. Who comes later and asks for more than a client's own buffer waits behind it, so that
//!   many small ones cannot starve a large one.
//! - **Nobody waits for longer than a client may stall**: then the piece gives up, and is refused.
//!
//! Why it always gets on: while a piece waits, either the first in line fits, and is called, or a client is privileged. That client's pieces
//! never wait, so its reply comes together without anybody else's doing. It then ends by reading; or it does not read, and is disconnected
//! as every client that stalls while others wait. What replies take exceeds the room by the privileged client's at most.

use std::collections::VecDeque;

use crate::reply_room::Standing;

/// The part of a client's reply that one shard puts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    /// The client's number, which no other client of any shard has.
    pub client: u64,
    /// The shard.
    pub shard: usize,
}

/// What a piece without room is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Try again at once: its client is privileged now.
    Now,
    /// Wait until it is called.
    Later,
    /// Be refused: it has waited for too long.
    Never,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    piece: Piece,
    needs_bytes: usize,
    since_us: u64,
}

/// The line, of all shards together.
#[derive(Debug, Default)]
pub struct ReplyLine {
    privileged: Option<u64>,
    line: VecDeque<Waiting>,
    /// Pieces that have waited for too long and do not know it yet.
    given_up: Vec<Piece>,
}

impl ReplyLine {
    /// Whether anybody waits or is privileged.
    pub fn is_busy(&self) -> bool {
        self.privileged.is_some() || !self.line.is_empty() || !self.given_up.is_empty()
    }

    /// Whether this client may exceed the room.
    pub fn is_privileged(&self, client: u64) -> bool {
        self.privileged == Some(client)
    }

    /// Whether a piece of this client's reply waits.
    pub fn has(&self, client: u64) -> bool {
        self.line.iter().any(|waiting| waiting.piece.client == client)
    }

    /// Whether anybody waits.
    pub fn is_waited_in(&self) -> bool {
        !self.line.is_empty()
    }

    /// Where a piece stands that is put together now.
    pub fn standing(&self, piece: Piece) -> Standing {
        if self.is_privileged(piece.client) {
            Standing::Privileged
        } else if self.line.front().is_none_or(|first| first.piece == piece) {
            Standing::First
        } else {
            Standing::Behind
        }
    }

    /// Whether a piece that waits is to try again, when the first in line may take `room_bytes`.
    pub fn is_called(&self, piece: Piece, room_bytes: usize) -> bool {
        let waiting = self.line.iter().find(|waiting| waiting.piece == piece);
        // One that is not in line has given up.
        waiting.is_none_or(|waiting| match self.standing(piece) {
            Standing::Privileged => true,
            Standing::First => waiting.needs_bytes <= room_bytes,
            Standing::Behind => false,
        })
    }

    /// A piece found no room, and needs so much at least. It keeps its place if it has one.
    pub fn wait(&mut self, piece: Piece, needs_bytes: usize, now_us: u64) -> Turn {
        if self.take_given_up(piece) {
            return Turn::Never;
        }
        match self.line.iter_mut().find(|waiting| waiting.piece == piece) {
            Some(waiting) => waiting.needs_bytes = needs_bytes,
            None => self.line.push_back(Waiting { piece, needs_bytes, since_us: now_us }),
        }
        let is_first = self.line.front().is_some_and(|first| first.piece == piece);
        if self.privileged.is_none() && is_first {
            self.privileged = Some(piece.client);
        }
        if self.is_privileged(piece.client) { Turn::Now } else { Turn::Later }
    }

    fn take_given_up(&mut self, piece: Piece) -> bool {
        let before = self.given_up.len();
        self.given_up.retain(|given_up| *given_up != piece);
        self.given_up.len() < before
    }

    /// A piece needs no room any more: it is put together, refused, or its shard's connection is gone. [`Self::call`] comes next.
    pub fn leave(&mut self, piece: Piece) {
        self.line.retain(|waiting| waiting.piece != piece);
        self.take_given_up(piece);
    }

    /// A client was sent what it had asked for, or is gone. [`Self::call`] comes next.
    pub fn end(&mut self, client: u64) {
        self.privileged = self.privileged.filter(|privileged| *privileged != client);
    }

    /// Who is to try again, when the first in line may take `room_bytes`: that one, or all pieces of the client that is privileged from now on.
    pub fn call(&mut self, room_bytes: usize) -> Vec<Piece> {
        let Some(first) = self.line.front() else { return Vec::new() };
        if first.needs_bytes <= room_bytes {
            return vec![first.piece];
        }
        if self.privileged.is_some() {
            return Vec::new();
        }
        let client = first.piece.client;
        self.privileged = Some(client);
        self.line.iter().map(|waiting| waiting.piece).filter(|piece| piece.client == client).collect()
    }

    /// Who gives up, since it waits from before `since_us` on: it is to try again, and is refused. [`Self::call`] comes next.
    pub fn give_up(&mut self, since_us: u64) -> Vec<Piece> {
        let is_late = |waiting: &&Waiting| waiting.since_us < since_us;
        let late: Vec<Piece> = self.line.iter().filter(is_late).map(|waiting| waiting.piece).collect();
        self.line.retain(|waiting| waiting.since_us >= since_us);
        self.given_up.extend(&late);
        late
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reply_room::ReplyRoom;

    const MIB: usize = 1 << 20;
    /// Bytes that a client reads at a time.
    const READ_BYTES: usize = MIB;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum State {
        /// The piece was not asked for yet.
        Asked,
        /// It was put off, and tries again when it is called.
        Waits {
            called: bool,
        },
        Held(usize),
    }

    #[derive(Clone, Debug)]
    struct Client {
        /// Bytes of its pieces, by shard.
        pieces: Vec<usize>,
        reads: bool,
        states: Vec<State>,
        read_bytes: usize,
        taken_us: u64,
        is_refused: bool,
        has_ended: bool,
    }

    impl Client {
        fn held_bytes(&self) -> usize {
            let held =
                self.states.iter().map(|state| if let State::Held(bytes) = state { *bytes } else { 0 });
            held.sum::<usize>() - self.read_bytes
        }

        fn is_whole(&self) -> bool {
            self.states.iter().all(|state| matches!(state, State::Held(_)))
        }
    }

    /// Shards and clients as the store has them: pieces try when they are called and never else.
    struct World {
        room: ReplyRoom,
        line: ReplyLine,
        clients: Vec<Client>,
        now_us: u64,
        stall_us: u64,
    }

    impl World {
        fn held_bytes(&self) -> usize {
            self.clients.iter().map(Client::held_bytes).sum()
        }

        fn call(&mut self, pieces: Vec<Piece>) {
            for piece in pieces {
                let state = &mut self.clients[piece.client as usize].states[piece.shard];
                if let State::Waits { called } = state {
                    *called = true;
                }
            }
        }

        fn call_next(&mut self) {
            let room_bytes = self.room.grant(self.held_bytes(), Standing::First);
            let called = self.line.call(room_bytes);
            self.call(called);
        }

        fn put_together(&mut self, piece: Piece) {
            let bytes = self.clients[piece.client as usize].pieces[piece.shard];
            let mut turn = Turn::Later;
            for _ in 0..2 {
                if bytes <= self.room.grant(self.held_bytes(), self.line.standing(piece)) {
                    self.clients[piece.client as usize].states[piece.shard] = State::Held(bytes);
                    self.line.leave(piece);
                    break;
                }
                turn = self.line.wait(piece, bytes, self.now_us);
                match turn {
                    Turn::Now => {}
                    Turn::Later => {
                        self.clients[piece.client as usize].states[piece.shard] =
                            State::Waits { called: false };
                        return;
                    }
                    Turn::Never => {
                        let client = &mut self.clients[piece.client as usize];
                        (client.states[piece.shard], client.is_refused) = (State::Held(0), true);
                        self.line.leave(piece);
                        break;
                    }
                }
            }
            let state = self.clients[piece.client as usize].states[piece.shard];
            assert!(matches!(state, State::Held(_)), "who is privileged has room: {turn:?}");
            self.call_next();
        }

        fn go(&mut self, client: u64) {
            let Client { states, has_ended, .. } = &self.clients[client as usize];
            if *has_ended {
                return;
            }
            // The shard at home begins, and asks the others when it has its piece.
            let others = 1..if matches!(states[0], State::Held(_)) { states.len() } else { 1 };
            let mut tries = core::iter::once(0).chain(others);
            let ready = |state: State| matches!(state, State::Asked | State::Waits { called: true });
            if let Some(shard) = tries.find(|&shard| ready(states[shard])) {
                return self.put_together(Piece { client, shard });
            }
            let Client { reads, pieces, .. } = &self.clients[client as usize];
            if *reads && self.clients[client as usize].is_whole() {
                let bytes = self.clients[client as usize].held_bytes().min(READ_BYTES);
                debug_assert!(bytes <= pieces.iter().sum());
                self.clients[client as usize].read_bytes += bytes;
                self.clients[client as usize].taken_us = self.now_us;
                if self.clients[client as usize].held_bytes() == 0 {
                    self.end(client);
                }
                self.call_next();
            }
        }

        fn end(&mut self, client: u64) {
            let ended = &mut self.clients[client as usize];
            (ended.has_ended, ended.read_bytes) = (true, 0);
            ended.states.fill(State::Held(0));
            (0..ended.pieces.len()).for_each(|shard| self.line.leave(Piece { client, shard }));
            self.line.end(client);
            self.call_next();
        }

        fn tick(&mut self) {
            let Some(since_us) = self.now_us.checked_sub(self.stall_us) else { return };
            for client in 0..self.clients.len() as u64 {
                let it = &self.clients[client as usize];
                let holds = !it.has_ended && it.is_whole() && it.held_bytes() > 0;
                if self.line.is_waited_in() && holds && !it.reads && it.taken_us < since_us {
                    self.end(client);
                }
            }
            let late = self.line.give_up(since_us);
            self.call(late);
            self.call_next();
        }

        /// What replies take beside the privileged client's is bounded as ever.
        fn check(&self) {
            let privileged = self.line.privileged.map_or(0, |it| self.clients[it as usize].held_bytes());
            let others = self.held_bytes() - privileged;
            let ReplyRoom { total_bytes_max, value_reply_bytes, client_bytes_max, .. } = self.room;
            let bound = total_bytes_max * 2 + value_reply_bytes.max(client_bytes_max);
            assert!(others <= bound, "{others} of {bound}");
        }

        fn run(mut self, order: &[u16]) -> Vec<Client> {
            let clients = self.clients.len();
            let later = (0..clients * 3000).map(|at| at % clients);
            for at in order.iter().map(|&at| usize::from(at) % clients).chain(later) {
                self.now_us += 1;
                self.go(at as u64);
                self.check();
                if self.now_us.is_multiple_of(100) {
                    self.tick();
                }
            }
            self.clients
        }
    }

    fn world(sizes: &[(Vec<usize>, bool)], shards: usize, stall_us: u64) -> World {
        let clients = sizes.iter().map(|(pieces, reads)| Client {
            pieces: pieces[..shards].iter().map(|kib| kib << 10).collect(),
            reads: *reads,
            states: vec![State::Asked; shards],
            read_bytes: 0,
            taken_us: 0,
            is_refused: false,
            has_ended: false,
        });
        let room = ReplyRoom {
            total_bytes_max: 64 * MIB,
            client_bytes_max: MIB,
            value_reply_bytes: 16 * MIB,
            short_reply_bytes: 16 << 10,
            reply_bytes_max: 64 * MIB,
            has_shards: shards > 1,
        };
        World { room, line: ReplyLine::default(), clients: clients.collect(), now_us: 0, stall_us }
    }

    fn clients(reads: impl Strategy<Value = bool>) -> impl Strategy<Value = Vec<(Vec<usize>, bool)>> {
        let kib = prop_oneof![3 => 5000usize..40_000, 1 => 0usize..64, 1 => Just(64 << 10)];
        prop::collection::vec((prop::collection::vec(kib, 3), reads), 1..24)
    }

    proptest! {
        /// However the steps of shards and clients follow one another, all who read have all of their replies.
        #[test]
        fn who_reads_has_its_reply_whole(
            sizes in clients(Just(true)),
            shards in 1usize..=3,
            order in prop::collection::vec(any::<u16>(), 0..2000),
        ) {
            for client in world(&sizes, shards, u64::MAX).run(&order) {
                prop_assert!(client.has_ended && !client.is_refused, "{client:?}");
            }
        }

        /// Beside clients that never read, each that does ends: with its reply, or with a refusal.
        #[test]
        fn who_reads_ends_beside_those_who_never_do(
            sizes in clients(any::<bool>()),
            shards in 1usize..=3,
            order in prop::collection::vec(any::<u16>(), 0..2000),
        ) {
            for client in world(&sizes, shards, 3000).run(&order) {
                prop_assert!(client.has_ended || !client.reads, "{client:?}");
            }
        }
    }

    #[test]
    fn eight_clients_of_twenty_mib_have_them_whole() {
        for shards in [1, 2, 3] {
            let sizes = vec![(vec![(20 << 10) / shards; 3], true); 8];
            let ended = world(&sizes, shards, u64::MAX).run(&[]);
            assert!(ended.iter().all(|client| client.has_ended && !client.is_refused), "{shards}");
        }
    }

    const A: Piece = Piece { client: 1, shard: 0 };
    const B: Piece = Piece { client: 2, shard: 0 };

    #[test]
    fn who_comes_later_waits_behind_and_who_waits_too_long_gives_up() {
        let mut line = ReplyLine::default();
        assert_eq!(line.standing(A), Standing::First);
        assert_eq!(line.wait(A, 10, 5), Turn::Now, "nobody else is privileged");
        line.leave(A);
        assert_eq!((line.standing(A), line.standing(B)), (Standing::Privileged, Standing::First));
        assert_eq!((line.wait(B, 20, 6), line.standing(B)), (Turn::Later, Standing::First));
        let c = Piece { client: 3, shard: 1 };
        assert_eq!((line.wait(c, 1, 7), line.standing(c)), (Turn::Later, Standing::Behind));
        assert_eq!((line.call(19), line.call(20)), (vec![], vec![B]));
        assert!(line.is_called(B, 20) && !line.is_called(B, 19) && !line.is_called(c, 20));
        assert_eq!(line.give_up(7), [B]);
        assert!(line.is_called(B, 0));
        assert_eq!((line.wait(B, 20, 8), line.wait(B, 20, 8)), (Turn::Never, Turn::Later));
        // The next in line is privileged, with all of its pieces.
        let other = Piece { shard: 0, ..c };
        assert_eq!(line.wait(other, 1, 9), Turn::Later);
        line.end(2);
        assert_eq!(line.call(0), [], "that was somebody else");
        line.end(1);
        assert_eq!(line.call(0), [c, other]);
        assert!(line.is_privileged(3) && line.has(3) && line.is_busy());
        [B, c, other].into_iter().for_each(|piece| line.leave(piece));
        line.end(3);
        assert!(!line.is_busy() && line.call(0).is_empty());
    }
}
