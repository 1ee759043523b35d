//! A program or library as a file: where its parts are mapped, and what tells how to unwind its frames.

use std::fs::File;
use std::io::{Read, Seek};
use std::sync::Arc;

use framehop::ExplicitModuleSectionInfo;
use object::elf::{FileHeader64, PF_X, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, ReadCache};

/// Sections of more bytes are passed over.
const SECTION_BYTES_MAX: u64 = 64 << 20;

/// A stretch of the file that is mapped to be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSegment {
    /// Where in the file.
    pub offset: u64,
    /// The address that the file gives it.
    pub address: u64,
    /// Its bytes in the file.
    pub bytes: u64,
}

/// A file of code.
#[derive(Debug)]
pub struct Image {
    path: String,
    /// Kept open, so that it is the one that was mapped, whatever takes its place. `None` if it could not be opened.
    file: Option<File>,
    segments: Vec<LoadSegment>,
    sections: Sections,
}

/// What unwinding needs. The data is shared by all processes that have the file mapped.
#[derive(Debug, Default)]
struct Sections {
    eh_frame: Option<Section>,
    eh_frame_hdr: Option<Section>,
    debug_frame: Option<Section>,
    text: Option<Section>,
    got_address: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Section {
    address: u64,
    data: Arc<[u8]>,
}

impl Image {
    /// Reads a file. One that is no ELF file of 64 bits, or is damaged, has a path and nothing else.
    pub fn open(path: String, file: Option<File>) -> Self {
        let read = file.as_ref().and_then(read_from);
        let (segments, sections) = read.unwrap_or_default();
        Image { path, file, segments, sections }
    }

    /// Its path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The file, if it could be opened.
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// What is to be added to its own addresses where `offset` of the file is mapped at `start`; `None` if nothing is executed there. One that
    /// cannot be read is told by offsets in the file.
    pub(crate) fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        if self.segments.is_empty() {
            return Some(start.wrapping_sub(offset));
        }
        // Mappings begin at pages, and segments anywhere in them.
        let page = |at: u64| at & !4095;
        let segment = self
            .segments
            .iter()
            .find(|it| page(it.offset) <= offset && offset < it.offset.saturating_add(it.bytes.max(1)))?;
        Some(start.wrapping_sub(offset.wrapping_sub(segment.offset).wrapping_add(segment.address)))
    }

    /// What an unwinder needs of it.
    pub(crate) fn unwind_info(&self) -> ExplicitModuleSectionInfo<Arc<[u8]>> {
        let range = |it: &Option<Section>| {
            it.as_ref().map(|it| it.address..it.address.saturating_add(it.data.len() as u64))
        };
        let data = |it: &Option<Section>| it.as_ref().map(|it| Arc::clone(&it.data));
        let Sections { eh_frame, eh_frame_hdr, debug_frame, text, got_address } = &self.sections;
        ExplicitModuleSectionInfo {
            text_svma: range(text),
            text: data(text),
            eh_frame_svma: range(eh_frame),
            eh_frame: data(eh_frame),
            eh_frame_hdr_svma: range(eh_frame_hdr),
            eh_frame_hdr: data(eh_frame_hdr),
            debug_frame: data(debug_frame),
            got_svma: got_address.map(|(start, bytes)| start..start.saturating_add(bytes)),
            ..ExplicitModuleSectionInfo::default()
        }
    }
}

fn read_from(file: &File) -> Option<(Vec<LoadSegment>, Sections)> {
    read(file)
}

/// The parts of an ELF file; `None` if it is none.
fn read(file: impl Read + Seek) -> Option<(Vec<LoadSegment>, Sections)> {
    let cache = ReadCache::new(file);
    let data = &cache;
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?.iter();
    let segments = segments
        .filter(|it| it.p_type(endian) == PT_LOAD && it.p_flags(endian).0 & PF_X.0 != 0)
        .map(|it| LoadSegment {
            offset: it.p_offset(endian),
            address: it.p_vaddr(endian),
            bytes: it.p_filesz(endian),
        })
        .collect();
    let mut sections = Sections::default();
    let Ok(table) = header.sections(endian, data) else { return Some((segments, sections)) };
    for header in table.iter() {
        let Ok(name) = table.section_name(endian, header) else { continue };
        let place = match name {
            b".eh_frame" => &mut sections.eh_frame,
            b".eh_frame_hdr" => &mut sections.eh_frame_hdr,
            b".debug_frame" => &mut sections.debug_frame,
            b".text" => &mut sections.text,
            b".got" => {
                sections.got_address = Some((header.sh_addr(endian), header.sh_size(endian)));
                continue;
            }
            _ => continue,
        };
        let is_plain = header.sh_flags(endian).0 & object::elf::SHF_COMPRESSED.0 == 0;
        if header.sh_size(endian) <= SECTION_BYTES_MAX && is_plain && place.is_none() {
            let bytes = header.data(endian, data).ok().filter(|it| !it.is_empty());
            *place = bytes.map(|bytes| Section { address: header.sh_addr(endian), data: Arc::from(bytes) });
        }
    }
    Some((segments, sections))
}
