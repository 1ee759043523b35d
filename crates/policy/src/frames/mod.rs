//! Frames: the pages of a program, a pool or a host's cache, and in which of two to four tiers each of them lies.
//!
//! The ladder ([`crate::ladder`]) serves a store's items, which have sizes and keys and are used by calls. A frame has one size
//! and a number, is used without a call, may be written at any moment, and may have a clean copy below. This is the machine for
//! frames. It holds no bytes, reads no clock and starts nothing: it answers calls, and asks for [`Act`]s that its driver (a
//! pager, a pool's blade, a host's agent, a simulator) carries out in order and settles by their tickets, in any order.
//!
//! ```text
//!              Fill                       Demote, Drop (clean copy)
//!   nowhere ──────────> in place (tier 0) ─────────────────────────> below (tier 1, 2, 3)
//!      ^  ^                │  ^   WriteBack: stays, has a copy then    │
//!      │  └── Drop (zero) ─┘  └─────────────── Fetch ─────────────────┘
//!      └────── discard: from everywhere, at once; a move under way is void
//! ```
//!
//! **Where.** A frame lies nowhere (never used, or zero), or in one tier. While it moves it lies where it was, and room is taken
//! at both ends. The first tiers are *in place*: a program uses frames there without a fault. A frame that is used a second time
//! since it came to a tier in place below the first is a candidate for promotion ([`crate::promotion_rule::Candidates`]), which
//! [`Frames::step`] carries out in exchange for a colder frame. With [`Arrival::Spill`] it is otherwise: frames fill the tiers in
//! place one after the other, and leave memory from the last of them alone. A frame that has at least four uses more than twice those
//! of the least used frame of the next faster tier changes places with it in a step.
//!
//! **Room.** A fault takes a free frame of the first tier. Where there is none the eviction policy ([`crate::evict`]) names a
//! victim and the fault waits for its move. Each tier but the last has an order, which contains exactly the frames that may
//! leave: those that lie there, are not moving and are not pinned. A demotion goes to the next tier, which makes room in the same
//! way. The last tier evicts nothing: when it is full, faults are [`Fault::Full`]. One frame must be free somewhere for two to
//! change places. [`Frames::step`] keeps each tier's free frames between watermarks, so that faults seldom wait for a victim.
//!
//! **Copies.** A frame fetched from a tier that keeps copies leaves a clean one. Then a demotion is a [`Act::Drop`] and no write.
//! Copies fill unused room, are charged to no owner, and are given up first, the oldest first. A frame that is written gives its
//! copy up. Where writes are not told ([`Config::writes_told`]) no frame is known to be clean: the demotion says where the older
//! copy is, and the driver, which has both, compares them.
//!
//! **Two phases.** [`Outcome::Refused`] and [`Outcome::Touched`] leave the frame where it was; touched, it is hot. A frame that
//! is written or pinned in mid-move stays whatever the outcome. A fault for a frame that leaves is answered with its move and
//! [`Act::Recall`]. A frame that is discarded in mid-move may come again at once, while its void ticket still holds both ends.
//! Memory that two processes share after a fork cannot be moved at all: that is `Refused`, and the frame enters its order as a
//! new one, so that it is not asked again at once.
//!
//! **Owners.** Each frame has one of 65,536 owners, with an account for each tier, and a quota where owners have orders of their
//! own. Which owner gives a frame is said in [`owners`].
//!
//! **Moved by others.** Where the kernel serves a program's faults and reclaims its memory, frames come and go and the machine is
//! told afterwards ([`Frames::faulted_in`], [`Frames::found`]). Then a tier can hold more than its capacity, which the next
//! [`Frames::step`] brings down.
//!
//! Invariants, held by assertions where a call changes them, and by [`Frames::audit`] against a count from scratch: used frames
//! of a tier are those that lie there, both ends of void moves, and the far ends of live ones; they are the sum of all accounts;
//! a dirty frame has no copy, a zero one is not dirty; copies fit into what is free; a frame has at most one live move.

mod accounts;
mod act;
mod audit;
mod begin_moves;
mod cell;
mod config;
mod copies;
mod events;
mod evict;
mod exchange;
mod fault;
mod finish_move;
mod heat;
mod moved_by_others;
mod order;
pub mod owners;
mod queries;
mod references;
mod space;
mod state;
mod step;

pub use act::{Act, Counters, End, Fault, Pin, Settled, Touch, Wish};
pub use cell::{FRAME_BYTES_MAX, Frame, PINS_MAX};
pub use config::{
    Arrival, Config, ConfigError, NO_QUOTA, OWNERS_MAX, References, TIERS_MAX, TIERS_MIN, TierConfig,
};
pub use order::domains;
pub use owners::Owners;
pub use queries::{Frames, View};
pub use space::Space;

pub use crate::moves::{Outcome, Ticket};
