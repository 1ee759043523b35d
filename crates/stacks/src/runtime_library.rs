//! The one frame of a stack that is its site: the innermost one that is not the run-time library's.
//!
//! `memset` touches memory, and `malloc` and `operator new` do; the program wants to know who called them. So frames are passed over
//!
//! - in files of the C, C++ and OpenMP libraries, the loader, and allocators;
//! - of source files of the C++ and Rust libraries, which are inlined into the program;
//! - of functions of these by their names, for programs that are linked statically, and of Go's packages `runtime`.

use crate::Frame;

/// How the names of such files begin; a version may follow, or the end.
const FILES: &[&str] = &[
    "ld-linux",
    "ld-musl",
    "ld-2.",
    "libc",
    "libm",
    "libmvec",
    "libpthread",
    "librt",
    "libdl",
    "libgcc_s",
    "libstdc++",
    "libc++",
    "libc++abi",
    "libgomp",
    "libomp",
    "libiomp5",
    "libjemalloc",
    "libtcmalloc",
    "libtcmalloc_minimal",
    "libmimalloc",
    "libhoard",
];
/// What the paths of source files have in them.
const SOURCES: &[&str] =
    &["/include/c++/", "/rustc/", "/library/alloc/src/", "/library/core/src/", "/library/std/src/"];
/// Functions of the C library, where they are linked into the program.
const FUNCTIONS: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "free",
    "memset",
    "memcpy",
    "memmove",
    "bzero",
    "sysmalloc",
    "_int_malloc",
    "_int_realloc",
    "_int_memalign",
    "_int_free",
    "malloc_consolidate",
    "ptmalloc_init",
    "tcache_init",
    "read",
    "__read",
    "pread64",
    "fread",
    "strcpy",
    "strdup",
    "clear_page",
    "alloc_perturb",
];
/// How names of functions begin.
const PREFIXES: &[&str] = &[
    "__memset_",
    "__memcpy_",
    "__memmove_",
    "__libc_",
    "__GI_",
    "_IO_",
    "operator new",
    "operator delete",
    "runtime.",
    "internal/runtime/",
    "alloc::",
    "core::",
    "std::",
    "<alloc::",
    "<core::",
    "<std::",
    "__rust_",
    "__rustc",
    "__rdl_",
    "__gnu_cxx::",
    "compiler_builtins::",
];

/// Whether a frame is the run-time library's.
fn is_runtime(frame: &Frame) -> bool {
    let is_file = frame.module.as_deref().is_some_and(|path| {
        let name = path.rsplit('/').next().unwrap_or(path);
        FILES.iter().any(|file| {
            let rest = name.strip_prefix(file);
            rest.is_some_and(|rest| file.ends_with('.') || rest.is_empty() || rest.starts_with(['.', '-']))
        })
    });
    let is_source =
        frame.file.as_deref().is_some_and(|path| SOURCES.iter().any(|source| path.contains(source)));
    let is_function = frame.function.as_deref().is_some_and(|name| {
        // Rust has a type before, as in `<T as alloc::slice::Of>::of`.
        let name = name.split_once(" as ").map_or(name, |(_, of)| of);
        FUNCTIONS.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    });
    is_file || is_source || is_function
}

/// Which of a stack's frames, the innermost first, is its site, and whether it is the run-time library's for want of another: then it is
/// the innermost. `None` if there is no frame.
pub fn site_of(frames: &[Frame]) -> Option<(usize, bool)> {
    match frames.iter().position(|frame| !is_runtime(frame)) {
        Some(site) => Some((site, false)),
        None => (!frames.is_empty()).then_some((0, true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(module: &str, function: &str, file: &str) -> Frame {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Frame { function: text(function), file: text(file), line: None, module: text(module), offset: 0 }
    }

    fn site(frames: &[(&str, &str, &str)]) -> Option<usize> {
        let frames: Vec<Frame> = frames.iter().map(|(a, b, c)| frame(a, b, c)).collect();
        site_of(&frames).map(|(site, _)| site)
    }

    #[test]
    fn the_run_time_library_is_passed_over() {
        for module in [
            "/usr/lib/x86_64-linux-gnu/libc.so.6",
            "/lib/ld-musl-x86_64.so.1",
            "/lib64/ld-linux-x86-64.so.2",
            "/lib/libc-2.31.so",
            "/usr/lib/libstdc++.so.6.0.33",
            "/opt/libjemalloc.so.2",
            "/usr/lib/libgomp.so.1",
        ] {
            assert_eq!(site(&[(module, "x", ""), ("/app", "fill", "a.c")]), Some(1), "{module}");
        }
        for module in ["/usr/lib/libcrypto.so.3", "/usr/lib/libmagic.so.1", "/app", "/usr/lib/libcurl.so"] {
            assert_eq!(site(&[(module, "x", ""), ("/app", "fill", "a.c")]), Some(0), "{module}");
        }
    }

    #[test]
    fn what_is_inlined_or_linked_statically_is_passed_over_too() {
        for (function, file) in [
            ("std::fill<char>", "/usr/include/c++/14/bits/stl_algobase.h"),
            ("grow", "/rustc/0a1b/library/alloc/src/raw_vec.rs"),
            ("<T as alloc::vec::spec_from_elem::SpecFromElem>::from_elem", ""),
            ("<u8 as alloc::vec::From>::from", ""),
            ("runtime.mallocgc", "/usr/local/go/src/runtime/malloc.go"),
            ("internal/runtime/maps.(*table).reset", "/usr/local/go/src/internal/runtime/maps/table.go"),
            ("__memset_avx2_unaligned_erms", ""),
            ("operator new(unsigned long)", ""),
            ("malloc", ""),
        ] {
            assert_eq!(site(&[("/app", function, file), ("/app", "main", "a.c")]), Some(1), "{function}");
        }
        for function in ["malloc_state", "stdio", "runtimes", "my::std::f", "<app::T as app::Fill>::fill"] {
            assert_eq!(site(&[("/app", function, ""), ("/app", "main", "")]), Some(0), "{function}");
        }
    }

    #[test]
    fn where_there_is_nothing_else_the_innermost_frame_is_told() {
        assert_eq!(site(&[("/lib/libc.so.6", "memset", ""), ("/lib/libc.so.6", "start", "")]), Some(0));
        assert_eq!(site(&[("", "", "")]), Some(0));
        assert_eq!(site(&[]), None);
        assert_eq!(site_of(&[frame("/lib/libc.so.6", "memset", "")]), Some((0, true)));
        assert_eq!(site_of(&[frame("/app", "main", "")]), Some((0, false)));
    }
}
