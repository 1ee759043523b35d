//! Minimal RESP client: fills a server through a pipeline, and reads `INFO`.

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

    /// `CONFIG SET name value`.
    pub fn configure(&mut self, name: &str, value: &str) -> Result<()> {
        self.replies.get_mut().write_all(format!("CONFIG SET {name} {value}\r\n").as_bytes())?;
        let reply = self.line()?;
        if reply != "+OK" {
            bail!("CONFIG SET {name} {value} was answered with {reply:?}");
        }
        Ok(())
    }

    /// Gets `keys`, and sets missing ones to values of `value_bytes` bytes; returns the number of
    /// missing keys. A missing key that occurs twice among `keys` is set once and counted once.
    pub fn look_aside(&mut self, keys: impl Iterator<Item = u64>, value_bytes: usize) -> Result<u64> {
        let keys: Vec<u64> = keys.collect();
        let mut batch = Vec::new();
        for key in &keys {
            write!(batch, "*2\r\n$3\r\nGET\r\n$16\r\n{key:016x}\r\n")?;
        }
        self.replies.get_mut().write_all(&batch)?;
        let mut missing = Vec::new();
        for key in &keys {
            let header = self.line()?;
            match header.strip_prefix('$').and_then(|len| len.parse::<i64>().ok()) {
                Some(-1) => missing.push(*key),
                Some(_) => _ = self.line()?,
                None => bail!("GET was answered with {header:?}"),
            }
        }
        missing.sort_unstable();
        missing.dedup();
        batch.clear();
        let value = "v".repeat(value_bytes);
        for key in &missing {
            write!(batch, "*3\r\n$3\r\nSET\r\n$16\r\n{key:016x}\r\n${value_bytes}\r\n{value}\r\n")?;
        }
        self.replies.get_mut().write_all(&batch)?;
        for _ in &missing {
            let reply = self.line()?;
            if reply != "+OK" {
                bail!("SET was answered with {reply:?}");
            }
        }
        Ok(missing.len() as u64)
    }

    /// Number of keys that the server holds, and number of its evictions.
    pub fn keys_and_evicted(&mut self) -> Result<(u64, u64)> {
        let evicted = info_number(&self.info("stats")?, "evicted_keys")?;
        self.replies.get_mut().write_all(b"DBSIZE\r\n")?;
        let line = self.line()?;
        match line.strip_prefix(':').and_then(|keys| keys.parse().ok()) {
            Some(keys) => Ok((keys, evicted)),
            None => bail!("DBSIZE was answered with {line:?}"),
        }
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
