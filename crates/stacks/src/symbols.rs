//! Names of code: functions, files and lines where a program's file or its debug file has them, else symbols, else offsets.

use std::borrow::Cow;
use std::fs::File;
use std::time::Instant;

use addr2line::gimli::{Dwarf, EndianSlice, RunTimeEndian, SectionId};
use addr2line::{Context, demangle_auto};
use object::{Object, ObjectSection, ObjectSymbol, ReadCache, ReadRef, SymbolKind};

use crate::Image;

/// Debug information of more bytes than this in one file is left, and its symbols alone are used.
const DEBUG_BYTES_MAX: u64 = 512 << 20;
/// Symbols of a file that are used, at most.
const SYMBOLS_MAX: usize = 4 << 20;
/// Frames of inlined functions at one address, at most.
const INLINED_MAX: usize = 32;
/// Bytes of a name, at most: those of C++ can be megabytes.
const NAME_BYTES_MAX: usize = 400;
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

/// A frame, as far as it has names.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    /// The function.
    pub function: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line.
    pub line: Option<u32>,
    /// The program or library; `None` of code in no file.
    pub module: Option<String>,
    /// From the function's start, or from the file's own address 0 if there is no function.
    pub offset: u64,
}

/// Names addresses of a file, as it counts them: for each of them its frames, the innermost first, several where functions are inlined.
/// After the deadline they have offsets alone.
pub fn name(image: &Image, addresses: &[u64], deadline: Instant) -> Vec<Vec<Frame>> {
    let module = image.path();
    let unnamed =
        |address: u64| Frame { module: Some(module.to_owned()), offset: address, ..Frame::default() };
    let mut named: Vec<Vec<Frame>> = addresses.iter().map(|address| vec![unnamed(*address)]).collect();
    let Some(file) = image.file() else { return named };
    let cache = ReadCache::new(file);
    let Ok(object) = object::File::parse(&cache) else { return named };
    name_by(&object, module, addresses, deadline, &mut named);
    // Distributions keep debug information and most symbols in files of their own.
    if object.section_by_name(".debug_info").is_none()
        && let Some(file) = debug_file(&object)
    {
        let cache = ReadCache::new(file);
        if let Ok(object) = object::File::parse(&cache) {
            name_by(&object, module, addresses, deadline, &mut named);
        }
    }
    named
}

fn debug_file<'a>(object: &impl Object<'a>) -> Option<File> {
    let id = object.build_id().ok().flatten().filter(|id| id.len() > 1)?;
    let hexadecimal: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (folder, name) = hexadecimal.split_at(2);
    File::open(format!("{DEBUG_FILES}/{folder}/{name}.debug")).ok()
}

/// Names what an object knows.
fn name_by<'a, R: ReadRef<'a>>(
    object: &object::File<'a, R>,
    module: &str,
    addresses: &[u64],
    deadline: Instant,
    named: &mut [Vec<Frame>],
) {
    let symbols = symbols(object);
    let sections = Sections::of(object);
    let endian = if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let dwarf = sections.as_ref().and_then(|sections| sections.dwarf(endian));
    let context = dwarf.filter(|_| Instant::now() < deadline).and_then(|it| Context::from_dwarf(it).ok());
    for (address, frames) in addresses.iter().zip(named) {
        if Instant::now() >= deadline {
            return;
        }
        let mut found =
            context.as_ref().map_or(Vec::new(), |context| by_debug_information(context, *address));
        let symbol = symbol_at(&symbols, *address);
        if let Some(symbol) = symbol {
            // What is inlined has no symbol; the function that it is inlined into has, and more often than debug information.
            if found.is_empty() {
                found.push(Frame::default());
            }
            if let Some(outermost) = found.last_mut().filter(|it| it.function.is_none()) {
                outermost.function = Some(shortened(&demangle_auto(Cow::Borrowed(symbol.name), None)));
            }
        }
        let offset = symbol.map_or(*address, |symbol| address - symbol.start);
        for frame in &mut found {
            frame.module = Some(module.to_owned());
            frame.offset = offset;
        }
        if !found.is_empty() {
            *frames = found;
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Symbol<'a> {
    start: u64,
    /// 0 if it is not known.
    bytes: u64,
    name: &'a str,
}

/// Functions in the order of addresses, those of the full table before those that are exported.
fn symbols<'a, R: ReadRef<'a>>(object: &object::File<'a, R>) -> Vec<Symbol<'a>> {
    let all = object.symbols().chain(object.dynamic_symbols()).take(SYMBOLS_MAX);
    let code =
        all.filter(|it| it.is_definition() && matches!(it.kind(), SymbolKind::Text | SymbolKind::Unknown));
    let named = code.filter_map(|it| {
        let name = it.name().ok().filter(|name| !name.is_empty())?;
        Some(Symbol { start: it.address(), bytes: it.size(), name })
    });
    let mut symbols: Vec<Symbol<'a>> = named.collect();
    symbols.sort_by_key(|symbol| symbol.start);
    symbols.dedup_by_key(|symbol| symbol.start);
    symbols
}

fn symbol_at<'a, 'b>(symbols: &'b [Symbol<'a>], address: u64) -> Option<&'b Symbol<'a>> {
    let behind = symbols.partition_point(|symbol| symbol.start <= address);
    let symbol = symbols.get(behind.checked_sub(1)?)?;
    // Assembly has symbols without a size.
    (symbol.bytes == 0 || address - symbol.start < symbol.bytes).then_some(symbol)
}

/// Sections with debug information, unpacked.
struct Sections<'a>(Vec<(SectionId, Cow<'a, [u8]>)>);

impl<'a> Sections<'a> {
    /// `None` if there is none, or too much.
    fn of<R: ReadRef<'a>>(object: &object::File<'a, R>) -> Option<Self> {
        const WANTED: [SectionId; 11] = [
            SectionId::DebugAbbrev,
            SectionId::DebugAddr,
            SectionId::DebugAranges,
            SectionId::DebugInfo,
            SectionId::DebugLine,
            SectionId::DebugLineStr,
            SectionId::DebugStr,
            SectionId::DebugStrOffsets,
            SectionId::DebugTypes,
            SectionId::DebugRanges,
            SectionId::DebugRngLists,
        ];
        let mut left = DEBUG_BYTES_MAX;
        let mut sections = Vec::new();
        for id in WANTED {
            let Some(section) = object.section_by_name(id.name()) else { continue };
            let data = section.compressed_data().ok()?;
            // As it says itself, before any room is made for it.
            left = left.checked_sub(data.uncompressed_size)?;
            sections.push((id, data.decompress().ok()?));
        }
        sections.iter().any(|(id, _)| *id == SectionId::DebugInfo).then_some(Sections(sections))
    }

    fn dwarf(&self, endian: RunTimeEndian) -> Option<Dwarf<EndianSlice<'_, RunTimeEndian>>> {
        let section = |id: SectionId| -> Result<_, addr2line::gimli::Error> {
            let data = self.0.iter().find(|(it, _)| *it == id).map_or(&[][..], |(_, data)| data);
            Ok(EndianSlice::new(data, endian))
        };
        Dwarf::load(section).ok()
    }
}

type Debug<'a> = Context<EndianSlice<'a, RunTimeEndian>>;

/// The frames at an address; none if there is nothing about it.
fn by_debug_information(context: &Debug<'_>, address: u64) -> Vec<Frame> {
    let mut found = Vec::new();
    let Ok(mut frames) = context.find_frames(address).skip_all_loads() else { return found };
    while found.len() < INLINED_MAX {
        let Ok(Some(frame)) = frames.next() else { break };
        let function = frame.function.and_then(|it| Some(shortened(&it.demangle().ok()?)));
        let (file, line) = frame.location.map_or((None, None), |it| (it.file, it.line));
        found.push(Frame { function, file: file.map(shortened), line, ..Frame::default() });
    }
    found
}

fn shortened(name: &str) -> String {
    if name.len() <= NAME_BYTES_MAX {
        return name.to_owned();
    }
    let end = (0..=NAME_BYTES_MAX).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    format!("{}...", &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn the_symbol_before_an_address_is_its_own() {
        let symbol = |start, bytes, name| Symbol { start, bytes, name };
        let symbols = [symbol(10, 5, "a"), symbol(20, 0, "b"), symbol(40, 1, "c")];
        let name = |address| symbol_at(&symbols, address).map(|symbol| symbol.name);
        assert_eq!(
            [9, 10, 14, 15, 20, 39, 40, 41].map(name),
            [None, Some("a"), Some("a"), None, Some("b"), Some("b"), Some("c"), None]
        );
    }

    #[test]
    fn this_program_is_named_by_its_own_symbols() {
        let path = std::env::current_exe().unwrap();
        let file = File::open(&path).unwrap();
        let cache = ReadCache::new(&file);
        let object = object::File::parse(&cache).unwrap();
        let wanted = "the_symbol_before_an_address_is_its_own";
        let symbol = symbols(&object).into_iter().find(|it| it.name.contains(wanted)).unwrap();
        let image = Image::open(path.to_string_lossy().into_owned(), Some(File::open(&path).unwrap()));
        let addresses = [symbol.start + 1, 1];
        let named = name(&image, &addresses, soon());
        let outermost = named[0].last().unwrap();
        assert!(outermost.function.as_deref().unwrap().contains(wanted), "{outermost:?}");
        assert_eq!((outermost.offset, outermost.module.as_deref()), (1, path.to_str()));
        assert_eq!((named[1].len(), &named[1][0].function, named[1][0].offset), (1, &None, 1));
        // Later than that nothing is looked up.
        let late = name(&image, &addresses, Instant::now());
        assert_eq!((late[0].len(), &late[0][0].function, late[0][0].offset), (1, &None, symbol.start + 1));
    }

    #[test]
    fn a_long_name_is_cut_between_letters() {
        let long = "\u{e4}".repeat(NAME_BYTES_MAX);
        let cut = shortened(&long);
        assert!(cut.ends_with("...") && cut.len() <= NAME_BYTES_MAX + 3);
        assert_eq!(shortened("main"), "main");
    }
}
