//! Errors that several commands give, in Redis's words.

use super::context::Refusal;

/// The error for a number of arguments that `name` does not take.
pub(super) fn wrong_arity(name: &str) -> Refusal {
    if name == "exec" {
        let text = "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
        return Refusal::Text(text);
    }
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// What an error shows of an argument: up to a NUL, and not more than `max` bytes.
pub(super) fn printable(argument: &[u8], max: usize) -> &[u8] {
    let end = argument.iter().take(max).position(|byte| *byte == 0);
    &argument[..end.unwrap_or(argument.len().min(max))]
}
