//! Tests of the blob against a map, and against bytes that are not a blob.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A hash in memory that is rebuilt when it has no room, as the engine does it.
#[derive(Clone, Default)]
struct Blob {
    bytes: Vec<u8>,
}

impl Blob {
    fn rebuild(&mut self, fields: usize, bytes: usize, now_ms: u64) {
        let size = plan(&self.bytes, fields, bytes, usize::MAX).unwrap().unwrap();
        // Slack as a size class leaves it.
        let mut new = vec![0xa5; size.len + size.len % 7];
        rebuild(&self.bytes, &mut new, size, 77, now_ms).unwrap();
        self.bytes = new;
    }

    fn change(&mut self, now_ms: u64, need: usize, change: impl Fn(&mut [u8]) -> Change) -> Change {
        if self.bytes.is_empty() {
            self.rebuild(1, need, now_ms);
        }
        match change(&mut self.bytes) {
            Change::NoRoom => {
                self.rebuild(1, need, now_ms);
                assert_eq!(room_for(&self.bytes, 1, need), Ok(true));
                let again = change(&mut self.bytes);
                assert_ne!(again, Change::NoRoom);
                again
            }
            changed => changed,
        }
    }

    fn set(&mut self, now_ms: u64, field: &[u8], value: &[u8], ttl: Ttl) -> Change {
        let need = entry_bytes(field.len(), value.len(), true);
        self.change(now_ms, need, |bytes| set(bytes, now_ms, field, value, ttl).unwrap())
    }

    fn hash(&self) -> Hash<'_> {
        Hash::read(&self.bytes).unwrap()
    }

    fn contents(&self, now_ms: u64) -> Map {
        let fields = self.hash().fields(now_ms).map(|field| {
            let field = field.unwrap();
            (field.name.to_vec(), (field.value.to_vec(), field.expires_ms))
        });
        fields.collect()
    }

    /// All fields by scanning from the start.
    fn scanned(&self, now_ms: u64, count: usize) -> Vec<Vec<u8>> {
        let (mut names, mut cursor) = (Vec::new(), 0);
        loop {
            cursor = self
                .hash()
                .scan(cursor, count, now_ms, &mut |field| names.push(field.name.to_vec()))
                .unwrap()
                .cursor;
            if cursor == 0 {
                return names;
            }
        }
    }
}

type Map = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

#[derive(Clone, Debug)]
enum Step {
    Set(u16, usize, Ttl),
    Expire(u16, u64),
    Remove(u16),
    Get(u16),
    Pass(u64),
    Rebuild,
    Collect,
}

fn step(fields: u16, value: usize) -> impl Strategy<Value = Step> {
    let ttl = prop_oneof![
        4 => Just(Ttl::Clear),
        1 => Just(Ttl::Keep),
        1 => (1u64..3000).prop_map(Ttl::At)
    ];
    let value = prop_oneof![8 => 0..value, 1 => 0..value * 30];
    prop_oneof![
        12 => (0..fields, value, ttl).prop_map(|(field, len, ttl)| Step::Set(field, len, ttl)),
        2 => (0..fields, 0u64..3000).prop_map(|(field, at)| Step::Expire(field, at)),
        5 => (0..fields).prop_map(Step::Remove),
        5 => (0..fields).prop_map(Step::Get),
        1 => (1u64..400).prop_map(Step::Pass),
        1 => Just(Step::Rebuild),
        1 => Just(Step::Collect),
    ]
}

fn name(field: u16) -> Vec<u8> {
    let mut name = format!("field:{field}").into_bytes();
    name.truncate(if field.is_multiple_of(5) { 40 } else { 9 });
    name.extend((0..field % 3).map(|_| 0));
    if field == 7 { Vec::new() } else { name }
}

/// Runs the steps on a blob and on a map.
fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let (mut blob, mut map, mut now) = (Blob::default(), Map::new(), 1_000u64);
    blob.set(now, b"first", b"", Ttl::Clear);
    map.insert(b"first".to_vec(), (Vec::new(), 0));
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Set(field, len, ttl) => {
                let (field, value) = (name(field), vec![number as u8; len]);
                let ttl = if let Ttl::At(after) = ttl { Ttl::At(now + after) } else { ttl };
                let change = blob.set(now, &field, &value, ttl);
                let old = map.get(&field).map(|(_, at)| *at);
                prop_assert_eq!(change, if old.is_some() { Change::Replaced } else { Change::Added });
                let at = match ttl {
                    Ttl::Clear => 0,
                    Ttl::Keep => old.unwrap_or(0),
                    Ttl::At(at) => at,
                };
                map.insert(field, (value, at));
            }
            Step::Expire(field, after) => {
                let field = name(field);
                let at = if after < 100 { 0 } else { now + after };
                let need =
                    entry_bytes(field.len(), map.get(&field).map_or(0, |(value, _)| value.len()), true);
                let change = blob.change(now, need, |bytes| set_expiry(bytes, now, &field, at).unwrap());
                let wanted = match map.get_mut(&field) {
                    Some((_, old)) => {
                        *old = at;
                        Change::Replaced
                    }
                    None => Change::Missing,
                };
                prop_assert_eq!(change, wanted);
            }
            Step::Remove(field) => {
                let field = name(field);
                prop_assert_eq!(remove(&mut blob.bytes, now, &field), Ok(map.remove(&field).is_some()));
            }
            Step::Get(field) => {
                let field = name(field);
                let found = blob.hash().get(&field, now).unwrap();
                let found = found.map(|field| (field.value.to_vec(), field.expires_ms));
                prop_assert_eq!(found.as_ref(), map.get(&field));
            }
            Step::Pass(ms) => {
                now += ms;
                map.retain(|_, (_, at)| *at == 0 || *at > now);
            }
            Step::Rebuild => blob.rebuild(0, 0, now),
            Step::Collect => {
                let short = blob.bytes.len() < SWEEP_BYTES_MAX / 2;
                let left = collect(&mut blob.bytes, now).unwrap();
                if short {
                    prop_assert_eq!(left, map.len());
                    prop_assert!(!blob.hash().is_due(now));
                }
            }
        }
        let hash = blob.hash();
        prop_assert!(hash.count() >= map.len());
        prop_assert!(hash.is_due(now) || hash.count() == map.len());
        if number.is_multiple_of(16) {
            prop_assert_eq!(&blob.contents(now), &map);
            let mut scanned = blob.scanned(now, 1 + number % 20);
            scanned.sort();
            prop_assert!(scanned.iter().eq(map.keys()), "a scan at rest sees each field once");
        }
    }
    prop_assert_eq!(blob.contents(now), map);
    Ok(())
}

/// `PROPTEST_CASES`, or `default`.
fn cases(default: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig::with_cases(cases.unwrap_or(default))
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn a_sequence_is_a_map(steps in prop::collection::vec(step(20, 12), 1..300)) {
        run(steps)?;
    }

    #[test]
    fn a_table_is_a_map(steps in prop::collection::vec(step(400, 60), 1..2500)) {
        run(steps)?;
    }

    /// Every operation on broken bytes ends, with an answer or an error.
    #[test]
    fn no_bytes_make_it_panic(
        fields in prop_oneof![1u16..30, 60u16..300],
        mutations in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        heads in prop::collection::vec((0usize..48, any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut blob = Blob::default();
        for field in 0..fields {
            let ttl = if field.is_multiple_of(3) { Ttl::At(2000 + u64::from(field)) } else { Ttl::Clear };
            blob.set(1000, &name(field), &vec![1; usize::from(field) % 40], ttl);
        }
        let mut bytes = blob.bytes;
        for (at, byte) in mutations {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for (at, byte) in heads {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        everything(&bytes);
    }

    #[test]
    fn nor_does_noise(mut bytes in prop::collection::vec(any::<u8>(), 0..600), form in 0u8..4) {
        if let Some(first) = bytes.first_mut() {
            *first = form;
        }
        if bytes.len() > 32 {
            // Numbers small enough to pass for places.
            for at in [10, 11, 14, 15, 18, 19, 22, 23, 25, 26, 27] {
                bytes[at] = 0;
            }
        }
        everything(&bytes);
    }
}

/// Every operation on bytes as they are.
fn everything(bytes: &[u8]) {
    if let Ok(hash) = Hash::read(bytes) {
        let _ = hash.fields(2100).count();
        for field in [0u16, 3, 7, 250] {
            let _ = hash.get(&name(field), 2100);
        }
        let (mut cursor, mut calls) = (0, 0);
        while let Ok(next) = hash.scan(cursor, 5, 2100, &mut |_| ()) {
            assert!(next.cursor == 0 || next.cursor > cursor, "a scan gets on");
            (cursor, calls) = (next.cursor, calls + 1);
            if cursor == 0 || calls > 200 {
                break;
            }
        }
        let mut draws = 0;
        let _ = hash.random(2100, &mut |bound| {
            draws += 7919;
            draws % bound.max(1)
        });
    }
    let changed = |change: &dyn Fn(&mut [u8])| change(&mut bytes.to_vec());
    for field in [0u16, 3, 7, 250, 999] {
        let field = name(field);
        changed(&|bytes| {
            let _ = set(bytes, 2100, &field, &[2; 30], Ttl::Keep);
        });
        changed(&|bytes| {
            let _ = set(bytes, 2100, &field, b"", Ttl::At(5000));
        });
        changed(&|bytes| {
            let _ = set_expiry(bytes, 2100, &field, 9000);
        });
        changed(&|bytes| {
            let _ = remove(bytes, 2100, &field);
        });
    }
    changed(&|bytes| {
        let _ = collect(bytes, 3000);
    });
    changed(&|bytes| {
        // One after another, as a broken hash would meet them.
        for field in 0..300 {
            let _ = remove(bytes, 2100, &name(field));
            let _ = set(bytes, 2100, &name(field / 2), &[3; 9], Ttl::Clear);
        }
    });
    if let Ok(Some(size)) = plan(bytes, 3, 100, 1 << 20) {
        let _ = rebuild(bytes, &mut vec![0; size.len], size, 5, 2100);
    }
}

#[test]
fn a_scan_sees_what_stays_whatever_comes_and_goes_and_however_it_grows() {
    let mut blob = Blob::default();
    let stays: Vec<Vec<u8>> = (0..500).map(|field| format!("stay:{field}").into_bytes()).collect();
    for field in &stays {
        blob.set(0, field, b"x", Ttl::Clear);
    }
    let (mut seen, mut cursor, mut calls) = (Vec::new(), 0, 0);
    loop {
        cursor = blob.hash().scan(cursor, 7, 0, &mut |field| seen.push(field.name.to_vec())).unwrap().cursor;
        calls += 1;
        if cursor == 0 {
            break;
        }
        for number in 0..60 {
            blob.set(0, format!("new:{calls}:{number}").as_bytes(), &[9; 50], Ttl::Clear);
            remove(&mut blob.bytes, 0, format!("new:{}:{number}", calls - 3).as_bytes()).unwrap();
        }
        if calls == 20 {
            blob.rebuild(30_000, 300_000, 0);
        }
    }
    assert!(calls > 40, "{calls}");
    assert!(stays.iter().all(|field| seen.contains(field)));
}

#[test]
fn a_steady_table_never_needs_rebuilding() {
    let mut blob = Blob::default();
    for field in 0..2000u16 {
        blob.set(0, &name(field), &[1; 20], Ttl::Clear);
    }
    blob.rebuild(0, 0, 0);
    let len = blob.bytes.len();
    // Ten times over, with lengths that never fit the place before.
    for round in 0..40_000usize {
        let field = name((round * 7919 % 2000) as u16);
        if round.is_multiple_of(3) {
            remove(&mut blob.bytes, 0, &field).unwrap();
        }
        let change = set(&mut blob.bytes, 0, &field, &vec![2; 15 + round % 11], Ttl::Clear).unwrap();
        assert_ne!(change, Change::NoRoom, "round {round}: {:?}", blob.hash());
    }
    assert_eq!(blob.bytes.len(), len);
    assert_eq!(blob.contents(0).len(), blob.hash().count());
}

#[test]
fn sizes_are_planned_to_the_limit_and_not_beyond() {
    assert_eq!(plan(&[], 3, 100, usize::MAX).unwrap().unwrap().len, 116);
    let roomy = plan(&[], 1000, 100_000, usize::MAX).unwrap().unwrap();
    let tight = plan(&[], 1000, 100_000, roomy.len - 1).unwrap().unwrap();
    assert!(tight.len < roomy.len && tight.len > 100_000);
    assert_eq!(plan(&[], 1000, 100_000, tight.len - 1), Ok(None));
    assert_eq!(plan(b"noise", 1, 1, 1000), Err(Broken));
}

#[test]
fn a_random_field_may_be_any_field() {
    for fields in [5u16, 300] {
        let mut blob = Blob::default();
        for field in 0..fields {
            blob.set(0, &name(field), b"", if field.is_multiple_of(2) { Ttl::Clear } else { Ttl::At(50) });
        }
        let mut rng = tiermem_base::Rng::seeded(1);
        let mut drawn = std::collections::BTreeSet::new();
        for _ in 0..8000 {
            let field = blob.hash().random(60, &mut |bound| rng.below(bound)).unwrap().unwrap();
            drawn.insert(field.name.to_vec());
        }
        assert_eq!(drawn.len(), usize::from(fields).div_ceil(2));
    }
}
