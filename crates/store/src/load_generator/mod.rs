//! Load generator: drives one server with several applications at once, each through
//! a connection of its own, as Wang 2024 measures multi-tenant servers (section
//! 4.2.1). A client, in the server's crate for the reasons of [`crate::replay`].
//!
//! Every record of an application's trace, of any operation, is a look-up. After a miss the application waits for the
//! latency of its database, then stores the value, and only then continues; at the end of its trace it starts again.
//! The time of an access includes all of that, so means over applications show the value of a division of memory.
//!
//! Applications either really wait, each in a thread of its own, or the time is only counted ([`MissWait`]).

mod application;
mod client_stats;
mod miss_wait;

use std::error::Error;
use std::time::Duration;

use tiermem_base::Access;

use crate::import::{Address, LoadError};
use crate::replay::ReplayError;
use application::Application;

pub use client_stats::{Figures, WindowStats};

/// A trace from its beginning on.
pub type Accesses = Box<dyn Iterator<Item = Result<Access, TraceFault>> + Send>;
/// Why a trace cannot be opened or read on.
pub type TraceFault = Box<dyn Error + Send + Sync>;
/// Opens a trace again each time it has reached its end.
pub type Opener = Box<dyn FnMut() -> Result<Accesses, TraceFault> + Send>;

/// One application.
pub struct ApplicationSpec {
    /// Its name, by which the server distinguishes it.
    pub name: String,
    /// Latency of its database.
    pub miss: Duration,
    /// Its trace.
    pub trace: Opener,
}

/// How the server distinguishes applications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Keys begin with the name and a colon.
    #[default]
    Prefix,
    /// The name is the number of the database.
    Database,
}

/// How the latency of databases is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissWait {
    /// It is waited for, and all applications are at work at once.
    Wait,
    /// It is counted without waiting. One thread always runs the application that is next by the applications' own
    /// clocks. A clock advances by `round_trip` for each command instead of the measured time, so that the order
    /// of requests is the same in every run. Latencies are the measured time and the database's latency together.
    Charge {
        /// What the clocks count for a command and its answer.
        round_trip: Duration,
    },
}

/// When an application is done. Until all are, it continues
/// unmeasured, so that conditions stay the same for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// After this number of accesses.
    Accesses(u64),
    /// After this time; with [`MissWait::Charge`], by its own clock.
    Time(Duration),
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the server listens.
    pub to: Address,
    /// The server's password.
    pub auth: Option<String>,
    /// How applications are distinguished.
    pub by: By,
    /// Whether applications really wait.
    pub miss_wait: MissWait,
    /// When each application is done.
    pub end: End,
    /// The share of accesses or time, 0 to 1, after which measuring begins.
    pub warm_up: f64,
    /// Means are also taken over windows of this length; not 0.
    pub window: Option<Duration>,
    /// Every value's size is multiplied by this, and rounded.
    pub value_scale: f64,
}

/// Errors of applications that could not begin or continue.
#[derive(Debug, thiserror::Error)]
pub enum LoadGeneratorError {
    /// The server is not there, is no RESP server, or refuses.
    #[error(transparent)]
    Server(#[from] LoadError),
    /// A value that no server takes.
    #[error(transparent)]
    Value(ReplayError),
    /// A trace cannot be read.
    #[error("the trace of {name} cannot be read")]
    Trace {
        /// Name of the application.
        name: String,
        /// Why.
        #[source]
        source: TraceFault,
    },
    /// A trace without a record would be opened for ever.
    #[error("the trace of {name} is empty")]
    Empty {
        /// Name of the application.
        name: String,
    },
    /// A database that is none.
    #[error("{name:?} is not the number of a database")]
    Database {
        /// What it was called.
        name: String,
    },
}

/// Drives the server until every application is done, and says what each saw, in their order. `progress` is called with the
/// number of accesses of all, some ten times a second.
pub fn run(
    options: &Options,
    load_generator: Vec<ApplicationSpec>,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Figures>, LoadGeneratorError> {
    let open = |application| Application::open(options, application);
    let applications: Vec<_> = load_generator.into_iter().map(open).collect::<Result<_, _>>()?;
    match options.miss_wait {
        MissWait::Wait => miss_wait::wait(options, applications, progress),
        MissWait::Charge { round_trip } => miss_wait::charge(options, applications, round_trip, progress),
    }
}
