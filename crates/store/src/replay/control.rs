//! Control connection: connecting, and commands sent one at a time beside the replay.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::reply::{Reply, ReplyReader};
use super::tiers::{self, TierCounts};
use super::{Address, ReplayError};

/// The common trait of both kinds of socket.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// A connection for commands that are answered one at a time.
pub struct Control {
    stream: Box<dyn Stream>,
}

/// Connects, logs in, and makes sure that a RESP server answers.
pub async fn open(to: &Address, auth: Option<&str>) -> Result<Control, ReplayError> {
    let mut stream: Box<dyn Stream> = match to {
        Address::Tcp(_) => Box::new(connect_tcp(to, auth).await?),
        Address::Unix(_) => Box::new(connect_unix(to, auth).await?),
    };
    match command(&mut stream, &["PING"]).await?.0 {
        Reply::Status => Ok(Control { stream }),
        Reply::Error(text) if text.starts_with("NOAUTH") => Err(ReplayError::Auth(text)),
        other => Err(ReplayError::Unexpected { command: "PING", reply: other.describe() }),
    }
}

impl Control {
    /// The counters of the server's tiers; `None` when it has none.
    pub async fn tiers(&mut self) -> Result<Option<Vec<TierCounts>>, ReplayError> {
        match command(&mut self.stream, &["INFO", "tiers"]).await? {
            (Reply::Value, text) => Ok(tiers::parse(&String::from_utf8_lossy(&text))),
            // A server that knows no INFO still can be replayed to.
            (Reply::Error(_), _) => Ok(None),
            (other, _) => Err(ReplayError::Unexpected { command: "INFO", reply: other.describe() }),
        }
    }
}

/// A TCP connection, logged in.
pub async fn connect_tcp(to: &Address, auth: Option<&str>) -> Result<TcpStream, ReplayError> {
    let failed = |source| ReplayError::Connect { to: to.clone(), source };
    let mut stream = TcpStream::connect(to.to_string()).await.map_err(failed)?;
    // Small commands must not wait for the acknowledgement of those before them.
    stream.set_nodelay(true).map_err(failed)?;
    log_in(&mut stream, auth).await?;
    Ok(stream)
}

/// A connection to a unix socket, logged in.
pub async fn connect_unix(to: &Address, auth: Option<&str>) -> Result<UnixStream, ReplayError> {
    let Address::Unix(path) = to else {
        let source = std::io::Error::other("not a unix socket");
        return Err(ReplayError::Connect { to: to.clone(), source });
    };
    let failed = |source| ReplayError::Connect { to: to.clone(), source };
    let mut stream = UnixStream::connect(path).await.map_err(failed)?;
    log_in(&mut stream, auth).await?;
    Ok(stream)
}

async fn log_in(stream: &mut impl Stream, auth: Option<&str>) -> Result<(), ReplayError> {
    let Some(password) = auth else { return Ok(()) };
    match command(stream, &["AUTH", password]).await?.0 {
        Reply::Status => Ok(()),
        Reply::Error(text) => Err(ReplayError::Auth(text)),
        other => Err(ReplayError::Unexpected { command: "AUTH", reply: other.describe() }),
    }
}

/// Sends one command and reads its reply, with the bytes if it is a value.
async fn command(
    stream: &mut (impl Stream + ?Sized),
    words: &[&str],
) -> Result<(Reply, Vec<u8>), ReplayError> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    stream.write_all(&out).await.map_err(ReplayError::Io)?;
    let mut reader = ReplyReader::keeping();
    loop {
        if let Some(reply) = reader.next()? {
            return Ok((reply, reader.take_value()));
        }
        match stream.read(reader.space()).await.map_err(ReplayError::Io)? {
            0 => return Err(ReplayError::Closed { unanswered: 1 }),
            count => reader.filled(count),
        }
    }
}
