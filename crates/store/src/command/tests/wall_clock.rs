//! Moments in commands, while the wall clock steps.

use super::Client;

#[test]
fn a_step_moves_no_deadline_and_moments_are_told_by_the_clock_as_it_is() {
    for step_ms in [-600_000i64, 600_000] {
        let mut client = Client::new();
        let wall_s = |s: i64| 1_700_000_000 + step_ms / 1000 + s;
        client.all(&[
            ("SET k v EX 10", "+OK"),
            ("HSET h f v g w", ":2"),
            ("HEXPIRE h 10 FIELDS 1 f", "*1 :1"),
        ]);
        client.host.wall_clock.step(step_ms);
        let is = |client: &mut Client, request: String, reply: String| {
            assert_eq!(client.ask(&request), reply, "{request}");
        };
        for (key_request, field_request, reply) in [
            ("TTL k", "HTTL h FIELDS 1 f", 10),
            ("PTTL k", "HPTTL h FIELDS 1 f", 10_000),
            ("EXPIRETIME k", "HEXPIRETIME h FIELDS 1 f", wall_s(10)),
            ("PEXPIRETIME k", "HPEXPIRETIME h FIELDS 1 f", wall_s(10) * 1000),
        ] {
            is(&mut client, key_request.into(), format!(":{reply}"));
            is(&mut client, field_request.into(), format!("*1 :{reply}"));
        }
        let at_s = wall_s(20);
        for (request, reply) in [
            (format!("EXPIREAT k {at_s} GT"), ":1"),
            (format!("SET a v EXAT {at_s}"), "+OK"),
            (format!("SET b v PXAT {}", at_s * 1000), "+OK"),
            ("SET c v".into(), "+OK"),
            (format!("GETEX c EXAT {at_s}"), "$1 v"),
            ("SET d v".into(), "+OK"),
            (format!("PEXPIREAT d {}", at_s * 1000), ":1"),
            (format!("HEXPIREAT h {at_s} FIELDS 1 g"), "*1 :1"),
            (format!("HPEXPIREAT h {} FIELDS 1 f", at_s * 1000), "*1 :1"),
        ] {
            is(&mut client, request, reply.into());
        }
        for key in ["k", "a", "b", "c", "d"] {
            is(&mut client, format!("PTTL {key}"), ":20000".into());
            is(&mut client, format!("EXPIRETIME {key}"), format!(":{at_s}"));
        }
        is(&mut client, "HPTTL h FIELDS 2 f g".into(), "*2 :20000 :20000".into());
        is(&mut client, "TIME".into(), format!("*2 $10 {} $1 0", wall_s(0)));
        // Over by the wall clock is over, even where that was before all time.
        for request in [format!("EXPIREAT a {}", wall_s(0)), "PEXPIREAT b 1".into(), "EXPIREAT c -1".into()] {
            is(&mut client, request, ":1".into());
        }
        is(&mut client, "HPEXPIREAT h 1 FIELDS 1 f".into(), "*1 :2".into());
        is(&mut client, "SET d v PXAT 1".into(), "+OK".into());
        is(&mut client, "EXISTS a b c d".into(), ":0".into());
        client.pass(20_000);
        client.all(&[("EXISTS k h", ":0"), ("LASTSAVE", &format!(":{}", step_ms.max(0) / 1000))]);
    }
}
