//! Descriptions that are valid are read as they were meant, and others are refused by key.

use proptest::option::of as maybe;
use proptest::prelude::*;

use super::*;
use crate::latency_curve::{Curve, LOCAL_DRAM};
use crate::units::{Bandwidth, Bytes, Nanos};

fn read(table: &str) -> Result<TierSpec, String> {
    toml::from_str(table).map_err(|error| error.message().to_owned())
}

fn words() -> impl Strategy<Value = Option<String>> {
    maybe("[a-zäß \"\\\\:=.-]{0,12}")
}

/// Prices that may be.
fn prices() -> impl Strategy<Value = Price> {
    let amount = prop_oneof![(0.0..1e6).prop_map(Amount::PerGb), (0.0..1e6).prop_map(Amount::Each)];
    let per = prop_oneof![Just(Per::Once), Just(Per::Month), Just(Per::Hour)];
    let date = maybe("20[0-9]{2}(-(0[1-9]|1[0-2])(-(0[1-9]|[12][0-9]|3[01]))?)?");
    (amount, per, "[A-Z]{3}", date, words()).prop_map(|(amount, per, currency, date, source)| Price {
        amount,
        per,
        currency,
        date,
        source,
    })
}

fn capacities() -> impl Strategy<Value = Capacity> {
    prop_oneof![
        (1u64..i64::MAX as u64).prop_map(|bytes| Capacity::Bytes(Bytes(bytes))),
        (1e-6..1e4f64).prop_map(Capacity::Percent),
    ]
}

fn kinds() -> impl Strategy<Value = TierKind> {
    prop::sample::select(TierKind::ALL.map(|(kind, _)| kind).to_vec())
}

/// Tiers that the command line can express.
fn flags() -> impl Strategy<Value = TierSpec> {
    let path = "[a-zA-Zäß0-9:=%/ .-]{1,24}";
    let curve = prop::sample::select(vec!["a1000-cxl", "numa-2018", "nvme-flash"]);
    (kinds(), capacities(), any::<bool>(), any::<u32>(), path, curve).prop_map(
        |(kind, capacity, is_placed, node, path, curve)| {
            let spec = TierSpec { capacity: Some(capacity), ..TierSpec::unsized_of(kind) };
            match kind {
                TierKind::Numa if is_placed => spec.on_node(node),
                TierKind::Dax | TierKind::Flash if is_placed => spec.at_path(path),
                TierKind::Emulated if is_placed => spec.with_curve(curve),
                _ => spec,
            }
        },
    )
}

/// Tiers that a file can express.
fn specs() -> impl Strategy<Value = TierSpec> {
    let figures = (any::<u64>(), any::<u64>(), 1u64..).prop_map(|(read, write, bandwidth)| Speed::Figures {
        read_latency: Nanos(read),
        write_latency: Nanos(write),
        bandwidth: Bandwidth(bandwidth),
    });
    let speed = prop_oneof![Just(None), figures.prop_map(Some)];
    let sizes = (
        maybe(any::<u64>()),
        maybe(any::<u64>()),
        maybe(any::<f64>().prop_filter("finite", |it| it.is_finite())),
    );
    let flash = (sizes, words(), words(), words()).prop_map(
        |((segment, endurance, reserve), admission, durability, io)| FlashOptions {
            segment: segment.map(Bytes),
            endurance: endurance.map(Bytes),
            reserve,
            admission,
            durability,
            io,
        },
    );
    let beside = (maybe(0.001..=1.0f64), maybe(prices()), any::<bool>(), any::<bool>());
    (flags(), "[a-z\"ä ]{0,8}", speed, flash, beside).prop_map(
        |(spec, name, speed, flash, (bandwidth_share, price, reset, is_sized))| TierSpec {
            name,
            capacity: spec.capacity.filter(|_| is_sized),
            speed: speed.unwrap_or(spec.speed),
            flash: if spec.kind == TierKind::Flash { flash } else { FlashOptions::default() },
            bandwidth_share,
            price,
            reset,
            ..spec
        },
    )
}

proptest! {
    #[test]
    fn the_command_line_form_is_read_back_as_the_same(spec in flags()) {
        let text = spec.to_string();
        prop_assert_eq!(text.parse::<TierSpec>(), Ok(spec), "{}", text);
    }

    #[test]
    fn a_file_is_read_back_as_the_same(spec in specs()) {
        prop_assert_eq!(spec.check(), Ok(()));
        let text = toml::to_string(&spec).unwrap();
        prop_assert_eq!(read(&text), Ok(spec), "{}", text);
    }

    #[test]
    fn a_price_is_read_back_as_the_same(price in prices()) {
        let text = toml::to_string(&price).unwrap();
        prop_assert_eq!(toml::from_str::<Price>(&text), Ok(price), "{}", text);
    }

    #[test]
    fn no_text_is_too_strange_to_be_refused(text in ".{0,40}") {
        // Either it means something, which is written again as the same, or there is an error that shows it.
        match text.parse::<TierSpec>() {
            Ok(spec) => prop_assert_eq!(spec.to_string().parse::<TierSpec>(), Ok(spec)),
            Err(error) => {
                let shown = format!("{text:?}");
                prop_assert!(error.to_string().contains(&shown), "{}", error);
            }
        }
    }

    #[test]
    fn what_is_paid_by_the_gigabyte_or_for_all_is_the_same(price in prices(), bytes in 1u64..1 << 50) {
        let by_gb = price.by_gb(Some(bytes)).unwrap();
        let (given, again) = (price.of(bytes as f64), by_gb.of(bytes as f64));
        prop_assert!((given - again).abs() <= 1e-9 * given.max(1e-9) || matches!(price.amount, Amount::PerGb(_)));
        prop_assert!(matches!(by_gb.amount, Amount::PerGb(_)));
    }
}

#[test]
fn a_table_is_understood() {
    let spec = read(
        r#"
        name = "cxl"
        kind = "emulated"
        capacity = "1.5GiB"
        read_latency = "250ns"
        write_latency = "0.3us"
        bandwidth = "20GB/s"
        bandwidth_share = 0.5
        price_per_gb = 2
        per = "month"
        currency = "EUR"
        date = "2025-11-25"
        source = "an offer"
        "#,
    )
    .unwrap();
    assert_eq!((spec.name.as_str(), spec.known_bytes()), ("cxl", Some(3 << 29)));
    let curve = spec.curve().unwrap();
    assert_eq!((curve.read.latency_ns, curve.write.latency_ns), (250.0, 300.0));
    assert_eq!(curve.read.bandwidth_gb_per_s, 10.0);
    let price = spec.price.clone().unwrap();
    assert_eq!((price.amount, price.per, price.currency.as_str()), (Amount::PerGb(2.0), Per::Month, "EUR"));
    assert_eq!(price.per_month(3e9, 36.0), 6.0);
    let least = read("kind = \"flash\"").unwrap();
    assert_eq!((least.name.as_str(), least.capacity), ("flash", None));
}

#[test]
fn each_kind_is_taken_to_be_something_or_has_to_say() {
    for (kind, name) in TierKind::ALL {
        let spec = TierSpec::unsized_of(kind);
        assert_eq!(spec.name, name);
        assert_eq!(name.parse(), Ok(kind));
        match kind.usual_curve() {
            Some(curve) => assert_eq!(spec.curve(), Ok(Curve::named(curve).unwrap())),
            None => assert!(spec.curve().unwrap_err().to_string().contains("give read_latency")),
        }
        assert_eq!(Price::usual(kind).is_some(), spec.price_by_gb().is_ok());
    }
    let slower = |kind| TierSpec::unsized_of(kind).slower_ns().unwrap();
    assert_eq!(slower(TierKind::Dram), 0.0);
    assert_eq!(slower(TierKind::Numa), LOCAL_DRAM.read.latency_ns);
    assert!((slower(TierKind::Emulated) - 147.96).abs() < 0.01);
}

#[test]
fn mistakes_in_a_table_are_told_by_key() {
    for (table, parts) in [
        ("capacity = \"1GiB\"", ["missing field `kind`", ""]),
        ("kind = \"paper\"", ["unknown variant `paper`", "`compressed`"]),
        ("kind = \"dram\"\nspeed = 1", ["unknown field `speed`", "`read_latency`"]),
        ("kind = \"dram\"\ncapacity = \"lots\"", ["is not a size such as 512MiB", ""]),
        ("kind = \"dram\"\ncapacity = \"0\"", ["capacity: its capacity is zero", "give bytes"]),
        ("kind = \"dram\"\ncapacity = \"0%\"", ["not a percentage above 0", ""]),
        ("kind = \"dram\"\ncapacity = \"-1MiB\"", ["is not a size", ""]),
        (
            "kind = \"dram\"\npath = \"/x\"",
            ["path: is for tiers of kind dax and flash, not dram", "leave it out"],
        ),
        ("kind = \"flash\"\npath = \"\"", ["path: is empty", "name a file"]),
        ("kind = \"dram\"\nnode = 1", ["node: ", "and no other, has a node"]),
        ("kind = \"numa\"\nnode = 1\npath = \"/x\"", ["path: contradicts node", "leave one of them out"]),
        ("kind = \"numa\"\nnode = -1", ["invalid value", ""]),
        (
            "kind = \"emulated\"\ncurve = \"a1000-cxl\"\nread_latency = \"1us\"",
            ["curve: contradicts read_latency", "not both"],
        ),
        ("kind = \"emulated\"\nbandwidth = \"1GB/s\"", ["read_latency: is missing", "or a curve"]),
        (
            "kind = \"emulated\"\nread_latency = \"1us\"\nbandwidth = \"1GB/s\"",
            ["write_latency: is missing", ""],
        ),
        ("kind = \"emulated\"\nread_latency = \"250\"", ["is not a time such as 250ns", ""]),
        (
            "kind = \"emulated\"\ncurve = \"fast\"",
            ["curve: there is no curve \"fast\"", "known are a1000-cxl"],
        ),
        (
            "kind = \"emulated\"\nread_latency = \"1us\"\nwrite_latency = \"1us\"\nbandwidth = \"0GB/s\"",
            ["bandwidth: is zero", "20GB/s"],
        ),
        ("kind = \"emulated\"\nbandwidth = \"fast\"", ["is not bytes a second such as 20GB/s", ""]),
        (
            "kind = \"emulated\"\nbandwidth_share = 0",
            ["bandwidth_share: 0 must be above 0 and at most 1", ""],
        ),
        ("kind = \"emulated\"\nbandwidth_share = 1.5", ["bandwidth_share: 1.5", ""]),
        ("kind = \"emulated\"\nbandwidth_share = nan", ["bandwidth_share: NaN", ""]),
        ("kind = \"dram\"\nprice_per_gb = -1", ["price_per_gb: -1", "not negative"]),
        ("kind = \"dram\"\nprice_each = inf", ["price_each: inf", ""]),
        (
            "kind = \"dram\"\nprice_per_gb = 5\nprice_each = 300",
            ["price_per_gb: contradicts price_each", "leave one"],
        ),
        ("kind = \"dram\"\nper = \"month\"", ["per: says of which price", "give price_per_gb or price_each"]),
        ("kind = \"dram\"\nsource = \"x\"", ["source: says of which price", ""]),
        ("kind = \"dram\"\nprice_per_gb = 5\nper = \"week\"", ["unknown variant `week`", "`hour`"]),
        ("kind = \"dram\"\nprice_per_gb = 5\ncurrency = \"$\"", ["currency: \"$\"", "such as USD"]),
        ("kind = \"dram\"\nprice_per_gb = 5\ndate = \"25.11.2025\"", ["date: ", "\"2025-11-25\""]),
        ("kind = \"dram\"\nprice_per_gb = 5\ndate = \"2025-13\"", ["date: ", ""]),
        (
            "kind = \"dram\"\nsegment = \"1MiB\"",
            ["segment: is for tiers of kind flash, not dram", "leave it out"],
        ),
    ] {
        let error = read(table).unwrap_err();
        assert!(parts.iter().all(|part| error.contains(part)), "{table}: {error}");
    }
}

#[test]
fn mistakes_on_the_command_line_are_told() {
    for (text, part) in [
        ("dram", "write it as kind=size"),
        ("", "write it as kind=size"),
        ("=1GiB", "\"\" is not a kind of tier"),
        ("tape=1GiB", "not a kind of tier; there are dram"),
        ("dram=", "capacity: \"\" is not a size"),
        ("dram=x", "capacity: \"x\" is not a size"),
        ("dram=0", "capacity: its capacity is zero"),
        ("dram:=1GiB", "nothing between"),
        ("numa:x=1GiB", "node: \"x\" is not a node number"),
        ("dram:/f=1GiB", "takes nothing behind a colon"),
        ("compressed:lz4=1GiB", "takes nothing behind a colon"),
        ("remote:host=1GiB", "takes nothing behind a colon"),
        ("emulated:fast=1GiB", "curve: there is no curve \"fast\""),
    ] {
        let error = text.parse::<TierSpec>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("tier {text:?}: ")) && error.contains(part), "{error}");
    }
    let tier: TierSpec = "dax:/dev/dax=0:1=2GiB".parse().unwrap();
    assert_eq!((tier.path().unwrap().to_str(), tier.bytes()), (Some("/dev/dax=0:1"), Ok(2 << 30)));
    let tier: TierSpec = "emulated:numa-2018=10%".parse().unwrap();
    assert_eq!(tier.capacity.unwrap().of_working_set(1000), 100);
    assert!(tier.bytes().unwrap_err().problem.contains("give bytes"));
}

#[test]
fn what_an_engine_needs_it_asks_for() {
    let spec = |text: &str| text.parse::<TierSpec>().unwrap();
    assert_eq!(spec("numa:3=1GiB").node(), Ok(3));
    assert!(spec("numa=1GiB").node().unwrap_err().problem.contains("--tier numa:1=2GiB"));
    assert!(spec("flash=1GiB").path().unwrap_err().problem.contains("--tier flash:/srv/tiermem.flash=8GiB"));
    assert!(TierSpec::unsized_of(TierKind::Dram).bytes().unwrap_err().problem.contains("is missing"));
    let served = [TierKind::Dram, TierKind::Numa, TierKind::Flash];
    assert_eq!(spec("flash=1GiB").served_by("the store", &served), Ok(()));
    let refused = spec("remote=1GiB").served_by("the store", &served).unwrap_err().to_string();
    assert!(
        refused.contains("the store serves tiers of kind dram, numa and flash, and not remote yet"),
        "{refused}"
    );
    // A price for all of it needs a size.
    let each = TierSpec {
        price: Some(Price { amount: Amount::Each(300.0), ..Price::dollars_per_gb(0.0) }),
        ..spec("dram=300GB")
    };
    assert_eq!(each.price_by_gb().unwrap().amount, Amount::PerGb(1.0));
    let part = each.clone().divided(3);
    assert_eq!((part.known_bytes(), part.bandwidth_share), (Some(100_000_000_000), Some(1.0 / 3.0)));
    assert_eq!(part.price_by_gb().unwrap().amount, Amount::PerGb(1.0));
    assert_eq!(part.grown(3).known_bytes(), each.known_bytes());
    let unsized_one = TierSpec { capacity: None, ..each };
    assert!(unsized_one.price_by_gb().unwrap_err().problem.contains("give capacity, or price_per_gb"));
}

#[test]
fn tiers_together_have_names_of_their_own_and_one_currency() {
    let [one, two] = [1.0, 2.0].map(|price| TierSpec {
        price: Some(Price::dollars_per_gb(price)),
        ..TierSpec::unsized_of(TierKind::Dram)
    });
    assert!(
        check_list(&[one.clone(), two.clone()]).unwrap_err().problem.contains("another tier has that name")
    );
    let two = two.named("two");
    assert_eq!(check_list(&[one.clone(), two.clone()]), Ok(()));
    let price = Price { currency: "EUR".to_owned(), ..Price::dollars_per_gb(2.0) };
    let two = TierSpec { price: Some(price), ..two };
    let unpriced = TierSpec::unsized_of(TierKind::Flash);
    let error = check_list(&[one, unpriced, two]).unwrap_err().to_string();
    assert!(error.contains("currency: EUR and the USD of tier \"dram\""), "{error}");
}

#[test]
fn money_is_spread_over_months_or_paid_in_them() {
    let price = |per| Price { per, ..Price::dollars_per_gb(3.0) };
    assert_eq!(price(Per::Once).per_month(12e9, 36.0), 1.0);
    assert_eq!(price(Per::Month).per_month(12e9, 36.0), 36.0);
    assert!((price(Per::Hour).per_month(1e9, 36.0) - 3.0 * 730.5).abs() < 1e-9);
    // A gibibyte is more than the gigabyte that is sold.
    assert!((price(Per::Once).of(f64::from(1 << 30)) - 3.221_225_472).abs() < 1e-9);
}
