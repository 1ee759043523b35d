//! Redaction of passwords in requests: neither the slow log nor `MONITOR` shows them.

use crate::resp::Args;

/// Whether an argument is secret: a password.
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

/// The text shown in place of a secret argument.
pub const REDACTED: &[u8] = b"(redacted)";
