//! Tests of hashes and of fields that expire: Redis 7.0, which the differential test queries, has no such fields.

use super::Client;

#[test]
fn fields_are_written_read_and_removed() {
    Client::new().all(&[
        ("HSET h a 1 b 2", ":2"),
        ("HSET h b 3 c 4 c 5", ":1"),
        ("HSET h a", "-ERR wrong number of arguments for 'hset' command"),
        ("HMSET h a", "-ERR wrong number of arguments for 'hmset' command"),
        ("HGETALL h", "*6 $1 a $1 1 $1 b $1 3 $1 c $1 5"),
        ("HMSET h d x", "+OK"),
        ("HSETNX h d y", ":0"),
        ("HSETNX h e y", ":1"),
        ("HGET h d", "$1 x"),
        ("HGET h nosuch", "$-1"),
        ("HMGET h a nosuch e", "*3 $1 1 $-1 $1 y"),
        ("HMGET nosuch a b", "*2 $-1 $-1"),
        ("HLEN h", ":5"),
        ("HEXISTS h a", ":1"),
        ("HSTRLEN h a", ":1"),
        ("HKEYS h", "*5 $1 a $1 b $1 c $1 d $1 e"),
        ("HVALS h", "*5 $1 1 $1 3 $1 5 $1 x $1 y"),
        ("HINCRBY h a 41", ":42"),
        ("HINCRBY h d 1", "-ERR hash value is not an integer"),
        ("HINCRBYFLOAT h f 1.5", "$3 1.5"),
        ("HINCRBYFLOAT h d 1.5", "-ERR hash value is not a float"),
        ("HDEL h a b nosuch c c", ":3"),
        ("HSCAN h 0 MATCH [de]", "*2 $1 0 *4 $1 d $1 x $1 e $1 y"),
        ("HSCAN h 0 NOVALUES", "*2 $1 0 *3 $1 d $1 e $1 f"),
        ("HRANDFIELD nosuch", "$-1"),
        ("HRANDFIELD nosuch 3", "*0"),
        ("HDEL h d e f", ":3"),
        ("EXISTS h", ":0"),
        ("TYPE h", "+none"),
    ]);
}

#[test]
fn kinds_do_not_mix() {
    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let mut client = Client::new();
    client.all(&[("HSET h a 1", ":1"), ("SET s 1", "+OK"), ("TYPE h", "+hash"), ("EXPIRE h 100", ":1")]);
    for request in [
        "GET h",
        "GETSET h x",
        "SET h x GET",
        "GETDEL h",
        "GETEX h",
        "APPEND h x",
        "STRLEN h",
        "GETRANGE h 0 1",
        "SETRANGE h 0 x",
        "INCR h",
        "INCRBYFLOAT h 1",
        "HSET s a 1",
        "HSETNX s a 1",
        "HMSET s a 1",
        "HGET s a",
        "HMGET s a",
        "HGETALL s",
        "HDEL s a",
        "HLEN s",
        "HEXISTS s a",
        "HKEYS s",
        "HVALS s",
        "HSTRLEN s a",
        "HINCRBY s a 1",
        "HINCRBYFLOAT s a 1",
        "HSCAN s 0",
        "HRANDFIELD s",
        "HRANDFIELD s 1",
        "HEXPIRE s 1 FIELDS 1 a",
        "HTTL s FIELDS 1 a",
        "HPERSIST s FIELDS 1 a",
    ] {
        assert_eq!(client.ask(request), WRONG, "{request}");
    }
    client.all(&[
        ("MGET s h", "*2 $1 1 $-1"),
        ("SCAN 0 TYPE hash", "*2 $1 0 *1 $1 h"),
        ("SCAN 0 TYPE STRING", "*2 $1 0 *1 $1 s"),
        ("TTL h", ":100"),
        ("HSET h b 2", ":1"),
        ("TTL h", ":100"),
        ("SETNX h x", ":0"),
        ("MSETNX h x t x", ":0"),
        ("SET h x", "+OK"),
        ("TYPE h", "+string"),
    ]);
}

#[test]
fn fields_expire_by_a_clock() {
    let mut client = Client::new();
    client.all(&[
        ("HSET h a 1 b 2 c 3", ":3"),
        ("HEXPIRE h 10 FIELDS 2 a nosuch", "*2 :1 :-2"),
        ("HEXPIRE nosuch 10 FIELDS 2 a b", "*2 :-2 :-2"),
        ("HTTL h FIELDS 3 a b nosuch", "*3 :10 :-1 :-2"),
        ("HTTL nosuch FIELDS 1 a", "*1 :-2"),
        ("HPTTL h FIELDS 1 a", "*1 :10000"),
        ("HEXPIRETIME h FIELDS 1 a", "*1 :1700000010"),
        ("HPEXPIRETIME h FIELDS 1 a", "*1 :1700000010000"),
        ("HPEXPIRE h 1500 NX FIELDS 2 a b", "*2 :0 :1"),
        ("HPEXPIRE h 1500 XX FIELDS 2 a c", "*2 :1 :0"),
        ("HPEXPIRE h 1000 GT FIELDS 2 a c", "*2 :0 :0"),
        ("HPEXPIRE h 2000 GT FIELDS 1 a", "*1 :1"),
        ("HPEXPIRE h 9000 LT FIELDS 2 a c", "*2 :0 :1"),
        ("HPERSIST h FIELDS 3 c c nosuch", "*3 :1 :-1 :-2"),
        ("HEXPIREAT h 1700000005 FIELDS 1 c", "*1 :1"),
        ("HPEXPIREAT h 1700000004000 FIELDS 1 c", "*1 :1"),
        ("HINCRBY h b 1", ":3"),
        ("HPTTL h FIELDS 1 b", "*1 :1500"),
    ]);
    client.pass(1500);
    client.all(&[
        ("HGETALL h", "*4 $1 a $1 1 $1 c $1 3"),
        ("HLEN h", ":2"),
        ("HGET h b", "$-1"),
        ("HSETNX h b new", ":1"),
        ("HTTL h FIELDS 1 b", "*1 :-1"),
        ("HSET h a plain", ":0"),
        ("HTTL h FIELDS 1 a", "*1 :-1"),
    ]);
    client.pass(3000);
    client.all(&[
        ("HKEYS h", "*2 $1 a $1 b"),
        ("HPEXPIRE h 0 FIELDS 1 a", "*1 :2"),
        ("HEXISTS h a", ":0"),
        ("HEXPIREAT h 1 FIELDS 2 b a", "*2 :2 :-2"),
        ("EXISTS h", ":0"),
        ("HSET h only 1", ":1"),
        ("HPEXPIRE h 5 FIELDS 1 only", "*1 :1"),
    ]);
    client.pass(5);
    client.all(&[("HLEN h", ":0"), ("EXISTS h", ":0"), ("DBSIZE", ":0")]);
}

#[test]
fn wrong_use_of_field_expiry_is_told() {
    Client::new().all(&[
        ("HSET h a 1", ":1"),
        ("HEXPIRE h 10 FIELDS 1", "-ERR wrong number of arguments for 'hexpire' command"),
        ("HEXPIRE h x FIELDS 1 a", "-ERR value is not an integer or out of range"),
        ("HEXPIRE h -1 FIELDS 1 a", "-ERR invalid expire time, must be >= 0"),
        ("HEXPIRE h 99999999999999 FIELDS 1 a", "-ERR invalid expire time in 'hexpire' command"),
        (
            "HEXPIRE h 10 a FIELDS 1 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position",
        ),
        (
            "HEXPIRE h 10 NX a FIELDS 1",
            "-ERR Mandatory argument FIELDS is missing or not at the right position",
        ),
        ("HEXPIRE h 10 FIELDS 0 a", "-ERR Parameter `numFields` should be greater than 0"),
        ("HEXPIRE h 10 FIELDS 2 a", "-ERR The `numfields` parameter must match the number of arguments"),
        ("HTTL h FIELDS 2 a", "-ERR The `numfields` parameter must match the number of arguments"),
        ("HPERSIST h FIELD 1 a", "-ERR Mandatory argument FIELDS is missing or not at the right position"),
    ]);
}

#[test]
fn a_large_hash_grows_shrinks_and_keeps_what_it_holds() {
    let mut client = Client::new();
    for field in 0..3000 {
        client.ask(&format!("HSET h field:{field} value:{field}"));
    }
    client.all(&[
        ("HLEN h", ":3000"),
        ("HGET h field:2999", "$10 value:2999"),
        ("HEXPIRE h 1 FIELDS 1 field:7", "*1 :1"),
    ]);
    client.pass(1000);
    client.all(&[("HLEN h", ":2999"), ("HGET h field:7", "$-1")]);
    let before = client.engine.keyspace().memory_usage(0, b"h").unwrap();
    for field in 0..2990 {
        client.ask(&format!("HDEL h field:{field}"));
    }
    client.all(&[("HLEN h", ":10"), ("HGET h field:2995", "$10 value:2995")]);
    assert!(client.engine.keyspace().memory_usage(0, b"h").unwrap() * 20 < before);
    let random = client.ask("HRANDFIELD h 3");
    assert!(random.starts_with("*3 $10 field:29"), "{random}");
    assert!(client.ask("HRANDFIELD h -30 WITHVALUES").starts_with("*60 "));
    assert!(client.ask("HRANDFIELD h 30").starts_with("*10 "));
}

#[test]
fn what_is_over_but_not_yet_collected_is_not_shown() {
    let mut client = Client::new();
    for field in 0..6000 {
        client.ask(&format!("HSET h field:{field} {}", "x".repeat(40)));
        client.ask(&format!("HPEXPIRE h 10 FIELDS 1 field:{field}"));
    }
    client.pass(10);
    // Longer than one access collects, so that there is something left each time.
    client.all(&[
        ("HRANDFIELD h -3", "*0"),
        ("HRANDFIELD h", "$-1"),
        ("HGET h field:5999", "$-1"),
        ("HSETNX h field:5998 new", ":1"),
        ("HGETALL h", "*2 $10 field:5998 $3 new"),
        ("HRANDFIELD h -2", "*2 $10 field:5998 $10 field:5998"),
        ("HDEL h field:5998", ":1"),
    ]);
    for _ in 0..10 {
        client.ask("HLEN h");
    }
    client.all(&[("EXISTS h", ":0")]);
}

#[test]
fn a_hash_beyond_the_longest_value_is_refused_and_stays() {
    let mut client = Client::new();
    let half = "x".repeat(900_000);
    for field in 0..16 {
        assert_eq!(client.ask(&format!("HSET h {field} {half}")), ":1");
    }
    let refused = client.ask(&format!("HSET h 16 {half} 17 {half} 18 {half}"));
    assert!(
        refused.starts_with("-ERR the hash would be longer than the limit of 16777216 bytes"),
        "{refused}"
    );
    client.all(&[("HLEN h", ":16"), ("HSTRLEN h 15", ":900000"), ("HEXISTS h 16", ":0")]);
    // What takes the place of something as long needs no more room.
    assert_eq!(client.ask(&format!("HSET h 3 {half}")), ":0");
    assert!(client.ask("HGETALL h").starts_with("-ERR the reply is longer than the limit"));
}
