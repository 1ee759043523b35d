//! Users in a configuration file: updates them when it is rewritten.

use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use super::parameter::Problem;
use crate::users::Users;

const KEY: &str = "user";

/// The file's rules of a user.
fn said(table: &Table) -> Option<(&str, &str)> {
    Some((table.get("name")?.as_str()?, table.get("rules")?.as_str()?))
}

/// Updates changed users in the file, removes deleted ones and adds new ones.
pub(super) fn put(document: &mut DocumentMut, users: &Users) -> Result<(), Problem> {
    let in_one_line = || "its users stand in one line: write each as a [[user]] of its own".to_owned();
    let none = ArrayOfTables::new();
    let tables = match document.get(KEY) {
        Some(item) => item.as_array_of_tables().ok_or_else(in_one_line)?,
        None => &none,
    };
    // Read with the password of now: where only that has changed, the users are the same.
    let told = Users::declared(users.requirepass(), tables.iter().filter_map(said))?;
    if told == *users {
        return Ok(());
    }
    let tables = document.entry(KEY).or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    let tables = tables.as_array_of_tables_mut().ok_or_else(in_one_line)?;
    tables.retain(|table| said(table).is_none_or(|(name, _)| users.get(name).is_some()));
    for user in users.iter().filter(|user| told.get(user.name()).is_none_or(|told| **told != **user)) {
        let rules = user.describe_for_file();
        let known =
            tables.iter_mut().find(|table| said(table).is_some_and(|(name, _)| *name == **user.name()));
        match known {
            Some(table) => table["rules"] = value(rules),
            None => {
                let mut table = Table::new();
                table.insert("name", value(&**user.name()));
                table.insert("rules", value(rules));
                tables.push(table);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
[[user]] # Ours.
name = \"app\"
rules = \"on >secret ~app:* +@all\" # known to nobody

[[user]]
name = \"old\"
rules = \"off\"

[[tier]]
name = \"dram\"
";

    fn written(text: &str, users: &Users) -> String {
        let mut document: DocumentMut = text.parse().unwrap();
        put(&mut document, users).unwrap();
        document.to_string()
    }

    fn change(users: &mut Users, name: &str, rules: &str) {
        users.change(name, rules.split(' ').map(str::as_bytes)).unwrap();
    }

    #[test]
    fn only_what_changed_is_written_and_it_makes_the_same_users() {
        let declared = [("app", "on >secret ~app:* +@all"), ("old", "off")];
        let mut users = Users::declared(None, declared).unwrap();
        assert_eq!(written(FILE, &users), FILE);
        assert!(users.delete("old"));
        change(&mut users, "new", "on nopass ~new:* +get");
        change(&mut users, "default", "resetkeys ~d -@dangerous");
        let text = written(FILE, &users);
        for part in [
            "[[user]] # Ours.\nname = \"app\"\nrules = \"on >secret ~app:* +@all\" # known to nobody",
            "name = \"new\"\nrules = \"on nopass ~new:* resetchannels -@all +get\"",
            "name = \"default\"\nrules = \"reset on nopass ~d &* +@all -@dangerous\"",
            "[[tier]]",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("old"), "{text}");
        assert_eq!(written(&text, &users), text, "what was written is understood");
        let document: DocumentMut = written("", &users).parse().unwrap();
        let tables = document[KEY].as_array_of_tables().unwrap();
        let told = Users::declared(None, tables.iter().filter_map(said)).unwrap();
        assert_eq!(told.get("new"), users.get("new"));
    }

    #[test]
    fn a_password_alone_writes_no_user() {
        let mut users = Users::default();
        users.set_requirepass(Some("secret"));
        assert_eq!(written("", &users), "");
    }
}
