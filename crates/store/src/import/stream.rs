//! Stream of requests, as input for `redis-cli --pipe`: RESP arrays, or lines of words.

use std::io::{ErrorKind, Read};
use std::time::Instant;

use super::window::{InputPosition, Note, PipelinedSender, Stores};
use super::{LoadError, Report, Target, request};
use crate::resp::{Limits, Parser, Progress};

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// A request may be as long as one in Redis.
const LIMITS: Limits =
    Limits { bulk_bytes_max: 512 << 20, request_bytes_max: 1 << 30, unauthenticated: false };

/// Where the next request begins.
#[derive(Clone, Copy)]
struct At {
    number: u64,
    line: u64,
    offset: u64,
}

impl At {
    fn place(self) -> InputPosition {
        InputPosition::Request { number: self.number, line: self.line, offset: self.offset }
    }

    fn pass(&mut self, bytes: &[u8]) {
        self.line += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.offset += bytes.len() as u64;
    }
}

/// Sends the requests of `input` in their order. `progress` gets the bytes read.
///
/// Errors of the server, and a stream that is broken or ends within a request, are counted in the
/// report. The import ends at a broken request, as the start of the next one cannot be found.
pub fn load_stream(
    target: &Target,
    mut input: impl Read,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, LoadError> {
    let start = Instant::now();
    let mut window = PipelinedSender::open(target)?;
    let (mut parser, mut buffer, mut chunk) = (Parser::default(), Vec::new(), vec![0; READ_BYTES]);
    let mut at = At { number: 1, line: 1, offset: 0 };
    let mut out = Vec::new();
    let mut read = 0;
    'input: loop {
        let count = match input.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(LoadError::Input(error)),
        };
        read += count as u64;
        buffer.extend_from_slice(&chunk[..count]);
        let mut from = 0;
        while from < buffer.len() {
            let rest = &buffer[from..];
            match parser.parse(rest, &LIMITS) {
                Ok(Progress::Complete) => {
                    let args: Vec<&[u8]> = parser.args(rest).iter_from(0).collect();
                    out.clear();
                    request::append(&mut out, args.into_iter());
                    window.send(&out, Note { place: at.place(), stores: Stores::Unknown })?;
                    at.number += 1;
                }
                Ok(Progress::Empty) => {}
                Ok(Progress::Oversize) => {
                    window.complain(at.place(), "the request is longer than 1 GiB");
                    at.number += 1;
                }
                Ok(Progress::Incomplete { .. }) => {
                    let gone = parser.discard();
                    at.pass(&rest[..gone]);
                    from += gone;
                    break;
                }
                Err(error) => {
                    window.complain(at.place(), &format!("{error}: the stream is not read on"));
                    buffer.clear();
                    break 'input;
                }
            }
            let consumed = parser.consumed();
            at.pass(&rest[..consumed]);
            from += consumed;
            parser.reset();
        }
        buffer.drain(..from);
        // A slow writer of the stream sees its effects at once.
        window.flush()?;
        progress(read);
    }
    if !buffer.is_empty() {
        // The last line may lack its end.
        buffer.push(b'\n');
        match parser.parse(&buffer, &LIMITS) {
            Ok(Progress::Complete) if parser.consumed() == buffer.len() && buffer[0] != b'*' => {
                out.clear();
                let args: Vec<&[u8]> = parser.args(&buffer).iter_from(0).collect();
                request::append(&mut out, args.into_iter());
                window.send(&out, Note { place: at.place(), stores: Stores::Unknown })?;
            }
            Ok(Progress::Empty) => {}
            _ => window.complain(at.place(), "the stream ends within this request"),
        }
    }
    let mut report = window.finish()?;
    report.elapsed = start.elapsed();
    Ok(report)
}
