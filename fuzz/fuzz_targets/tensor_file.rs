//! Model files must be read or refused, whatever stands in them. Tensors lie within the file, in the order of their places.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use tiermem_trace::tensor_file::read_from;

fuzz_target!(|input: &[u8]| {
    let length = input.len() as u64;
    let Ok(Some(tensors)) = read_from(Cursor::new(input), length) else { return };
    assert!(tensors.iter().all(|it| it.start.checked_add(it.bytes).is_some_and(|end| end <= length)));
    assert!(tensors.windows(2).all(|pair| pair[0].start + pair[0].bytes == pair[1].start));
});
