//! Random bytes: no NBD machine panics or grows, and the sizes of the pieces make no difference.

mod play;

use play::{PARTS, play};
use proptest::prelude::*;

/// Words of the protocol, from which noise is made that gets further than any bytes would.
const WORDS: &[&[u8]] = &[
    b"NBDMAGICIHAVEOPT\x00\x03",
    b"\0\0\0\x03",
    b"IHAVEOPT\0\0\0\x01\0\0\0\x03vol",
    b"IHAVEOPT\0\0\0\x02\0\0\0\0",
    b"IHAVEOPT\0\0\0\x03\0\0\0\0",
    b"IHAVEOPT\0\0\0\x05\0\0\0\0",
    b"IHAVEOPT\0\0\0\x07\0\0\0\x0d\0\0\0\x03vol\0\x02\0\x01\0\x03",
    b"IHAVEOPT\0\0\0\x06\0\0\0\x0b\0\0\0\x03",
    b"IHAVEOPT\0\0\0\x08\0\0\0\0",
    b"IHAVEOPT\0\0\0\x0a\0\0\0\x1e\0\0\0\x03vol\0\0\0\x01\0\0\0\x0fbase:allocation",
    b"IHAVEOPT\0\0\0\x09\0\0\0\x0b\0\0\0\x03vol\0\0\0\0",
    b"IHAVEOPT",
    b"\x25\x60\x95\x13\0\0\0\x00\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\x10\0",
    b"\x25\x60\x95\x13\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x08\0\0\0\x08",
    b"\x25\x60\x95\x13\0\0\0\x01\0\0\0\0\0\0\0\x02\0\xff\0\0\0\0\0\0\0\0\0\x08",
    b"\x25\x60\x95\x13\0\0\0\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\x25\x60\x95\x13",
    b"\x00\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x05\0\0\0\x01\0\0\0\0",
    b"\x00\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x05\x80\0\0\x02\0\0\0\0",
    b"\x00\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x08\0\0\0\x01\0\0\0\0",
    b"\x00\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x08\x80\0\0\x01\0\0\0\x02no",
    b"\x00\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x0a\0\0\0\x04\0\0\0\x13\0\0\0\x01base:allocation",
    b"\x00\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x0a\0\0\0\x01\0\0\0\0",
    b"\x00\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x03\0\0\0\x0c\0\0\0\0\0\0\0\0\x10\0\0\x01",
    b"\x00\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x01\0\0\0\0",
    b"\x00\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\x80\0\0\x01\0\0\0\0",
    b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x01",
    b"\x67\x44\x66\x98\0\0\0\x05\0\0\0\0\0\0\0\x03",
    b"\x66\x8e\x33\xef\0\x01\0\0\0\0\0\0\0\0\0\x02\0\0\0\0",
    b"\x66\x8e\x33\xef\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x0c\0\0\0\0\0\0\0\0data",
    b"\x66\x8e\x33\xef\0\x01\0\x02\0\0\0\0\0\0\0\0\0\0\0\x0c\0\0\0\0\0\0\0\x04\0\0\x0f\xfc",
    b"\x66\x8e\x33\xef\0\0\0\x05\0\0\0\0\0\0\0\x04\0\0\0\x0c\0\0\0\x01\0\0\x10\0\0\0\0\0",
    b"\x66\x8e\x33\xef\0\x01\0\x05\0\0\0\0\0\0\0\x04\0\0\0\x0c\0\0\0\x02\0\0\x02\0\0\0\0\0",
    b"\x66\x8e\x33\xef\0\x01\x80\x01\0\0\0\0\0\0\0\x03\0\0\0\x08\0\0\0\x16\0\x02no",
    b"\x66\x8e\x33\xef\0\x01\x80\x02\0\0\0\0\0\0\0\x01\0\0\0\x0e\0\0\0\x05\0\0\0\0\0\0\0\0\0\x09",
];

fn noise() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => prop::sample::select(WORDS).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (prop::sample::select(WORDS), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(word, at, byte)| {
            let mut word = word.to_vec();
            let at = at.index(word.len());
            word[at] = byte;
            word
        }),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn noise_is_read_alike_however_it_is_cut(part in 0..PARTS, bytes in noise(), step in 1usize..64) {
        // Some machines need to be spoken to in the right way first; half of the noise does.
        let opening: &[u8] = match part {
            0 => b"\0\0\0\x03",
            3 | 4 => b"NBDMAGICIHAVEOPT\x00\x03",
            _ => b"",
        };
        for bytes in [bytes.clone(), [opening, &bytes].concat()] {
            prop_assert_eq!(play(part, &bytes, step), play(part, &bytes, bytes.len().max(1)));
        }
    }

    #[test]
    fn any_bytes_are_survived(part in 0..PARTS, bytes: Vec<u8>, step in 1usize..64) {
        play(part, &bytes, step);
    }
}

/// Announces long things to every machine, and sends them.
#[test]
fn long_things_pass_by_and_are_not_kept() {
    for (part, opening) in [
        (0, &b"\0\0\0\x03IHAVEOPT\0\0\0\x07\xff\xff\xff\xff"[..]),
        (0, b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\x80\0"),
        (0, b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\x10\0"),
        (1, b"IHAVEOPT\0\0\0\x0a\0\0\x80\0"),
        (2, b"\x25\x60\x95\x13\0\0\0\x01\0\0\0\0\0\0\0\x02\0\xff\0\0\0\0\0\0\x02\0\0\0"),
        (3, b"NBDMAGICIHAVEOPT\x00\x03\x00\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x08\0\0\0\x01\0\0\x40\0"),
        (5, b"\x66\x8e\x33\xef\0\0\0\x05\0\0\0\0\0\0\0\x04\0\0\x80\x04\0\0\0\x01"),
        (5, b"\x66\x8e\x33\xef\0\0\x80\x01\0\0\0\0\0\0\0\x04\0\0\x10\0\0\0\0\x01"),
    ] {
        // The machine's memory is looked at after each piece.
        let bytes = [opening, &[0; 4 << 20]].concat();
        play(part, &bytes, 1 << 16);
    }
}
