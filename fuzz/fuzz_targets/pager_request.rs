//! Requests about a paged program must be taken or refused, whatever a client sends, and a refusal is short.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tiermem_pager::control::{Change, Request};

fuzz_target!(|input: &[u8]| {
    match String::from_utf8_lossy(input).parse::<Request>() {
        Ok(Request::Status) => {}
        Ok(Request::Set(change)) => {
            assert_ne!(change, Change::default());
        }
        Err(error) => assert!((1..1000).contains(&error.to_string().len()), "{error}"),
    }
});
