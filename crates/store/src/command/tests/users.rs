//! Tests of users as a connection has them: when requests are checked, and what is refused.

use super::*;
use crate::clients::Clients;
use crate::command::Mode;

#[test]
fn nobody_is_looked_at_who_may_do_everything() {
    let mut client = Client::new();
    client.all(&[
        ("SET a 1", "+OK"),
        ("ACL WHOAMI", "$7 default"),
        ("ACL SETUSER u on nopass ~u* +@all", "+OK"),
    ]);
    assert_eq!(
        (client.session.mode.bits(), client.host.clients.attention()),
        (0, 0),
        "users of others change nothing"
    );
    client.all(&[("ACL SETUSER default ~x", ALREADY), ("ACL SETUSER default resetkeys ~d*", "+OK")]);
    assert_eq!(client.host.clients.attention(), Clients::GUARDED);
    client.all(&[("GET a", "-NOPERM No permissions to access a key"), ("GET d", "$-1")]);
    client.all(&[("ACL SETUSER default allkeys", "+OK"), ("GET a", "$1 1")]);
    assert_eq!(client.host.clients.attention(), 0);
}

const ALREADY: &str = "-ERR Error in ACL SETUSER modifier '~x': Adding a pattern after the * pattern (or the 'allkeys' flag) is not \
                       valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns";

#[test]
fn a_user_of_its_own_is_looked_at_until_it_is_default_again() {
    let mut client = Client::new();
    client.all(&[
        ("ACL SETUSER u on >p ~u* +@all -@dangerous", "+OK"),
        ("AUTH u wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
    ]);
    assert_eq!(client.session.mode.bits(), 0);
    client.all(&[("AUTH u p", "+OK"), ("ACL WHOAMI", "$1 u")]);
    assert!(client.session.mode.has(Mode::RESTRICTED));
    client.all(&[
        ("SET u1 1", "+OK"),
        ("SET a 1", "-NOPERM No permissions to access a key"),
        ("FLUSHALL", "-NOPERM User u has no permissions to run the 'flushall' command"),
        ("ACL LIST", "-NOPERM User u has no permissions to run the 'acl|list' command"),
        ("SUBSCRIBE c", "-NOPERM No permissions to access a channel"),
        ("MULTI", "+OK"),
        ("GET u1", "+QUEUED"),
        ("GET a", "-NOPERM No permissions to access a key"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("AUTH default x", "+OK"),
        ("GET a", "$-1"),
    ]);
    assert_eq!(client.session.mode.bits(), 0);
    let stats = &client.host.stats;
    assert_eq!((stats.access_denied_auth, stats.access_denied_cmd), (1, 2));
    assert_eq!((stats.access_denied_key, stats.access_denied_channel), (2, 1));
}

#[test]
fn watched_keys_are_let_go_where_rights_have_changed_before_exec() {
    let mut client = Client::new();
    let mut other = client.other(8);
    client.all(&[("ACL SETUSER u on nopass ~u* +@all", "+OK"), ("AUTH u x", "+OK"), ("WATCH u1", "+OK")]);
    client.all(&[("MULTI", "+OK"), ("SET u1 1", "+QUEUED")]);
    assert_eq!(client.ask_as(&mut other, "ACL SETUSER u -set"), "+OK");
    let refused = client.ask("EXEC");
    assert!(refused.starts_with("-EXECABORT") && refused.ends_with("the command or subcommand"), "{refused}");
    assert_eq!(client.session.mode, Mode::RESTRICTED);
    assert_eq!(client.host.clients.attention(), 0, "nothing is watched");
}

#[test]
fn who_is_deleted_is_refused_and_disconnected() {
    let mut client = Client::new();
    let mut other = client.other(8);
    client.all(&[("ACL SETUSER u on nopass ~* +@all", "+OK")]);
    assert_eq!(client.ask_as(&mut other, "AUTH u x"), "+OK");
    client.all(&[("ACL DELUSER u nobody", ":1")]);
    assert!(client.host.clients.output().is_killed(other.slot) && !client.session.closing);
    let refused = client.ask_as(&mut other, "GET a");
    assert_eq!(refused, "-NOPERM User u has no permissions to run the 'get' command");
}
