//! The request parser must take any bytes without a panic, and must read the same requests from them however they
//! are cut. The first byte of an input says how long the pieces are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tiermem_store::resp::{Limits, Parser, Progress};

const LIMITS: Limits = Limits { bulk_bytes_max: 4096, request_bytes_max: 16_384, unauthenticated: false };

/// The requests in `bytes`, fed `step` bytes at a time; an empty list of arguments stands for an oversize
/// request, and the error that ended the stream comes last.
fn requests(bytes: &[u8], step: usize) -> (Vec<Vec<Vec<u8>>>, Option<String>) {
    let (mut parser, mut buffer, mut found) = (Parser::default(), Vec::new(), Vec::new());
    for piece in bytes.chunks(step) {
        buffer.extend_from_slice(piece);
        while !buffer.is_empty() {
            match parser.parse(&buffer, &LIMITS) {
                Ok(Progress::Complete) => {
                    found.push(parser.args(&buffer).iter_from(0).map(<[u8]>::to_vec).collect());
                }
                Ok(Progress::Empty) => {}
                Ok(Progress::Oversize) => found.push(Vec::new()),
                Ok(Progress::Incomplete { bytes_min }) => {
                    assert!(bytes_min > buffer.len());
                    buffer.drain(..parser.discard());
                    break;
                }
                Err(error) => return (found, Some(error.to_string())),
            }
            buffer.drain(..parser.consumed());
            parser.reset();
        }
    }
    (found, None)
}

fuzz_target!(|input: &[u8]| {
    let Some((step, bytes)) = input.split_first() else { return };
    assert_eq!(requests(bytes, usize::from(*step) + 1), requests(bytes, bytes.len().max(1)));
});
