//! Differential test against a real Redis: the same requests must get the same bytes as replies.
//!
//! Skipped, with a message, where no redis-server is installed.

mod common;

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::Client;
use tiermem_base::Rng;

/// Commands per seed.
const COMMANDS: usize = 6000;

struct Redis {
    process: Child,
    directory: PathBuf,
}

impl Redis {
    /// Starts a redis-server on a unix socket of its own.
    fn start(name: &str) -> Option<(Redis, Client<UnixStream>)> {
        let directory = std::env::temp_dir().join(format!("tiermem-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory for the socket");
        let socket = directory.join("s");
        let process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .current_dir(&directory)
            .stdout(Stdio::null())
            .spawn();
        let redis = match process {
            Ok(process) => Redis { process, directory },
            Err(error) => {
                eprintln!("skipped: redis-server cannot be started here ({error})");
                return None;
            }
        };
        for _ in 0..4800 {
            if let Ok(stream) = UnixStream::connect(&socket) {
                stream.set_read_timeout(Some(common::PATIENCE)).expect("a timeout");
                return Some((redis, Client { stream: std::io::BufReader::new(stream) }));
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        panic!("redis-server does not listen");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn one_of<'a>(rng: &mut Rng, choices: &[&'a str]) -> &'a str {
    choices[rng.below(choices.len() as u64) as usize]
}

/// Forms of commands: a word of one letter is replaced by a random argument of its kind ([`command`]).
const FORMS: &[&str] = &[
    "GET k",
    "GET k",
    "SET k v",
    "SET k v",
    "SET k v O",
    "SET k v O O",
    "SET k v O O O",
    "GETEX k",
    "GETEX k O",
    "GETEX k O O",
    "GETEX k PERSIST",
    "GETDEL k",
    "GETSET k v",
    "SETNX k v",
    "SETEX k t v",
    "PSETEX k t v",
    "MGET k k k",
    "MSET k v k v",
    "MSET k v k",
    "MSETNX k v k v",
    "INCR k",
    "DECR k",
    "INCRBY k i",
    "DECRBY k i",
    "INCRBYFLOAT k f",
    "INCRBYFLOAT k f",
    "APPEND k v",
    "STRLEN k",
    "GETRANGE k i i",
    "SUBSTR k i i",
    "SETRANGE k r v",
    "DEL k k",
    "UNLINK k",
    "EXISTS k k k",
    "TOUCH k k",
    "TYPE k",
    "EXPIRE k t",
    "EXPIRE k t w",
    "PEXPIRE k t w w",
    "EXPIREAT k a",
    "PEXPIREAT k a w",
    "TTL k",
    "EXPIRETIME k",
    "PEXPIRETIME k",
    "PERSIST k",
    "DBSIZE",
    "ECHO v",
    "PING",
    "PING v",
    "SELECT d",
    "TYPE k k",
    "FOO k v",
    "v k",
    "SCAN 0 COUNT i",
    "SCAN i k",
    "FLUSHDB",
    "FLUSHALL w",
    "OBJECTS k",
    "CLIENT GETNAME",
    "CLIENT SETNAME v",
    "CLIENT v",
    "CONFIG v v",
    "MEMORY USAGE nosuchkey",
    "MEMORY USAGE nosuchkey SAMPLES i",
    "MEMORY v",
    "HELLO v",
    "HELLO 3 v",
    "AUTH v",
    "AUTH v v",
    "AUTH default v",
    "COMMAND v",
    "SCAN 0 MATCH g COUNT 1000",
    "SCAN 0 COUNT 1000 TYPE v",
    "SCAN 0 COUNT 1000 TYPE hash",
];
/// Forms of the hash commands.
const HASH_FORMS: &[&str] = &[
    "HSET h F v",
    "HSET h F v F v F v",
    "HSET h F i F f",
    "HSET h F v F",
    "HSETNX h F v",
    "HMSET h F v F v",
    "HGET h F",
    "HMGET h F F F",
    "HGETALL h",
    "HDEL h F",
    "HDEL h F F",
    "HDEL h F F F F F F",
    "HLEN h",
    "HEXISTS h F",
    "HKEYS h",
    "HVALS h",
    "HSTRLEN h F",
    "HINCRBY h F i",
    "HINCRBY h F i",
    "HINCRBYFLOAT h F f",
    "HINCRBYFLOAT h F f",
    "HSCAN h 0 COUNT 1000",
    "HSCAN h 0 MATCH g COUNT 1000",
    "HSCAN nosuch i",
    "HSCAN h 0 COUNT i",
    "HSCAN h 0 v v",
    "HRANDFIELD h 1000",
    "HRANDFIELD h 1000 WITHVALUES",
    "HRANDFIELD h 1000 v",
    "HRANDFIELD h 0",
    "HRANDFIELD nosuch i",
    "HRANDFIELD nosuch",
    "HRANDFIELD nosuch i WITHVALUES",
    "TYPE h",
    "DEL h",
    "EXPIRE h t",
    "TTL h",
    "GET h",
    "SET h v",
    "APPEND h v",
    "MGET h k h",
    "STRLEN h",
    "INCR h",
    "SETRANGE h r v",
    "GETEX h",
    "MSETNX h v k v",
];

/// Random arguments for one supported command; sometimes one too many or too few.
fn command(rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut args: Vec<Vec<u8>> = Vec::new();
    let forms = if rng.below(3) == 0 { HASH_FORMS } else { FORMS };
    for word in one_of(rng, forms).split(' ') {
        match word {
            "h" if rng.below(30) == 0 => args.push(b"key1".to_vec()),
            "h" => args.push(format!("hash{}", rng.below(4)).into_bytes()),
            "F" => args.push(one_of(rng, &["a", "b", "c", "", "1", "field", "x y"]).into()),
            "k" => args.push(format!("key{}", rng.below(6)).into_bytes()),
            "v" => args.push(value(rng)),
            "i" => args.push(integer(rng).into()),
            "f" => args.push(float(rng).into_bytes()),
            "r" => {
                args.push(one_of(rng, &["0", "1", "5", "10", "-1", "999999999999", "x", "536870912"]).into())
            }
            "t" => {
                // In milliseconds too no key's time ends meanwhile: a busy machine may keep the same request from the two servers
                // for seconds.
                let far = ["1000000", "100000000"];
                args.push(one_of(rng, &[far[0], far[1], "0", "-5", "x", "9223372036854775807", "1.5"]).into())
            }
            "a" => args.push(one_of(rng, &["1", "99999999999", "0", "-1", "9223372036854775807", ""]).into()),
            "w" => args.push(one_of(rng, &["nx", "XX", "Gt", "lt", "async", "sync", "zz"]).into()),
            "d" => args.push(one_of(rng, &["0", "0", "0", "1", "15", "16", "-1", "x", "99999999999"]).into()),
            "g" => {
                args.push(one_of(rng, &["*", "key?", "key[0-2]", "key[^1]", "x*", "", "\\k*", "[k"]).into())
            }
            "O" => option(rng, &mut args),
            _ => args.push(word.into()),
        }
    }
    match rng.below(40) {
        0 => args.push(b"extra".to_vec()),
        1 if args.len() > 1 => drop(args.pop()),
        _ => {}
    }
    args
}

fn integer(rng: &mut Rng) -> &'static str {
    one_of(
        rng,
        &[
            "0",
            "1",
            "-1",
            "2",
            "-3",
            "100",
            "+1",
            " 1",
            "1 ",
            "01",
            "-0",
            "x",
            "",
            "9223372036854775807",
            "-9223372036854775808",
            "9223372036854775808",
            "5000000000000000000",
        ],
    )
}

fn float(rng: &mut Rng) -> String {
    let fixed = [
        "0.1",
        "3.0",
        "-1.5",
        "1e3",
        "1E-5",
        "inf",
        "-inf",
        "nan",
        "x",
        "",
        " 1",
        "1 ",
        "5e",
        ".5",
        "5.",
        "+2",
        "1e400",
        "1e4931",
        "1e-30",
        "123456789.123456789",
        "0.30000000000000004",
        "1e5000",
        "infinity",
    ];
    match rng.below(3) {
        0 => one_of(rng, &fixed).to_owned(),
        1 => format!("{}.{}", rng.below(100_000), rng.below(1_000_000)),
        _ => format!("-{}.{:05}e{}", rng.below(1000), rng.below(100_000), rng.below(8)),
    }
}

fn value(rng: &mut Rng) -> Vec<u8> {
    match rng.below(8) {
        0 => integer(rng).into(),
        1 => float(rng).into_bytes(),
        2 => b"bin\0\r\n'\"\xff".to_vec(),
        3 => vec![b'x'; rng.below(300) as usize],
        4 if rng.below(8) == 0 => vec![b'y'; 40_000],
        _ => one_of(rng, &["", "hello", "10", "12.5", "NX", "get", "USAGE", "info", "list"]).into(),
    }
}

fn option(rng: &mut Rng, args: &mut Vec<Vec<u8>>) {
    let option = one_of(rng, &["NX", "xx", "GET", "KEEPTTL", "EX", "PX", "EXAT", "PXAT", "PERSIST", "zz"]);
    args.push(option.into());
    let number = match option {
        "EX" | "PX" => one_of(rng, &["1000000", "100000000", "0", "-1", "x", "9223372036854775807"]),
        "EXAT" => one_of(rng, &["99999999999", "1", "0"]),
        "PXAT" => one_of(rng, &["99999999999999", "1", "x"]),
        _ => return,
    };
    args.push(number.into());
}

/// Whether two replies may differ by the time that passed between them or by the order of a hash table.
fn equal(name: &str, ours: &[u8], theirs: &[u8]) -> bool {
    if ours == theirs {
        return true;
    }
    let number =
        |reply: &[u8]| std::str::from_utf8(reply).ok()?.strip_prefix(':')?.trim().parse::<i64>().ok();
    match name.to_ascii_uppercase().as_str() {
        "TTL" | "EXPIRETIME" | "PEXPIRETIME" | "PTTL" => {
            let (Some(ours), Some(theirs)) = (number(ours), number(theirs)) else { return false };
            ours > 0 && theirs > 0 && (ours - theirs).abs() <= 60_000
        }
        // Keys past their time count until they are collected, in both.
        "DBSIZE" => {
            let (Some(ours), Some(theirs)) = (number(ours), number(theirs)) else { return false };
            (ours - theirs).abs() <= 3
        }
        // Redis keeps the order only of short hashes with short values.
        "SCAN" | "HSCAN" | "HGETALL" | "HKEYS" | "HVALS" | "HRANDFIELD" => {
            let lines = |reply: &[u8]| {
                let mut lines: Vec<_> = reply.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
                lines.sort();
                lines
            };
            lines(ours) == lines(theirs)
        }
        _ => false,
    }
}

#[test]
fn random_commands_get_redis_replies() {
    let Some((_redis, mut theirs)) = Redis::start("random") else { return };
    let server = common::start(|_| ());
    let mut ours = server.client();
    // The same sequence every time; another seed is another test.
    for seed in 1..=3 {
        let mut rng = Rng::seeded(seed);
        for number in 0..COMMANDS {
            let args = command(&mut rng);
            let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            let name = String::from_utf8_lossy(args[0]).into_owned();
            // What Redis cannot be asked, or what is ours by intention.
            if skipped(&args) {
                continue;
            }
            let (our_reply, their_reply) = (ours.ask(&args), theirs.ask(&args));
            assert!(
                equal(&name, &our_reply, &their_reply),
                "seed {seed}, command {number}: {:?}\nours   {:?}\ntheirs {:?}",
                args.iter().map(|arg| String::from_utf8_lossy(arg)).collect::<Vec<_>>(),
                String::from_utf8_lossy(&our_reply),
                String::from_utf8_lossy(&their_reply)
            );
        }
        assert_eq!(ours.words("FLUSHALL"), theirs.words("FLUSHALL"));
    }
}

/// Replies that describe the server itself differ by intention, and so does the protocol's version in `HELLO`.
fn skipped(args: &[&[u8]]) -> bool {
    let is = |at: usize, word: &str| {
        args.get(at).is_some_and(|arg: &&[u8]| arg.eq_ignore_ascii_case(word.as_bytes()))
    };
    (is(0, "hello") && args.len() < 3 && !is(1, "x"))
        || is(0, "info")
        || (is(0, "client") && (is(1, "info") || is(1, "list")))
        || (is(0, "command") && (args.len() == 1 || is(1, "info") || is(1, "list")))
        || is(0, "list")
        // Without a count it is any field.
        || (is(0, "hrandfield") && args.len() == 2 && !is(1, "nosuch"))
        || (is(0, "scan") && (args.len() == 2 || is(2, "count")))
}

#[test]
fn errors_read_as_redis_writes_them() {
    let Some((_redis, mut theirs)) = Redis::start("errors") else { return };
    let server = common::start(|_| ());
    let mut ours = server.client();
    for words in [
        "GET",
        "GET a b",
        "get",
        "CLIENT",
        "CLIENT ID x",
        "CLIENT GETNAME x",
        "CLIENT NOSUCH",
        "client setname a\nb",
        "CLIENT NO-EVICT maybe",
        "CLIENT NO-EVICT on",
        "CONFIG",
        "CONFIG SET",
        "CONFIG SET a",
        "CONFIG SET nosuch 1",
        "CONFIG SET port 1 x",
        "CONFIG SET databases 3",
        "CONFIG GET save",
        "CONFIG GET appendonly",
        "CONFIG GET nosuch*",
        "CONFIG GET DataBase?",
        "CONFIG NOSUCH x",
        "CONFIG SET maxmemory-policy noeviction maxmemory-policy noeviction",
        "CONFIG SET maxmemory-policy noeviction",
        "CONFIG GET maxmemory-policy",
        "MEMORY",
        "MEMORY USAGE",
        "MEMORY NOSUCH x",
        "COMMAND NOSUCH",
        "COMMAND COUNT x",
        "COMMAND INFO nosuch",
        "HELLO 4",
        "HELLO x",
        "HELLO 2 SETNAME",
        "HELLO 2 AUTH a",
        "HELLO 2 NOSUCH",
        "HELLO 2 AUTH a b",
        "AUTH a",
        "AUTH a b",
        "AUTH a b c",
        "AUTH default x",
        "SELECT",
        "SELECT 16",
        "ECHO",
        "PING a b",
        "EXPIRE a 1 NX XX",
        "EXPIRE a 1 GT LT",
        "EXPIRE a 1 FOO",
        "SCAN x",
        "SCAN 0 COUNT 0",
        "SCAN 0 COUNT x",
        "SCAN 0 NOSUCH 1",
        "SCAN 0 COUNT",
        "SCAN -1 COUNT 1000",
        "FLUSHALL NOSUCH",
        "FLUSHALL SYNC ASYNC",
        "RESET",
        "RESET x",
        "TIME x",
        "DBSIZE x",
        "SET a b EX",
        "SET a b EX 0",
        "SET a b NX XX",
        "SUBSTR a",
        "QUIT",
    ] {
        assert_eq!(ours.words(words), theirs.words(words), "{words}");
    }
    assert!(ours.is_closed() && theirs.is_closed());
}

#[test]
fn broken_requests_end_as_in_redis() {
    let Some((redis, _)) = Redis::start("broken") else { return };
    let server = common::start(|_| ());
    let long = "x".repeat(70_000);
    for (bytes, closes) in [
        ("*x\r\n", true),
        ("*9999999999\r\n", true),
        ("*1\r\nx\r\n", true),
        ("*1\r\n\r\n", true),
        ("*1\r\n$x\r\n", true),
        ("*1\r\n$-1\r\n", true),
        ("*1\r\n$999999999999\r\n", true),
        ("set a \"b\r\n", true),
        ("set a 'b'c\r\n", true),
        (long.as_str(), true),
        (&format!("*1\r\n${long}"), true),
        (&format!("*{long}"), true),
        ("\r\n\r\nPING\r\n", false),
        ("*0\r\n*-1\r\nPING\r\n", false),
        ("set \"k\\x41\" 'v w'\nget kA\n", false),
    ] {
        let mut ours = server.client();
        let stream = UnixStream::connect(redis.directory.join("s")).expect("redis accepts");
        stream.set_read_timeout(Some(common::PATIENCE)).expect("a timeout");
        let mut theirs = Client { stream: std::io::BufReader::new(stream) };
        let shown = &bytes[..bytes.len().min(40)];
        ours.send(bytes.as_bytes());
        theirs.send(bytes.as_bytes());
        assert_eq!(
            String::from_utf8_lossy(&ours.reply()),
            String::from_utf8_lossy(&theirs.reply()),
            "{shown:?}"
        );
        if closes {
            assert!(ours.is_closed() && theirs.is_closed(), "{shown:?}");
        }
    }
}
