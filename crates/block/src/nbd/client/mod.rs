//! Client side of NBD: [`Negotiation`] first, then [`Transmission`].

mod cover;
mod negotiation;
mod transmission;

pub use negotiation::{Agreed, Negotiation, NegotiationError, Progress, Refused, Wishes};
pub use transmission::{Event, IssueError, ReplyError, Transmission};
