//! Cost of a large hash: memory per field, time per command, and the slowest single command.
//!
//!     cargo run --release -p tiermem-store --example hash_cost -- [FIELDS]
//!
//! Commands run in process, without sockets. Fields of 12 bytes get values of 16 bytes. Times are
//! processor times, so other programs do not count; they include about 300 ns for reading that clock.
#![forbid(unsafe_code)]

use std::time::Duration;

use tiermem_store::command::{Context, HANDLERS, Output, Resolved};
use tiermem_store::config::StoreConfig;
use tiermem_store::engine::Engine;
use tiermem_store::host::{Host, Session};
use tiermem_store::resp::{Limits, Parser};
use tiermem_sys::cpu_time::thread_cpu_time;

const LIMITS: Limits = Limits { bulk_bytes_max: 1 << 20, request_bytes_max: 1 << 20, unauthenticated: false };
/// Commands that took longer than this are counted.
const STALL: Duration = Duration::from_millis(1);

struct Client {
    engine: Engine,
    session: Session,
    host: Host,
    output: Output,
}

impl Client {
    fn ask(&mut self, words: &[&str]) -> Duration {
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words {
            bytes += &format!("${}\r\n{word}\r\n", word.len());
        }
        let mut parser = Parser::default();
        let parsed = parser.parse(bytes.as_bytes(), &LIMITS);
        assert!(parsed.is_ok(), "{parsed:?}");
        let start = thread_cpu_time();
        let Client { engine, session, host, output } = self;
        let args = parser.args(bytes.as_bytes());
        let _ = Resolved::of(args)
            .execute(&mut Context { engine, session, output, host, handlers: &HANDLERS }, args);
        let taken = thread_cpu_time() - start;
        assert_ne!(self.output.plain().and_then(<[u8]>::first), Some(&b'-'), "an error");
        self.output.clear(&mut self.engine);
        taken
    }

    /// Runs a command for each field and prints how long it took: in the mean, and the stalls.
    fn all(&mut self, name: &str, fields: u64, words: impl Fn(u64) -> Vec<String>) {
        let (mut total, mut longest, mut stalls) = (Duration::ZERO, Vec::new(), 0u32);
        for field in 0..fields {
            let words = words(field);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let taken = self.ask(&words);
            total += taken;
            stalls += u32::from(taken > STALL);
            longest.push(taken);
            if longest.len() > 4096 {
                longest.sort_by(|a, b| b.cmp(a));
                longest.truncate(8);
            }
        }
        longest.sort_by(|a, b| b.cmp(a));
        let longest: Vec<String> =
            longest.iter().take(8).map(|it| format!("{:.2}", it.as_secs_f64() * 1e3)).collect();
        let mean_ns = total.as_nanos() / u128::from(fields.max(1));
        println!("{name}: {mean_ns} ns each, {stalls} above 1 ms, the longest in ms: {}", longest.join(" "));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let fields: u64 = std::env::args().nth(1).map_or(Ok(1_000_000), |count| count.parse())?;
    let config = StoreConfig {
        tiers: vec!["dram=2GiB".parse()?],
        max_value: tiermem_base::Bytes(512 << 20),
        ..StoreConfig::default()
    };
    let host = Host { reply_bytes_max: 1 << 30, ..Host::default() };
    let mut client = Client {
        engine: Engine::new(config.engine_config(1)?)?,
        session: host.new_session(1),
        host,
        output: Output::default(),
    };
    let field = |number: u64| format!("f{:011}", number.wrapping_mul(7919) % fields);
    let hset = |value: &'static str| {
        move |number| vec!["HSET".to_owned(), "h".to_owned(), field(number), format!("{value}{number:010}")]
    };
    client.all("HSET, new fields", fields, hset("value-"));
    let bytes = client.engine.keyspace().memory_usage(0, b"h").unwrap_or(0);
    println!(
        "{fields} fields: {bytes} bytes, {:.1} a field, of which 28 are name and value",
        bytes as f64 / fields as f64
    );
    client.all("HGET", fields, |number| vec!["HGET".into(), "h".into(), field(number)]);
    client.all("HSET, as long", fields, hset("again-"));
    client.all("HSET, longer by 1", fields, hset("longer-"));
    client.all("HSET, shorter by 1", fields, hset("other-"));
    client.all("HINCRBY, new field", 1000, |number| {
        vec!["HINCRBY".into(), "h".into(), format!("n{number}"), "1".into()]
    });
    client.all("HPEXPIRE", fields, |number| {
        ["HPEXPIRE", "h", "100000000", "FIELDS", "1", &field(number)].map(str::to_owned).to_vec()
    });
    client.all("HDEL", fields - 1, |number| vec!["HDEL".into(), "h".into(), field(number)]);
    Ok(())
}
