//! Resolved command of a request, looked up once: what it needs
//! ([`super::required_keys`]), where it runs ([`super::route`]), and running it.

use super::context::Context;
use super::dispatch::{execute, run};
use super::permit;
use super::run::Verdict;
use super::spec::Spec;
use super::table::lookup;
use crate::host::{Host, Session};
use crate::resp::Args;

/// The command that a request names, if it exists and takes this number of arguments.
#[derive(Clone, Copy, Debug)]
pub struct Resolved(pub(super) Option<&'static Spec>);

impl Resolved {
    /// Looks a request's command up.
    #[inline]
    pub fn of(args: Args<'_>) -> Self {
        let Some(mut spec) = lookup(&args[0]) else { return Resolved(None) };
        if !spec.subcommands.is_empty() && args.len() > 1 {
            let named = |sub: &&Spec| sub.name.as_bytes().eq_ignore_ascii_case(&args[1]);
            let Some(subcommand) = spec.subcommands.iter().find(named) else { return Resolved(None) };
            spec = subcommand;
        }
        Resolved(spec.accepts(args.len()).then_some(spec))
    }

    /// Runs the request and appends its one reply.
    #[inline]
    pub fn execute(self, context: &mut Context<'_>, args: Args<'_>) -> Verdict {
        match self.0.filter(|_| context.session.authenticated) {
            Some(spec) => run(context, Ok(spec), args),
            // Looked at again for what is wrong with it.
            None => execute(context, args),
        }
    }

    /// Whether it is this command.
    #[inline]
    pub fn is(self, name: &str) -> bool {
        self.0.is_some_and(|spec| spec.name == name)
    }

    /// Whether the requesting user lacks permission to run it.
    #[inline]
    pub fn is_forbidden(self, session: &Session, host: &Host, args: Args<'_>) -> bool {
        permit::is_forbidden(session, host, self.0, args)
    }

    /// Whether it concerns all connected clients.
    pub fn is_about_clients(self) -> bool {
        self.0.is_some_and(|spec| spec.container == "client" && matches!(spec.name, "list" | "kill"))
    }
}
