//! Application of the load generator: its connection and its position in its trace.

use std::time::Duration;

use tiermem_base::Access;

use super::{Accesses, ApplicationSpec, By, LoadGeneratorError, Opener, Options};
use crate::import::reply::Reply;
use crate::import::resp_client::Link;
use crate::import::{LoadError, Login};
use crate::replay::values::{Values, key_text, value_bytes};

/// An application, connected.
pub struct Application {
    name: String,
    miss: Duration,
    open: Opener,
    accesses: Accesses,
    link: Link,
    /// What every key begins with.
    prefix: Vec<u8>,
    values: Values,
    value_scale: f64,
    /// Room for a key and a value.
    key: Vec<u8>,
    value: Vec<u8>,
}

/// The server's answer to a look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Hit,
    Miss,
    /// An error, as the server worded it.
    Refused(String),
}

impl Application {
    /// Connects, and opens the trace.
    pub fn open(options: &Options, application: ApplicationSpec) -> Result<Self, LoadGeneratorError> {
        let ApplicationSpec { name, miss, mut trace } = application;
        let db = match options.by {
            By::Prefix => 0,
            By::Database => name.parse().map_err(|_| LoadGeneratorError::Database { name: name.clone() })?,
        };
        let prefix = match options.by {
            By::Prefix => format!("{name}:").into_bytes(),
            By::Database => Vec::new(),
        };
        let login = Login { user: None, password: options.auth.clone(), db };
        let link = Link::open(&options.to, &login)?;
        let accesses = trace().map_err(|source| LoadGeneratorError::Trace { name: name.clone(), source })?;
        Ok(Application {
            name,
            miss,
            open: trace,
            accesses,
            link,
            prefix,
            values: Values::new(),
            value_scale: options.value_scale,
            key: Vec::new(),
            value: Vec::new(),
        })
    }

    /// Latency of its database.
    pub fn miss(&self) -> Duration {
        self.miss
    }

    /// Its next request: after the last record comes the first.
    pub fn next(&mut self) -> Result<Access, LoadGeneratorError> {
        let failed = |source| LoadGeneratorError::Trace { name: self.name.clone(), source };
        if let Some(access) = self.accesses.next() {
            return access.map_err(failed);
        }
        self.accesses = (self.open)().map_err(failed)?;
        match self.accesses.next() {
            Some(access) => access.map_err(failed),
            None => Err(LoadGeneratorError::Empty { name: self.name.clone() }),
        }
    }

    /// Asks for a key.
    pub fn look_up(&mut self, access: &Access) -> Result<Answer, LoadGeneratorError> {
        self.name_key(access);
        match self.link.ask(&[b"GET", &self.key])? {
            Reply::Bulk(_) => Ok(Answer::Hit),
            Reply::Null => Ok(Answer::Miss),
            Reply::Error(text) => Ok(Answer::Refused(text)),
            other => Err(self.unexpected("GET", &other)),
        }
    }

    /// Stores a key's value; what the server said where it refused.
    pub fn store(&mut self, access: &Access) -> Result<Option<String>, LoadGeneratorError> {
        self.name_key(access);
        let size = value_bytes(access, self.value_scale).map_err(LoadGeneratorError::Value)?;
        self.value.clear();
        self.values.append(&mut self.value, access.key, size);
        match self.link.ask(&[b"SET", &self.key, &self.value])? {
            Reply::Status(_) => Ok(None),
            Reply::Error(text) => Ok(Some(text)),
            other => Err(self.unexpected("SET", &other)),
        }
    }

    fn name_key(&mut self, access: &Access) {
        self.key.clear();
        self.key.extend_from_slice(&self.prefix);
        self.key.extend_from_slice(&key_text(access.key));
    }

    fn unexpected(&self, command: &'static str, reply: &Reply) -> LoadGeneratorError {
        LoadError::Unexpected { to: self.link.to.clone(), command, reply: reply.describe() }.into()
    }
}
