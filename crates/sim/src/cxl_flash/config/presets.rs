//! Presets: the devices of the tables of Yang 2023. They have no link, as there. Their host is the default one, which waits; the
//! paper does not say whether its host does.

/// A named configuration.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// Its keys, in TOML.
    pub text: &'static str,
}

/// Each of them.
pub const PRESETS: [Preset; 4] = [
    Preset {
        name: "table3",
        about: "section 3.2: 8 channels x 8 ways, 512 MiB of cache, next-N; SLC and FIFO as in section 4",
        text: r#"
            host.link_latency = "0ns"
            host.link_gb_per_s = 0.0
            cache = { size = "512MiB", policy = "fifo", ways = "full" }
            prefetch.kind = "next-n"
            flash = { technology = "slc", channels = 8, ways = 8 }
        "#,
    },
    Preset {
        name: "table4",
        about: "section 4: 32 channels x 32 ways, SLC, FIFO, 8 GiB of cache, no prefetching",
        text: r#"
            host.link_latency = "0ns"
            host.link_gb_per_s = 0.0
            cache = { size = "8GiB", policy = "fifo", ways = "full" }
            flash = { technology = "slc", channels = 32, ways = 32 }
        "#,
    },
    Preset {
        name: "table6",
        about: "section 5: 8 channels x 8 ways, ULL, 64 MiB of cache, 16-way CFLRU",
        text: r#"
            host.link_latency = "0ns"
            host.link_gb_per_s = 0.0
            cache = { size = "64MiB", policy = "cflru", ways = 16, window = 0.5 }
            flash = { technology = "ull", channels = 8, ways = 8 }
        "#,
    },
    Preset { name: "cxl", about: "table6 behind a CXL link (the default)", text: "" },
];
