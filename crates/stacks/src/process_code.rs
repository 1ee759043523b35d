//! The code that a process has mapped, and stacks of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Module, Unwinder};

use crate::Image;

/// Most frames of a stack.
const FRAMES_MAX: usize = 128;

/// The code of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// In a file.
    InFile {
        /// The number that the file was mapped with.
        image: u32,
        /// Its address, as the file counts; of a caller, one within its call.
        address: u64,
    },
    /// In memory of no file: made by a compiler in the program (JIT), or by the kernel.
    Anonymous,
}

/// A stack, the innermost frame first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unwound {
    /// The code of each frame.
    pub frames: Vec<Code>,
    /// Whether the outermost frame was reached.
    pub is_complete: bool,
}

/// What unwinding remembers of addresses; for one process alone.
pub type UnwindCache = CacheX86_64;

#[derive(Clone, Debug)]
struct Mapping {
    end: u64,
    /// Number of the file, and what is to be added to its addresses.
    file: Option<(u32, u64)>,
}

/// What a process has mapped that can be executed. A clone is that of a child.
#[derive(Clone, Default)]
pub struct ProcessCode {
    mappings: BTreeMap<u64, Mapping>,
    unwinder: UnwinderX86_64<Arc<[u8]>>,
}

impl ProcessCode {
    /// Whether nothing is known to be mapped.
    pub fn is_empty(&self) -> bool {
        self.mappings.is_empty()
    }

    /// Whether something is known to be executed there.
    pub fn knows(&self, address: u64) -> bool {
        self.find(address).is_some()
    }

    /// Takes in that `bytes` from `start` on are the file's from `offset` on, or none's. What was there before has gone.
    pub fn map(&mut self, start: u64, bytes: u64, image: Option<(u32, &Image, u64)>) {
        let end = start.saturating_add(bytes);
        let mut gone: Vec<u64> = self.mappings.range(start..end).map(|(start, _)| *start).collect();
        let before = self.mappings.range(..start).next_back();
        gone.extend(before.filter(|(_, it)| it.end > start).map(|(before, _)| *before));
        for before in gone {
            self.mappings.remove(&before);
            self.unwinder.remove_module(before);
        }
        let file =
            image.and_then(|(number, image, offset)| Some((number, image, image.bias(start, offset)?)));
        if let Some((_, image, bias)) = file {
            let path = image.path().to_owned();
            self.unwinder.add_module(Module::new(path, start..end, bias, image.unwind_info()));
        }
        self.mappings.insert(start, Mapping { end, file: file.map(|(number, _, bias)| (number, bias)) });
    }

    fn find(&self, address: u64) -> Option<&Mapping> {
        let (_, mapping) = self.mappings.range(..=address).next_back()?;
        (address < mapping.end).then_some(mapping)
    }

    /// The code at an address; `None` if nothing is known to be executed there.
    fn code(&self, address: u64) -> Option<Code> {
        let mapping = self.find(address)?;
        Some(mapping.file.map_or(Code::Anonymous, |(image, bias)| Code::InFile {
            image,
            address: address.wrapping_sub(bias),
        }))
    }

    /// The stack of these registers, whose memory from the stack pointer on is `words`.
    pub fn unwind(&self, cache: &mut UnwindCache, [ip, sp, bp]: [u64; 3], words: &[u64]) -> Unwound {
        let mut read = |address: u64| {
            let offset = address.checked_sub(sp).filter(|offset| offset % 8 == 0).ok_or(())?;
            words.get(usize::try_from(offset / 8).map_err(|_| ())?).copied().ok_or(())
        };
        let mut stack = Unwound::default();
        let registers = UnwindRegsX86_64::new(ip, sp, bp);
        let mut frames = self.unwinder.iter_frames(ip, registers, cache, &mut read);
        while stack.frames.len() < FRAMES_MAX {
            let address = match frames.next() {
                Ok(Some(FrameAddress::InstructionPointer(address))) => address,
                Ok(Some(FrameAddress::ReturnAddress(address))) => address.get() - 1,
                Ok(None) => {
                    stack.is_complete = true;
                    break;
                }
                Err(_) => break,
            };
            // What is no code is no return address: the frames from there on would be made up.
            let Some(code) = self.code(address) else { break };
            stack.frames.push(code);
        }
        stack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_told_by_file_and_end_where_there_is_no_code() {
        let mut process = ProcessCode::default();
        // Neither is a file that can be read: frames are found by their pointers.
        let image = Image::open("/a".to_owned(), None);
        process.map(0x1000, 0x1000, Some((7, &image, 0x3000)));
        process.map(0x9000, 0x1000, None);
        let sp = 0x7f00;
        let words = [0, 0, 0x7f20, 0x9010, 0x7f30, 0x5000, 0, 0];
        let stack = process.unwind(&mut UnwindCache::default(), [0x1234, sp, sp + 16], &words);
        let frames = [Code::InFile { image: 7, address: 0x3234 }, Code::Anonymous];
        assert_eq!((stack.frames.as_slice(), stack.is_complete), (&frames[..], false));
        // Another mapping takes the place of a part of it.
        process.map(0x1800, 0x100, None);
        assert!(process.knows(0x1810) && !process.knows(0x1234) && !process.is_empty());
        let child = process.clone();
        process.map(0x1800, 0x1000, Some((1, &image, 0)));
        let innermost = |process: &ProcessCode| {
            process.unwind(&mut UnwindCache::default(), [0x1810, sp, 0], &[]).frames.first().copied()
        };
        assert_eq!(innermost(&process), Some(Code::InFile { image: 1, address: 0x10 }));
        assert_eq!(innermost(&child), Some(Code::Anonymous));
    }
}
