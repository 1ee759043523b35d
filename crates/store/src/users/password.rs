//! Passwords: only digests are kept. Also generates random ones.

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

/// Bytes of a digest.
const BYTES: usize = 32;

/// A password's SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Digest([u8; BYTES]);

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Digest(..)")
    }
}

impl Digest {
    pub fn of(password: &[u8]) -> Self {
        let mut bytes = [0; BYTES];
        bytes.copy_from_slice(digest(&SHA256, password).as_ref());
        Digest(bytes)
    }

    /// Reads 64 hexadecimal digits in lower case.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; BYTES];
        if text.len() != 2 * BYTES {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Digest(bytes))
    }

    pub fn hex(&self) -> String {
        hex(&self.0)
    }

    /// Compares in a time that reveals nothing of where the two differ.
    pub fn is(&self, other: &Digest) -> bool {
        let differing = self.0.iter().zip(&other.0);
        differing.fold(0, |differing, (a, b)| core::hint::black_box(differing | (a ^ b))) == 0
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|it| char::from_digit(it.into(), 16))
        .collect()
}

/// The system has no chance to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Randomless;

/// `digits` random hexadecimal digits, from the system.
pub fn random_hex(digits: usize) -> Result<String, Randomless> {
    let mut bytes = vec![0; digits.div_ceil(2)];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Randomless)?;
    let mut text = hex(&bytes);
    text.truncate(digits);
    Ok(text)
}
