//! Passwords in requests, which neither the slow log nor `MONITOR` shows.

use crate::resp::Args;

/// Which arguments nobody may read: passwords.
pub fn is_secret(args: Args<'_>, at: usize) -> bool {
    if args[0].eq_ignore_ascii_case(b"auth") {
        return at > 0;
    }
    if args[0].eq_ignore_ascii_case(b"acl") && args.len() > 1 && args[1].eq_ignore_ascii_case(b"setuser") {
        return at > 2;
    }
    args[0].eq_ignore_ascii_case(b"hello")
        && (1..=2).any(|before| at > before && args[at - before].eq_ignore_ascii_case(b"auth"))
}

/// What stands in an argument's place that nobody may read.
pub const REDACTED: &[u8] = b"(redacted)";
