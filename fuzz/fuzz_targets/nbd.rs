//! Every NBD machine must take any bytes without a panic and without growing, and must read the same from them however
//! they are cut. The first byte of an input says which machine reads the rest, the second how long the pieces are.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/block/tests/play/mod.rs"]
mod play;

fuzz_target!(|input: &[u8]| {
    let [part, step, bytes @ ..] = input else { return };
    assert_eq!(play::play(*part, bytes, usize::from(*step) + 1), play::play(*part, bytes, bytes.len().max(1)));
});
