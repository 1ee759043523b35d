//! The line of replies that wait for room, as all shards see it.
//!
//! It is touched only while somebody waits, or may exceed the room: one load of [`ReplyTurns::is_busy`] says so.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use tiermem_policy::reply_line::{Piece, ReplyLine, Turn};
use tiermem_policy::reply_room::Standing;

#[derive(Debug, Default)]
struct State {
    line: ReplyLine,
    /// The tasks of those who wait, each in its shard's event loop.
    wakers: BTreeMap<Piece, Waker>,
}

/// The line, and how to wake those in it.
#[derive(Debug, Default)]
pub struct ReplyTurns {
    is_busy: AtomicBool,
    state: Mutex<State>,
}

impl ReplyTurns {
    /// Whether anybody waits, or may exceed the room.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Acquire)
    }

    /// The state is whole at any moment, so that of a thread that has panicked is as good as another.
    fn with<Answer>(&self, ask: impl FnOnce(&mut State) -> Answer) -> Answer {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = ask(&mut state);
        self.is_busy.store(state.line.is_busy(), Ordering::Release);
        answer
    }

    /// Where a piece stands that is put together now.
    #[inline]
    pub fn standing(&self, piece: Piece) -> Standing {
        if self.is_busy() { self.with(|it| it.line.standing(piece)) } else { Standing::First }
    }

    /// Whether a piece that waits is to try again, when the first in line may take `room_bytes`.
    pub fn is_called(&self, piece: Piece, room_bytes: usize) -> bool {
        self.with(|it| it.line.is_called(piece, room_bytes))
    }

    /// Whether anybody waits.
    pub fn is_waited_in(&self) -> bool {
        self.is_busy() && self.with(|it| it.line.is_waited_in())
    }

    /// Whether a piece of this client's reply waits.
    pub fn has(&self, client: u64) -> bool {
        self.is_busy() && self.with(|it| it.line.has(client))
    }

    /// Whether this client may exceed the room.
    pub fn is_privileged(&self, client: u64) -> bool {
        self.is_busy() && self.with(|it| it.line.is_privileged(client))
    }

    /// A piece found no room, and needs so much at least. Where it is to wait, `waker` is woken when it is called.
    pub fn wait(&self, piece: Piece, needs_bytes: usize, now_us: u64, waker: &Waker) -> Turn {
        self.with(|it| {
            let turn = it.line.wait(piece, needs_bytes, now_us);
            if turn == Turn::Later {
                it.wakers.insert(piece, waker.clone());
            }
            turn
        })
    }

    /// A piece needs no room any more.
    pub fn leave(&self, piece: Piece) {
        self.with(|it| {
            it.line.leave(piece);
            it.wakers.remove(&piece);
        });
    }

    /// A client was sent what it had asked for, or is gone.
    pub fn end(&self, client: u64) {
        self.with(|it| it.line.end(client));
    }

    /// Wakes who is to try again, when the first in line may take `room_bytes`.
    pub fn call(&self, room_bytes: usize) {
        self.with(|it| {
            let called = it.line.call(room_bytes);
            it.wake(called);
        });
    }

    /// Wakes those who have waited from before `since_us` on: they give up.
    pub fn give_up(&self, since_us: u64) {
        self.with(|it| {
            let late = it.line.give_up(since_us);
            it.wake(late);
        });
    }
}

impl State {
    fn wake(&self, pieces: Vec<Piece>) {
        pieces.iter().filter_map(|piece| self.wakers.get(piece)).for_each(Waker::wake_by_ref);
    }
}
