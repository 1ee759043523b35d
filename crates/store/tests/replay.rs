//! Replay client against a small server in this process, well-behaved and not.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use tiermem_base::{Access, Op};
use tiermem_live::Pace;
use tiermem_store::replay::{Address, Options, Outcome, ReplayError, run};

#[derive(Default)]
struct State {
    values: BTreeMap<Vec<u8>, usize>,
    password: Option<&'static str>,
    tiers: bool,
    refuse_sets: bool,
    gets: u64,
    hits: u64,
    sets: u64,
}

fn read_command(input: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let mut number = |kind: char| {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        line.trim().strip_prefix(kind)?.parse::<usize>().ok()
    };
    let count = number('*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        let mut word = vec![0; line.trim().strip_prefix('$')?.parse::<usize>().ok()? + 2];
        input.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Some(words)
}

fn answer(state: &mut State, words: &[Vec<u8>], logged_in: &mut bool) -> Vec<u8> {
    let word = |n: usize| String::from_utf8_lossy(&words[n]).into_owned();
    if word(0) == "AUTH" {
        *logged_in = state.password == Some(word(1).as_str());
        return if *logged_in { b"+OK\r\n".to_vec() } else { b"-WRONGPASS invalid password\r\n".to_vec() };
    }
    if state.password.is_some() && !*logged_in {
        return b"-NOAUTH Authentication required.\r\n".to_vec();
    }
    match word(0).as_str() {
        "PING" => b"+PONG\r\n".to_vec(),
        "INFO" => {
            let text = match state.tiers {
                true => format!("# Tiers\r\ntier0:name=dram,kind=dram,hits={},promotions=0\r\n", state.hits),
                false => String::new(),
            };
            format!("${}\r\n{text}\r\n", text.len()).into_bytes()
        }
        "GET" => {
            state.gets += 1;
            match state.values.get(&words[1]) {
                Some(size) => {
                    state.hits += 1;
                    format!("${size}\r\n{}\r\n", "v".repeat(*size)).into_bytes()
                }
                None => b"$-1\r\n".to_vec(),
            }
        }
        "SET" if state.refuse_sets => b"-OOM no room\r\n".to_vec(),
        "SET" => {
            state.sets += 1;
            state.values.insert(words[1].clone(), words[2].len());
            b"+OK\r\n".to_vec()
        }
        "DEL" => format!(":{}\r\n", usize::from(state.values.remove(&words[1]).is_some())).into_bytes(),
        other => panic!("the client sent {other}"),
    }
}

/// Serves until the test ends.
fn serve(state: State) -> (Address, Arc<Mutex<State>>) {
    let state = Arc::new(Mutex::new(state));
    let shared = state.clone();
    let to = listen(move |mut stream| {
        let mut input = BufReader::new(stream.try_clone().unwrap());
        let mut logged_in = false;
        while let Some(words) = read_command(&mut input) {
            let reply = answer(&mut shared.lock().unwrap(), &words, &mut logged_in);
            if stream.write_all(&reply).is_err() {
                break;
            }
        }
    });
    (to, state)
}

/// Runs `serve` on a thread for each connection.
fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Address::Tcp(listener.local_addr().unwrap().to_string());
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, serve) = (stream.unwrap(), serve.clone());
            std::thread::spawn(move || serve(stream));
        }
    });
    to
}

fn options(to: Address) -> Options {
    Options {
        to,
        connections: 3,
        pace: Pace::Closed,
        pipeline: 4,
        auth: None,
        requests: None,
        value_scale: 1.0,
    }
}

fn replay(options: &Options, trace: Vec<Access>) -> Result<Outcome, ReplayError> {
    run(options, trace.into_iter().map(Ok::<_, Infallible>), &mut |_| {})
}

fn keys(count: u64, distinct: u64) -> Vec<Access> {
    (0..count).map(|n| Access::get(n, n * n % distinct, 100)).collect()
}

#[test]
fn a_miss_sets_the_value_and_the_next_look_up_hits() {
    let (to, state) = serve(State { tiers: true, ..Default::default() });
    let trace = keys(2000, 101);
    let distinct =
        trace.iter().map(|access| access.key).collect::<std::collections::HashSet<_>>().len() as u64;
    let outcome = replay(&options(to), trace).unwrap();
    assert_eq!((outcome.requests, outcome.gets, outcome.errors), (2000, 2000, 0));
    // Each key misses exactly once, though the pipeline could hold several look-ups of it.
    assert_eq!(outcome.hits, 2000 - distinct);
    assert_eq!(outcome.latency_ns.len(), 2000);
    assert!(outcome.latency_us(0.5) > 1.0 && outcome.latency_us(0.5) <= outcome.latency_us(0.999));
    let tiers = outcome.tiers.unwrap();
    assert_eq!((tiers[0].name.as_str(), tiers[0].hits), ("dram", outcome.hits));
    let state = state.lock().unwrap();
    assert_eq!((state.gets, state.sets), (2000, distinct));
    assert!(state.values.values().all(|size| *size == 100));
}

#[test]
fn writes_and_deletions_go_through_and_sizes_scale() {
    let (to, state) = serve(State::default());
    let access = |op, key, size| Access::new(0, op, key, size);
    let trace =
        vec![access(Op::Set, 1, 10), access(Op::Set, 2, 30), access(Op::Del, 1, 0), access(Op::Get, 2, 0)];
    let outcome = replay(&Options { value_scale: 1.5, ..options(to) }, trace).unwrap();
    assert_eq!((outcome.requests, outcome.gets, outcome.hits), (4, 1, 1));
    assert_eq!(outcome.tiers, None);
    let values = &state.lock().unwrap().values;
    assert_eq!(values.iter().collect::<Vec<_>>(), [(&b"key:0000000000000002".to_vec(), &45)]);
}

#[test]
fn large_values_pass_a_server_that_stops_reading_while_it_writes() {
    let (to, _) = serve(State::default());
    let trace = [keys(64, 8), keys(64, 8)].concat();
    let trace = trace.into_iter().map(|access| Access { size: 1 << 20, ..access }).collect();
    let outcome = replay(&Options { pipeline: 32, connections: 1, ..options(to) }, trace).unwrap();
    assert_eq!(outcome.requests, 128);
}

#[test]
fn a_limit_on_requests_is_kept() {
    let (to, _) = serve(State::default());
    let outcome = replay(&Options { requests: Some(77), ..options(to) }, keys(2000, 10)).unwrap();
    assert_eq!(outcome.requests, 77);
}

#[test]
fn errors_are_counted_and_the_first_is_kept() {
    let (to, _) = serve(State { refuse_sets: true, ..Default::default() });
    let outcome = replay(&options(to), keys(50, 50)).unwrap();
    assert_eq!((outcome.requests, outcome.hits, outcome.errors), (50, 0, 50));
    assert_eq!(outcome.first_error.as_deref(), Some("OOM no room"));
}

#[test]
fn passwords_are_given_and_asked_for() {
    let (to, _) = serve(State { password: Some("secret"), ..Default::default() });
    let with = |auth: Option<&str>| Options { auth: auth.map(str::to_owned), ..options(to.clone()) };
    assert_eq!(replay(&with(Some("secret")), keys(10, 3)).unwrap().requests, 10);
    assert!(matches!(replay(&with(Some("wrong")), keys(10, 3)), Err(ReplayError::Auth(_))));
    assert!(matches!(replay(&with(None), keys(10, 3)), Err(ReplayError::Auth(_))));
}

#[test]
fn a_server_that_is_not_there_is_named() {
    // No server listens on the port reserved for the multiplexer of RFC 1078.
    let to = Address::Tcp("127.0.0.1:1".to_owned());
    let error = replay(&options(to.clone()), keys(1, 1)).unwrap_err().to_string();
    assert!(error.contains(&to.to_string()), "{error}");
    let error = replay(&options(Address::Unix("/nonexistent/socket".into())), keys(1, 1)).unwrap_err();
    assert!(matches!(error, ReplayError::Connect { .. }));
}

#[test]
fn a_server_that_closes_or_talks_nonsense_is_told_apart() {
    let closes = listen(drop);
    assert!(matches!(
        replay(&options(closes), keys(9, 9)),
        Err(ReplayError::Closed { .. } | ReplayError::Io(_))
    ));
    let nonsense = listen(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let _ = stream.read(&mut [0; 1000]);
    });
    assert!(matches!(replay(&options(nonsense), keys(9, 9)), Err(ReplayError::Garbage(_))));
    // Well-formed, but no answer to what was asked.
    let confused = listen(|mut stream| {
        let mut input = BufReader::new(stream.try_clone().unwrap());
        while let Some(words) = read_command(&mut input) {
            let reply: &[u8] = if words[0] == b"INFO" { b"$0\r\n\r\n" } else { b"+PONG\r\n" };
            let _ = stream.write_all(reply);
        }
    });
    assert!(matches!(
        replay(&options(confused), keys(9, 9)),
        Err(ReplayError::Unexpected { command: "GET", .. })
    ));
}

#[test]
fn a_broken_trace_ends_the_replay_with_its_reason() {
    let (to, _) = serve(State::default());
    let trace = vec![Ok(Access::get(0, 1, 1)), Err(std::io::Error::other("line 2 is broken"))];
    let error = run(&options(to), trace.into_iter(), &mut |_| {}).unwrap_err();
    assert!(matches!(&error, ReplayError::Trace(reason) if reason.to_string() == "line 2 is broken"));
}

#[test]
fn an_open_loop_keeps_its_times() {
    let (to, state) = serve(State::default());
    let open = Options { pace: Pace::Rate(2000.0), ..options(to.clone()) };
    let outcome = replay(&open, keys(600, 50)).unwrap();
    assert_eq!((outcome.requests, outcome.gets), (600, 600));
    assert_eq!(state.lock().unwrap().gets, 600);
    // The last is due after 599 steps; how much later it is answered is the machine's affair.
    assert!(outcome.elapsed.as_secs_f64() >= 599.0 / 2000.0, "{:?}", outcome.elapsed);

    // A trace over 400 ms at twice its pace, which begins at some time of its own.
    let trace: Vec<_> = (0..5).map(|n| Access::get(7_000_000_000 + n * 100_000_000, n, 10)).collect();
    let outcome = replay(&Options { pace: Pace::Speed(2.0), ..options(to) }, trace).unwrap();
    assert_eq!(outcome.requests, 5);
    assert!(outcome.elapsed.as_secs_f64() >= 0.2, "{:?}", outcome.elapsed);
}

/// The server stands still for the first request; the others were due meanwhile, and their latency says so.
#[test]
fn a_pause_counts_for_all_who_were_due_in_it() {
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(300);
    let quiet = Arc::new(Mutex::new(true));
    let to = listen(move |mut stream| {
        let mut input = BufReader::new(stream.try_clone().unwrap());
        while let Some(words) = read_command(&mut input) {
            let reply: &[u8] = match words[0].as_slice() {
                b"PING" => b"+PONG\r\n",
                b"GET" => {
                    if std::mem::take(&mut *quiet.lock().unwrap()) {
                        std::thread::sleep(PAUSE);
                    }
                    b"$1\r\nv\r\n"
                }
                _ => b"-ERR\r\n",
            };
            if stream.write_all(reply).is_err() {
                break;
            }
        }
    });
    let trace = keys(300, 300);
    let open = Options { pace: Pace::Rate(1000.0), connections: 1, ..options(to) };
    let outcome = replay(&open, trace).unwrap();
    // Requests were due all through the pause: half of them in its first half, so they waited at least for the other.
    let half = PAUSE.as_nanos() as u64 / 2;
    assert!(outcome.latency_ns.value_at_quantile(0.52) >= half - half / 10, "{}", outcome.latency_us(0.52));
}
