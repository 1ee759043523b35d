//! HTTP client of a server's port, for commands that show figures and control the server.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::control_access::{CONTROL_HEADER, CONTROL_VALUE};

/// Longest silence of a server. One that is working reports progress more often.
const PATIENCE: Duration = Duration::from_secs(15);
/// Longer answers are none of ours.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// A line of a long answer.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No server listens, or the machine cannot be reached.
    #[error(
        "cannot reach {address}: {source}. Is the server running, and is this the address of its live page (--http)?"
    )]
    Connect {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// It says nothing.
    #[error("{address} does not answer for {} s: it is not a tiermem server, or its machine is overloaded", PATIENCE.as_secs())]
    Silent {
        /// Where.
        address: SocketAddr,
    },
    /// It said what cannot be understood, or broke off.
    #[error(
        "{address} does not answer as a server of ours does ({problem}): is this the address of its live page (--http)?"
    )]
    Broken {
        /// Where.
        address: SocketAddr,
        /// What was wrong.
        problem: String,
    },
    /// It refuses.
    #[error("{0}")]
    Refused(String),
    /// There is no event loop.
    #[error("cannot begin to ask: {0}")]
    Start(io::Error),
}

/// Asks one server, a connection for each question.
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    runtime: Runtime,
}

impl Client {
    /// Of the server there.
    ///
    /// # Errors
    /// When the system has no event loop to give.
    pub fn new(address: SocketAddr) -> Result<Self, AskError> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(AskError::Start)?;
        Ok(Client { address, runtime })
    }

    /// Gets the resource at `path`.
    ///
    /// # Errors
    /// When there is no answer, or a refusal.
    pub fn get(&self, path: &str) -> Result<Vec<u8>, AskError> {
        let mut all = Vec::new();
        self.runtime.block_on(self.ask(Method::GET, path, Body::empty(), |bytes| {
            all.extend_from_slice(bytes);
            all.len() <= ANSWER_BYTES_MAX
        }))?;
        Ok(all)
    }

    /// Tells the server to do something, and calls `line` with each line of its answer; one alone, where that has no lines.
    ///
    /// # Errors
    /// When there is no answer, or a refusal.
    pub fn control(
        &self,
        path: &str,
        command: &impl Serialize,
        mut line: impl FnMut(&[u8]),
    ) -> Result<(), AskError> {
        let body = serde_json::to_vec(command).map_err(|error| self.broken(error))?;
        let mut rest = Vec::new();
        self.runtime.block_on(self.ask(Method::POST, path, body.into(), |bytes| {
            rest.extend_from_slice(bytes);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                line(&rest[..end]);
                rest.drain(..=end);
            }
            rest.len() <= LINE_BYTES_MAX
        }))?;
        if !rest.is_empty() {
            line(&rest);
        }
        Ok(())
    }

    fn broken(&self, problem: impl ToString) -> AskError {
        AskError::Broken { address: self.address, problem: problem.to_string() }
    }

    async fn within<T, E: ToString>(&self, what: impl Future<Output = Result<T, E>>) -> Result<T, AskError> {
        match timeout(PATIENCE, what).await {
            Ok(result) => result.map_err(|error| self.broken(error)),
            Err(_) => Err(AskError::Silent { address: self.address }),
        }
    }

    /// Calls `piece` with what comes, until it says that it is too much.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Body,
        mut piece: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), AskError> {
        let address = self.address;
        let connected = timeout(PATIENCE, TcpStream::connect(address)).await;
        let stream = connected
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(|source| AskError::Connect { address, source })?;
        let (mut sender, connection) = self.within(http1::handshake(TokioIo::new(stream))).await?;
        // Errors in there are reported to the caller that waits for the answer.
        let driver = tokio::spawn(connection);
        let mut request = Request::builder().method(&method).uri(path).header(HOST, address.to_string());
        if method == Method::POST {
            request = request.header(CONTENT_TYPE, "application/json").header(CONTROL_HEADER, CONTROL_VALUE);
        }
        let request = request.body(body).map_err(|error| self.broken(error))?;
        let mut answer = self.within(sender.send_request(request)).await?;
        let status = answer.status();
        let mut refusal = Vec::new();
        while let Some(frame) = self.within(async { answer.frame().await.transpose() }).await? {
            let bytes = frame.into_data().unwrap_or_else(|_| Bytes::new());
            let fits = if status.is_success() {
                piece(&bytes)
            } else {
                refusal.extend_from_slice(&bytes);
                refusal.len() <= LINE_BYTES_MAX
            };
            if !fits {
                return Err(self.broken("the answer is too long"));
            }
        }
        driver.abort();
        match String::from_utf8_lossy(&refusal).trim() {
            _ if status.is_success() => Ok(()),
            "" | "Not Found" => Err(self.broken(refused(status))),
            text => Err(AskError::Refused(text.to_owned())),
        }
    }
}

fn refused(status: StatusCode) -> String {
    format!("it answers with {status}")
}
