//! Tests of ACL rules and the permissions that result.

use super::*;
use crate::command::{COMMANDS, lookup};

fn users(rules: &str) -> Result<Users, String> {
    Users::declared(None, [("u", rules)])
}

fn user(rules: &str) -> Arc<User> {
    Arc::clone(users(rules).unwrap().get("u").unwrap())
}

fn may(user: &User, name: &str) -> bool {
    let command = Command::all().find(|it| it.spec.full_name() == name);
    user.may_run(command.unwrap_or_else(|| panic!("{name} is no command")).number)
}

#[test]
fn a_new_user_can_do_nothing_and_default_everything() {
    let users = users("").unwrap();
    assert_eq!(users.get("u").unwrap().describe(), "off resetchannels -@all");
    assert_eq!(users.get(DEFAULT).unwrap().describe(), "on nopass ~* &* +@all");
    assert!(users.are_open() && !users.guard_default());
}

#[test]
fn rules_are_described_so_that_they_make_the_same_user() {
    for (rules, described) in [
        ("on >secret ~app:* +@all -@dangerous", None),
        ("on nopass allkeys allchannels allcommands", Some("on nopass ~* &* +@all")),
        ("on nopass %R~a* %W~a* %R~b %RW~c* +get", Some("on nopass ~a* %R~b ~c* resetchannels -@all +get")),
        ("%rw~*", Some("off ~* resetchannels -@all")),
        ("&news.* &news.* +@pubsub -publish", Some("off resetchannels &news.* -@all +@pubsub -publish")),
        ("+config|get +config", Some("off resetchannels -@all +config")),
        ("+@all -config +config|get", Some("off resetchannels +@all -config +config|get")),
        ("+GET -get +Get", Some("off resetchannels -@all +get")),
        ("+@read +get -@read", Some("off resetchannels -@all +get -@read")),
        ("+get +@list nocommands", Some("off resetchannels -@all")),
        ("~a* allkeys resetkeys ~b", Some("off ~b resetchannels -@all")),
        ("on >a ~* +@all reset", Some("off resetchannels -@all")),
        // Commands of Redis that are not here.
        ("+@all -ZADD -eval", Some("off resetchannels +@all -zadd -eval")),
        ("+zadd +get -zadd", Some("off resetchannels -@all +get -zadd")),
        ("+xgroup|create +xgroup|destroy +xgroup", Some("off resetchannels -@all +xgroup")),
        ("-geoadd nocommands", Some("off resetchannels -@all")),
    ] {
        let made = user(rules);
        if let Some(described) = described {
            assert_eq!(made.describe(), described, "{rules}");
        }
        assert_eq!(user(&made.describe()), made, "{rules}");
    }
}

#[test]
fn bad_rules_are_named_in_redis_words() {
    for (rules, part) in [
        ("+nonsense", "Unknown command or category name in ACL"),
        ("+@nonsense", "Unknown command or category name in ACL"),
        ("+config|nonsense", "Unknown command or category name in ACL"),
        ("+zaddd", "Unknown command or category name in ACL"),
        ("+zadd|x", "Unknown command or category name in ACL"),
        ("+xgroup|nonsense", "Unknown command or category name in ACL"),
        ("+get|first", "allow or forbid the whole command"),
        ("nonsense", "Syntax error"),
        ("%X~a", "Syntax error"),
        ("%~a", "Syntax error"),
        ("%RR~a", "Syntax error"),
        ("#12", "exactly 64 characters"),
        ("<unknown", "does not exist"),
        ("allkeys ~a", "Try 'resetkeys'"),
        ("allchannels &a", "Try 'resetchannels'"),
        ("(+get)", "selectors are not supported"),
        ("sanitize-payload", "leave this rule out"),
    ] {
        let error = users(rules).unwrap_err();
        assert!(error.contains(part) && error.starts_with("\"u\", rule"), "{rules}: {error}");
    }
    let twice = Users::declared(None, [("u", "on"), ("u", "off")]).unwrap_err();
    assert!(twice.contains("twice"), "{twice}");
    assert!(Users::declared(None, [("a b", "on")]).is_err());
}

#[test]
fn nothing_changes_where_one_rule_is_bad() {
    let mut users = users("on nopass").unwrap();
    let bad = users.change("u", [b"off".as_slice(), b"bad"].into_iter()).unwrap_err();
    assert_eq!(bad, BadRule { rule: b"bad".to_vec(), why: "Syntax error" });
    assert!(users.get("u").unwrap().is_on());
}

#[test]
fn passwords_let_in_and_nothing_else_does() {
    let users =
        users("on >one >two <two #2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae").unwrap();
    for (password, right) in [("one", true), ("two", false), ("foo", true), ("", false)] {
        assert_eq!(users.authenticate(b"u", password.as_bytes()).is_some(), right, "{password}");
    }
    assert!(users.authenticate(b"nobody", b"one").is_none());
    assert!(users.authenticate(b"default", b"anything").is_some());
    let mut users = users;
    users.set_requirepass(Some("secret"));
    assert!(users.authenticate(b"default", b"anything").is_none());
    assert!(users.authenticate(b"default", b"secret").is_some() && !users.are_open());
    users.change("u", [b"off".as_slice()].into_iter()).unwrap();
    assert!(users.authenticate(b"u", b"one").is_none());
}

#[test]
fn a_login_follows_its_user() {
    /// Asked without and with what is remembered.
    fn now<'a>(users: &'a Users, login: &'a mut Login) -> Option<&'a Arc<User>> {
        let before = users.now(login).cloned();
        users.refresh(login);
        assert_eq!(users.now(login), before.as_ref());
        users.now(login)
    }
    let mut users = users("on nopass ~a").unwrap();
    let mut login = users.authenticate(b"u", b"").unwrap();
    assert!(now(&users, &mut login).unwrap().may_touch(b"a", Access::BOTH));
    users.change("u", [b"resetkeys".as_slice()].into_iter()).unwrap();
    assert!(!now(&users, &mut login).unwrap().may_touch(b"a", Access::BOTH));
    assert!(users.delete("u") && !users.delete("u") && !users.delete(DEFAULT));
    assert_eq!(now(&users, &mut login), None);
    assert_eq!(&**users.now(&Login::default()).unwrap().name(), DEFAULT);
}

#[test]
fn commands_follow_from_rules_in_order() {
    let user = user("+@all -@dangerous -config +config|get +flushall -get");
    for (name, allowed) in [
        ("set", true),
        ("get", false),
        ("keys", false),
        ("flushall", true),
        ("config|set", false),
        ("config|get", true),
        ("acl|whoami", true),
        ("acl|setuser", false),
    ] {
        assert_eq!(may(&user, name), allowed, "{name}");
    }
    assert!(!user.may_everything());
}

#[test]
fn every_category_of_a_command_is_known() {
    for command in Command::all() {
        for name in crate::command::categories(command.spec) {
            assert!(find_category(&name.as_bytes()[1..]).is_some(), "{name}");
        }
    }
    let get = lookup(b"get").unwrap();
    let numbered = Command::all().find(|it| std::ptr::eq(it.spec, get)).unwrap();
    assert_eq!(numbered.number, get.number(COMMANDS));
}

#[test]
fn keys_and_channels_match_patterns() {
    let user = user("~app:* %R~shared:* %W~log:* &news.*");
    for (key, access, allowed) in [
        ("app:1", Access::BOTH, true),
        ("shared:1", Access::READ, true),
        ("shared:1", Access::WRITE, false),
        ("shared:1", Access::ASK, true),
        ("log:1", Access::WRITE, true),
        ("log:1", Access::BOTH, false),
        ("other", Access::ASK, false),
    ] {
        assert_eq!(user.may_touch(key.as_bytes(), access), allowed, "{key} {access:?}");
    }
    for (prefix, allowed) in
        [("app:", true), ("app:x", true), ("shared:", true), ("log:", false), ("", false)]
    {
        assert_eq!(user.may_read_all(prefix.as_bytes()), allowed, "{prefix}");
    }
    assert!(user.may_use_channel(b"news.1") && !user.may_use_channel(b"other"));
    assert!(user.may_use_pattern(b"news.*") && !user.may_use_pattern(b"news.1*"));
}

#[test]
fn who_writes_owns_what_a_pattern_says_literally() {
    let declared =
        [("a", r"~app:* ~app:[0-9] ~a\*b?c ~*"), ("b", "~app:b:* %R~app:* ~plain"), ("c", "%R~x* ~*")];
    // No user owns all keys, in spite of the patterns before.
    let users = Users::declared(None, declared).unwrap();
    let owners = |users: &Users| {
        let owners = users.owners()?;
        Ok(owners.into_iter().map(|it| format!("{}={}", it.prefix, it.name)).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(owners(&users), Ok::<_, SharedPrefix>("app:b:=b plain=b".to_owned()));
    let users = Users::declared(None, [("a", r"~app:* ~app:[0-9] ~a\*b?c"), declared[1]]).unwrap();
    assert_eq!(owners(&users), Ok("a*b=a app:=a app:b:=b plain=b".to_owned()));
    let users = Users::declared(None, [("a", "~app:*"), ("b", "~app:?")]).unwrap();
    let error = users.owners().unwrap_err().to_string();
    assert!(error.contains("\"a\" and \"b\"") && error.contains("%R~app:*"), "{error}");
}
