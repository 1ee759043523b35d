//! Where the tensors of a language model lie in its file: GGUF (llama.cpp) and safetensors. Programs map such files as they are, so that
//! a tensor's place in the file tells its place in memory.

mod gguf;
mod safetensors;

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

/// A tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name in the file: `blk.0.attn_q.weight`.
    pub name: String,
    /// Where it starts, in bytes from the file's begin.
    pub start: u64,
    /// Its bytes, with what fills the gap up to the next one.
    pub bytes: u64,
}

/// The tensors of a file in the order of their places; `None` if it is neither GGUF nor safetensors.
///
/// # Errors
/// If the file cannot be read, or is cut or damaged.
pub fn read(path: &Path) -> io::Result<Option<Vec<Tensor>>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    read_from(file, length)
}

/// The same of an open file of `length` bytes.
///
/// # Errors
/// As [`read`].
pub fn read_from(file: impl Read + Seek, length: u64) -> io::Result<Option<Vec<Tensor>>> {
    let mut file = BufReader::new(file);
    let mut magic = Vec::with_capacity(8);
    file.by_ref().take(8).read_to_end(&mut magic)?;
    file.rewind()?;
    let begins = match magic.get(..4) {
        Some(gguf::MAGIC) => gguf::begins(file, length)?,
        // A length, and the begin of an object in JSON, could be by chance: then what follows is none.
        Some(_) => match safetensors::begins(file, length)? {
            Some(begins) => begins,
            None => return Ok(None),
        },
        None => return Ok(None),
    };
    tensors(begins, length).map(Some)
}

/// Each tensor reaches to where the next one begins. `begins` are names and places.
fn tensors(mut begins: Vec<(String, u64)>, length: u64) -> io::Result<Vec<Tensor>> {
    begins.sort_by_key(|(_, start)| *start);
    let ends: Vec<u64> = begins.iter().skip(1).map(|(_, start)| *start).chain([length]).collect();
    if begins.last().is_some_and(|(_, start)| *start > length) {
        return Err(damaged("a tensor lies behind the file's end"));
    }
    let of = |((name, start), end): ((String, u64), u64)| Tensor { name, start, bytes: end - start };
    Ok(begins.into_iter().zip(ends).map(of).collect())
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;

    /// A GGUF file of one text, one array of texts and these tensors, at such places behind the header.
    fn gguf(tensors: &[(&str, u64)], data_bytes: usize) -> Vec<u8> {
        let text = |bytes: &mut Vec<u8>, text: &str| {
            bytes.extend((text.len() as u64).to_le_bytes());
            bytes.extend(text.as_bytes());
        };
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3_u32.to_le_bytes());
        bytes.extend((tensors.len() as u64).to_le_bytes());
        bytes.extend(3_u64.to_le_bytes());
        text(&mut bytes, "general.name");
        bytes.extend(8_u32.to_le_bytes());
        text(&mut bytes, "small");
        text(&mut bytes, "tokens");
        bytes.extend(9_u32.to_le_bytes());
        bytes.extend(8_u32.to_le_bytes());
        bytes.extend(2_u64.to_le_bytes());
        text(&mut bytes, "a");
        text(&mut bytes, "bc");
        text(&mut bytes, "general.alignment");
        bytes.extend(4_u32.to_le_bytes());
        bytes.extend(64_u32.to_le_bytes());
        for (name, offset) in tensors {
            text(&mut bytes, name);
            bytes.extend(2_u32.to_le_bytes());
            bytes.extend(8_u64.to_le_bytes());
            bytes.extend(8_u64.to_le_bytes());
            bytes.extend(0_u32.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(64) + data_bytes, 7);
        bytes
    }

    fn safetensors(header: &str, data_bytes: usize) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + data_bytes, 7);
        bytes
    }

    fn read_bytes(bytes: &[u8]) -> io::Result<Option<Vec<Tensor>>> {
        read_from(Cursor::new(bytes), bytes.len() as u64)
    }

    #[test]
    fn tensors_are_where_the_file_says() {
        let bytes = gguf(&[("b", 256), ("a", 0)], 600);
        let data = (bytes.len() - 600) as u64;
        let tensor = |name: &str, start, bytes| Tensor { name: name.to_owned(), start, bytes };
        assert_eq!(
            read_bytes(&bytes).unwrap(),
            Some(vec![tensor("a", data, 256), tensor("b", data + 256, 344)])
        );
        let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},
            "b":{"dtype":"F32","shape":[2],"data_offsets":[16,24]}}"#;
        let bytes = safetensors(header, 24);
        let data = (bytes.len() - 24) as u64;
        assert_eq!(read_bytes(&bytes).unwrap(), Some(vec![tensor("a", data, 16), tensor("b", data + 16, 8)]));
    }

    #[test]
    fn other_files_have_none_and_damaged_ones_are_refused() {
        for other in [&b""[..], b"GG", b"\x7fELF\x02\x01\x01\0", b"{\"a\": 1}  ", &[0xff; 64]] {
            assert_eq!(read_bytes(other).unwrap(), None, "{other:?}");
        }
        let whole = gguf(&[("a", 0), ("b", 4096)], 8192);
        assert!(read_bytes(&whole).is_ok());
        assert!(read_bytes(&whole[..100]).is_err());
        // The file ends before its last tensor.
        assert!(read_bytes(&whole[..whole.len() - 8000]).is_err());
        assert!(read_bytes(&gguf(&[("a", u64::MAX)], 64)).is_err());
    }

    proptest! {
        #[test]
        fn whatever_a_file_holds_its_tensors_lie_within_it(
            at in any::<prop::sample::Index>(), bytes in prop::collection::vec(any::<u8>(), 1..16), gguf_file in any::<bool>(),
        ) {
            let header = r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#;
            let mut file = if gguf_file { gguf(&[("a", 0), ("b", 64)], 128) } else { safetensors(header, 16) };
            let from = at.index(file.len());
            for (byte, other) in file[from..].iter_mut().zip(bytes) {
                *byte = other;
            }
            if let Ok(Some(tensors)) = read_bytes(&file) {
                for tensor in tensors {
                    prop_assert!(tensor.start + tensor.bytes <= file.len() as u64);
                }
            }
        }
    }
}
