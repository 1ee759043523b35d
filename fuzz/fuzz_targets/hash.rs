//! A hash's blob may be any bytes: every operation on them must end without a panic. The first bytes of an input say
//! what is done; the rest is the blob.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tiermem_store::hash::{Hash, Ttl, collect, plan, rebuild, remove, set, set_expiry};

/// Operations at the start of an input.
const OPERATIONS: usize = 16;
const NOW_MS: u64 = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let Some((operations, bytes)) = input.split_at_checked(OPERATIONS) else { return };
    let mut blob = bytes.to_vec();
    for operation in operations {
        let field = &b"abcdefghijklmnopqrstuvwxyz"[..usize::from(operation >> 4)];
        if let Ok(hash) = Hash::read(&blob) {
            let _ = hash.get(field, NOW_MS);
            let _ = hash.fields(NOW_MS).count();
            if let Ok(scanned) = hash.scan(u64::from(*operation) << 24, 3, NOW_MS, &mut |_| ()) {
                assert!(scanned.cursor == 0 || scanned.cursor > u64::from(*operation) << 24);
            }
            let _ = hash.random(NOW_MS, &mut |bound| u64::from(*operation) % bound.max(1));
        }
        let _ = match operation % 8 {
            0 => set(&mut blob, NOW_MS, field, b"a value that is longer than others", Ttl::Clear).map(drop),
            1 => set(&mut blob, NOW_MS, field, b"", Ttl::Keep).map(drop),
            2 => set(&mut blob, NOW_MS, field, b"v", Ttl::At(NOW_MS + 9)).map(drop),
            3 => set_expiry(&mut blob, NOW_MS, field, NOW_MS + 5).map(drop),
            4 => remove(&mut blob, NOW_MS, field).map(drop),
            5 => collect(&mut blob, NOW_MS + 7).map(drop),
            _ => plan(&blob, 2, 100, 1 << 20).and_then(|size| {
                let Some(size) = size else { return Ok(()) };
                let mut new = vec![0; size.len];
                rebuild(&blob, &mut new, size, 1, NOW_MS)?;
                blob = new;
                Ok(())
            }),
        };
    }
});
