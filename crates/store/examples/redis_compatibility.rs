//! Prints `docs/redis-compatibility.md`; `make docs` writes it.

fn main() {
    print!("{}", tiermem_store::command::compatibility());
}
