//! Requests, encoded as bytes.

/// Appends a request to `out`.
pub(super) fn append<'a>(out: &mut Vec<u8>, args: impl ExactSizeIterator<Item = &'a [u8]>) {
    head(out, b'*', args.len());
    for arg in args {
        argument(out, arg);
    }
}

/// Appends the head of a request of `count` arguments, which follow.
pub(super) fn begin(out: &mut Vec<u8>, count: usize) {
    head(out, b'*', count);
}

/// Appends one argument.
pub(super) fn argument(out: &mut Vec<u8>, arg: &[u8]) {
    head(out, b'$', arg.len());
    out.extend_from_slice(arg);
    out.extend_from_slice(b"\r\n");
}

fn head(out: &mut Vec<u8>, kind: u8, count: usize) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// A request of words and bytes.
pub(super) fn of(args: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    append(&mut out, args.iter().copied());
    out
}
