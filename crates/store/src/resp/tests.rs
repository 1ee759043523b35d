//! Tests of the parser against another implementation, against itself in pieces, and against random bytes.

use proptest::prelude::*;
use redis_protocol::resp2::{
    encode::encode,
    types::{OwnedFrame, Resp2Frame},
};
use redis_protocol::resp3::decode::complete::decode as decode3;

use super::{Limits, Parser, Progress, Version, Writer};

const LIMITS: Limits = Limits { bulk_bytes_max: 1000, request_bytes_max: 4000, unauthenticated: false };

/// Result of parsing a stream of bytes.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    Request(Vec<Vec<u8>>),
    Oversize,
    Broken(String),
}

/// Feeds `bytes` in pieces that end at `cuts`, as a connection does, and notes what comes out.
fn feed(bytes: &[u8], limits: &Limits, cuts: impl Iterator<Item = usize>) -> Vec<Event> {
    let (mut parser, mut buffer, mut events) = (Parser::default(), Vec::new(), Vec::new());
    let mut from = 0;
    for to in cuts.chain([bytes.len()]) {
        buffer.extend_from_slice(&bytes[from..to]);
        from = to;
        while !buffer.is_empty() {
            match parser.parse(&buffer, limits) {
                Ok(Progress::Complete) => {
                    let args = parser.args(&buffer).iter_from(0).map(<[u8]>::to_vec).collect();
                    events.push(Event::Request(args));
                }
                Ok(Progress::Empty) => {}
                Ok(Progress::Oversize) => events.push(Event::Oversize),
                Ok(Progress::Incomplete { bytes_min }) => {
                    assert!(bytes_min > buffer.len(), "it asks for bytes that it has");
                    buffer.drain(..parser.discard());
                    break;
                }
                Err(error) => {
                    events.push(Event::Broken(error.to_string()));
                    return events;
                }
            }
            assert!(parser.consumed() > 0);
            buffer.drain(..parser.consumed());
            parser.reset();
        }
    }
    events
}

fn whole(bytes: &[u8]) -> Vec<Event> {
    feed(bytes, &LIMITS, core::iter::empty())
}

fn encoded(args: &[Vec<u8>]) -> Vec<u8> {
    let frames = args.iter().map(|arg| OwnedFrame::BulkString(arg.clone())).collect();
    let frame = OwnedFrame::Array(frames);
    let mut bytes = vec![0; frame.encode_len(false)];
    let len = encode(&mut bytes, &frame, false).unwrap();
    bytes.truncate(len);
    bytes
}

fn requests() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    let arg = prop::collection::vec(any::<u8>(), 0..40);
    prop::collection::vec(prop::collection::vec(arg, 1..6), 1..5)
}

/// Bytes that come near to requests more often than noise does.
fn near_requests() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"*".to_vec()),
        Just(b"$".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"'".to_vec()),
        Just(b"\\x4".to_vec()),
        Just(b"*2\r\n$3\r\nGET\r\n".to_vec()),
        Just(b"$1200\r\n".to_vec()),
        Just(b"$5\r\nhello\r\n".to_vec()),
        (-2i64..2000).prop_map(|number| number.to_string().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..8),
        (0usize..1500).prop_map(|len| vec![b'a'; len]),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

#[test]
fn a_request_may_be_cut_at_any_byte() {
    let bytes = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$10\r\nab\r\ncd\r\nef\r\n\r\nGET 'a b' \"\\x00\"\r\n*1\r\n$4\r\nPING\r\n";
    let expected = whole(bytes);
    assert_eq!(expected.len(), 3);
    for first in 0..=bytes.len() {
        for second in first..=bytes.len() {
            assert_eq!(feed(bytes, &LIMITS, [first, second].into_iter()), expected, "{first} {second}");
        }
    }
}

#[test]
fn an_oversize_request_goes_by_and_the_next_is_read() {
    let value = vec![b'v'; 1001];
    let many: Vec<Vec<u8>> = vec![vec![b'w'; 900]; 6];
    let bytes =
        [encoded(&[b"SET".to_vec(), b"k".to_vec(), value]), encoded(&many), b"PING\r\n".to_vec()].concat();
    let expected = vec![Event::Oversize, Event::Oversize, Event::Request(vec![b"PING".to_vec()])];
    assert_eq!(whole(&bytes), expected);
    assert_eq!(feed(&bytes, &LIMITS, 1..bytes.len()), expected);
}

#[test]
fn an_unauthenticated_client_gets_little_room() {
    let limits = Limits { unauthenticated: true, bulk_bytes_max: 1 << 20, request_bytes_max: 1 << 21 };
    for (bytes, error) in [
        ("*11\r\n", "Protocol error: unauthenticated multibulk length"),
        ("*2\r\n$4\r\nAUTH\r\n$16385\r\n", "Protocol error: unauthenticated bulk length"),
    ] {
        let events = feed(bytes.as_bytes(), &limits, core::iter::empty());
        assert_eq!(events, [Event::Broken(error.to_owned())]);
    }
}

#[test]
fn lines_that_do_not_end_are_cut_off() {
    let long = "1".repeat(super::INLINE_BYTES_MAX + 1);
    for (bytes, error) in [
        (long.clone(), "Protocol error: too big inline request"),
        (format!("{long}\r\n"), "Protocol error: too big inline request"),
        (format!("*{long}"), "Protocol error: too big mbulk count string"),
        (format!("*1\r\n${long}"), "Protocol error: too big bulk count string"),
    ] {
        assert_eq!(whole(bytes.as_bytes()), [Event::Broken(error.to_owned())]);
    }
}

proptest! {
    #[test]
    fn another_encoders_requests_are_read_as_meant(requests in requests(), cut in any::<prop::sample::Index>()) {
        let bytes: Vec<u8> = requests.iter().flat_map(|args| encoded(args)).collect();
        let expected: Vec<_> = requests.into_iter().map(Event::Request).collect();
        prop_assert_eq!(&whole(&bytes), &expected);
        prop_assert_eq!(&feed(&bytes, &LIMITS, core::iter::once(cut.index(bytes.len()))), &expected);
    }

    /// Noise never panics, and how it is cut changes nothing.
    #[test]
    fn noise_is_read_the_same_in_any_pieces(bytes in near_requests(), step in 1usize..50) {
        let expected = whole(&bytes);
        prop_assert_eq!(&feed(&bytes, &LIMITS, (step..bytes.len()).step_by(step)), &expected);
        prop_assert_eq!(&feed(&bytes, &LIMITS, 1..bytes.len().max(1)), &expected);
    }

    #[test]
    fn replies_are_understood_by_another_decoder(
        value in prop::collection::vec(any::<u8>(), 0..200), number: i64, double in -1e6f64..1e6, resp3: bool,
    ) {
        let version = if resp3 { Version::Resp3 } else { Version::Resp2 };
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, version);
        writer.array(6);
        writer.bulk(&value);
        writer.integer(number);
        writer.null();
        writer.double(double);
        writer.error(&[b"ERR ", &value[..]].concat().iter().map(|byte| byte & 0x7f).collect::<Vec<_>>());
        writer.map(1);
        writer.simple("key");
        writer.verbatim(b"text");
        let read = if resp3 {
            decode3(&bytes).unwrap().map(|(_, len)| len)
        } else {
            redis_protocol::resp2::decode::decode(&bytes).unwrap().map(|(_, len)| len)
        };
        prop_assert_eq!(read, Some(bytes.len()));
    }
}
