//! Command handlers: their type, and the context that they get.

use crate::engine::Engine;
use crate::host::{Host, Session};
use crate::resp::{Args, Writer};

use super::Output;
use super::refusal::Outcome;

/// Runs one command: reads its arguments, asks or changes the engine, writes one reply or returns the error to write.
pub type Handler = fn(&mut Context<'_>, Args<'_>) -> Outcome;

/// Everything a handler may touch.
#[derive(Debug)]
pub struct Context<'a> {
    /// Keys and values.
    pub engine: &'a mut Engine,
    /// The client that asks.
    pub session: &'a mut Session,
    /// Where the reply goes.
    pub output: &'a mut Output,
    /// The server.
    pub host: &'a mut Host,
    /// The handler of each command, by its number. It is passed, so
    /// that a handler that runs others need not import all of them.
    pub handlers: &'static [Handler],
}

impl Context<'_> {
    /// The writer for the reply.
    #[inline]
    pub fn reply(&mut self) -> Writer<'_> {
        Writer::new(self.output.bytes(), self.session.version)
    }

    /// Switches the recording of changes on or off as clients need
    /// it. Call it after anything that may change that need.
    pub fn refresh(&mut self) {
        self.engine.changes().want(self.host.clients.wants_changes());
    }
}
