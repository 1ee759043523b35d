//! Touches the pages that it is told to, one at a time, and stops until it is told the next one.
#![forbid(unsafe_code)]

use std::io::{self, BufRead};
use std::process::exit;

use tiermem_workloads::{PAGE_BYTES, PageSize, settings};

const PAGE_WORDS: usize = PAGE_BYTES as usize / 8;

fn main() {
    let [pages] = settings(
        "Reserves memory, prints the address of its first page, and reads numbers of pages, one a line. The first time it \
         writes to the page, later it checks what it wrote. Then it prints the number, and stops until the next line. Exits with 1 if a \
         page held something else.",
        [("pages", 10_240, "pages of 4 KiB")],
    );
    if let Err(error) = PageSize::Small.ask() {
        eprintln!("gated: cannot ask for the size of pages: {error}");
        exit(1);
    }
    let count = pages.max(1) as usize;
    // None of it is touched before it is told.
    let mut words = vec![0_u64; (count + 1) * PAGE_WORDS];
    let begin = words.as_ptr().addr();
    let before = (begin.next_multiple_of(PAGE_BYTES as usize) - begin) / 8;
    let mut touched = vec![false; count];
    println!("{:x}", begin + before * 8);
    for line in io::stdin().lock().lines() {
        let Some(page) = line.ok().and_then(|line| line.parse::<usize>().ok()).filter(|page| *page < count)
        else {
            eprintln!("gated: a line is the number of a page, less than {count}");
            exit(2);
        };
        let word = &mut words[before + page * PAGE_WORDS];
        // One access, so that the kernel has one page fault to answer: reading first would map the page of zeros.
        let wanted = page as u64 + 1;
        if !std::mem::replace(&mut touched[page], true) {
            *word = wanted;
        } else if *word != wanted {
            eprintln!("gated: page {page} holds {} instead of {wanted}", *word);
            exit(1);
        }
        println!("{page}");
    }
}
