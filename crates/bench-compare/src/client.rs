//! A client that knows just enough: fills a server through a pipeline, and reads `INFO`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail};

/// Requests sent before their replies are read.
const PIPELINE: u64 = 1000;
/// Bytes of the key names that [`Client::fill`] writes, which are those of `redis-benchmark`.
pub const KEY_BYTES: usize = 16;

/// One connection to a server.
#[derive(Debug)]
pub struct Client {
    replies: BufReader<TcpStream>,
}

impl Client {
    /// Connects to a server on this machine.
    pub fn connect(port: u16) -> Result<Self> {
        let stream =
            TcpStream::connect(("127.0.0.1", port)).with_context(|| format!("connect to port {port}"))?;
        stream.set_nodelay(true)?;
        Ok(Client { replies: BufReader::new(stream) })
    }

    /// The text of `INFO section`.
    pub fn info(&mut self, section: &str) -> Result<String> {
        self.replies.get_mut().write_all(format!("INFO {section}\r\n").as_bytes())?;
        let header = self.line()?;
        let len = header.strip_prefix('$').and_then(|len| len.parse::<usize>().ok());
        let Some(len) = len else { bail!("INFO {section} was answered with {header:?}") };
        let mut text = vec![0; len + 2];
        self.replies.read_exact(&mut text)?;
        text.truncate(len);
        Ok(String::from_utf8(text)?)
    }

    /// Sets the keys `key:000000000000` and on, `keys` of them, to values of `value_bytes` bytes.
    pub fn fill(&mut self, keys: u64, value_bytes: usize) -> Result<()> {
        let value = "v".repeat(value_bytes);
        let mut batch = Vec::new();
        for first in (0..keys).step_by(PIPELINE as usize) {
            let batch_keys = first..keys.min(first + PIPELINE);
            let replies = batch_keys.end - batch_keys.start;
            batch.clear();
            for key in batch_keys {
                write!(
                    batch,
                    "*3\r\n$3\r\nSET\r\n${KEY_BYTES}\r\nkey:{key:012}\r\n${value_bytes}\r\n{value}\r\n"
                )?;
            }
            self.replies.get_mut().write_all(&batch)?;
            for _ in 0..replies {
                let reply = self.line()?;
                if reply != "+OK" {
                    bail!("SET was answered with {reply:?}");
                }
            }
        }
        Ok(())
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.replies.read_line(&mut line)? == 0 {
            bail!("the server closed the connection");
        }
        Ok(line.trim_end().to_owned())
    }
}

/// The number behind `name:` in the text of `INFO`.
pub fn info_number(text: &str, name: &str) -> Result<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
        .with_context(|| format!("INFO has no number {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_whole_name() {
        let text = "# Memory\r\nused_memory_rss:7\r\nused_memory:12\r\nused_memory_human:12B\r\n";
        assert_eq!(info_number(text, "used_memory").unwrap(), 12);
        assert!(info_number(text, "used_memory_human").is_err());
        assert!(info_number(text, "used").is_err());
    }
}
