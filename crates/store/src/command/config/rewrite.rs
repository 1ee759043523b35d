//! Rewriting of a configuration file: values are updated, everything else stays as its author wrote it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use tiermem_base::{Bytes, TierKind};
use toml_edit::{DocumentMut, Item, Table, Value};

use super::parameter::{Access, Form, Live, Parameter, Problem, TIER_SECTION};
use super::table::PARAMETERS;
use super::users;

/// The file's text with the present values: each that it has and that differs, and each that is not the default's.
/// Comments, order and what the text does not concern stay.
pub(super) fn rewritten(text: &str, live: &Live) -> Result<String, Problem> {
    let mut document: DocumentMut = text.parse().map_err(|error| format!("it is not valid TOML: {error}"))?;
    for parameter in PARAMETERS {
        let Access::Live { form, get, set } = parameter.access else { continue };
        let (section, key) = parameter.place;
        if section == TIER_SECTION {
            continue;
        }
        let present = get(live);
        let old = document.get(section).and_then(|section| section.get(key)).and_then(Item::as_value);
        let told = old.map(file_text).unwrap_or_else(|| Some(get(&Live::default())));
        // What the file says is read by the parameter itself: "1MiB" and "1048576" are the same size.
        let means = told.and_then(|told| {
            let mut reading = live.clone();
            set(&mut reading, &told).ok().map(|()| get(&reading))
        });
        if means.as_ref() != Some(&present) {
            put(&mut document, parameter, file_value(form, &present)?)?;
        }
    }
    put_flash_capacity(&mut document, live.flash_bytes)?;
    users::put(&mut document, &live.server.users)?;
    Ok(document.to_string())
}

/// A file's value as text for `CONFIG SET`.
fn file_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.value().clone()),
        Value::Integer(number) => Some(number.value().to_string()),
        Value::Float(number) => Some(number.value().to_string()),
        Value::Boolean(flag) => Some(if *flag.value() { "yes" } else { "no" }.to_owned()),
        _ => None,
    }
}

fn file_value(form: Form, text: &str) -> Result<Value, Problem> {
    let unreadable = || format!("{text:?} has no form in a file");
    Ok(match form {
        Form::Word => text.into(),
        Form::Number => text.parse::<i64>().map_err(|_| unreadable())?.into(),
        Form::Share => text.parse::<f64>().map_err(|_| unreadable())?.into(),
        Form::Switch => (text == "yes").into(),
        Form::Seconds if text.ends_with('s') => text.into(),
        Form::Seconds => format!("{text}s").into(),
        Form::Size => {
            let bytes: u64 = text.parse().map_err(|_| unreadable())?;
            let short = Bytes(bytes).to_string();
            // A size that is printed rounded is written as its bytes.
            if short.parse() == Ok(Bytes(bytes)) { short.into() } else { text.into() }
        }
    })
}

/// Sets a value in its section, which is made if the file has none. What stood around the old one stays.
fn put(document: &mut DocumentMut, parameter: &Parameter, mut value: Value) -> Result<(), Problem> {
    let (section, key) = parameter.place;
    let table = document.entry(section).or_insert_with(|| Item::Table(Table::new()));
    let table = table.as_table_like_mut().ok_or_else(|| format!("[{section}] is no table there"))?;
    if let Some(old) = table.get(key).and_then(Item::as_value) {
        *value.decor_mut() = old.decor().clone();
    }
    table.insert(key, Item::Value(value));
    Ok(())
}

/// Brings the capacity of the file's flash tier, if it has one, up to what the device has grown to. A device that has a little
/// less, for it grows by whole segments, has what the file says.
fn put_flash_capacity(document: &mut DocumentMut, bytes: u64) -> Result<(), Problem> {
    let tiers = document.get_mut(TIER_SECTION).and_then(Item::as_array_of_tables_mut);
    let is_flash =
        |tier: &&mut Table| tier.get("kind").and_then(Item::as_str) == Some(TierKind::Flash.name());
    let Some(tier) = tiers.into_iter().flat_map(|it| it.iter_mut()).find(is_flash) else { return Ok(()) };
    let Some(old) = tier.get_mut("capacity").and_then(Item::as_value_mut) else { return Ok(()) };
    let told = file_text(old).and_then(|text| text.parse::<Bytes>().ok());
    if told.is_some_and(|Bytes(told)| told < bytes) {
        let mut value = file_value(Form::Size, &bytes.to_string())?;
        *value.decor_mut() = old.decor().clone();
        *old = value;
    }
    Ok(())
}

/// Replaces the file by `text` and keeps its permissions. No reader ever sees half of it.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    // A link stays a link.
    let path = fs::canonicalize(path)?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let new = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let write = || -> io::Result<()> {
        let mut file = File::create(&new)?;
        // Before there is anything in it to read: it may hold a password.
        file.set_permissions(fs::metadata(&path)?.permissions())?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_policy::ladder::Eviction;

    const FILE: &str = "\
# Ours.
max_value = \"1MiB\" # short

[server]
listen = \"127.0.0.1:1\"
maxclients = 100       # as many as there are
output_buffer = \"1MiB\"
timeout = \"30s\"

[[tier]]
name = \"dram\"
";

    fn live() -> Live {
        let mut live = Live::default();
        (live.server.maxclients, live.server.timeout_ms) = (100, 30_000);
        live
    }

    #[test]
    fn nothing_changed_writes_nothing() {
        assert_eq!(rewritten(FILE, &live()).unwrap(), FILE);
    }

    #[test]
    fn what_changed_is_written_in_its_place_and_comments_stay() {
        let mut live = live();
        live.server.maxclients = 7;
        live.server.output_bytes_max = (1 << 20) + 1;
        live.server.timeout_ms = 500;
        live.server.stall_timeout_ms = 5;
        live.policy.eviction = Eviction::Forbidden;
        live.policy.proactive = false;
        live.policy.watermarks.low = 0.01;
        let text = rewritten(FILE, &live).unwrap();
        for line in [
            "# Ours.",
            "max_value = \"1MiB\" # short",
            "maxclients = 7       # as many as there are",
            "output_buffer = \"1048577\"",
            "timeout = \"500ms\"",
            "[policy]\nlow_watermark = 0.01\nwatermarks = false",
            "[config]\nmaxmemory-policy = \"noeviction\"\nstall-timeout-ms = 5",
            "listen = \"127.0.0.1:1\"",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert_eq!(rewritten(&text, &live).unwrap(), text, "what was written is understood");
    }

    #[test]
    fn a_flash_tier_that_has_grown_is_written_as_large_as_it_is() {
        const TIERS: &str = "\
[[tier]]
kind = \"dram\"
capacity = \"1GiB\"

[[tier]]
kind = \"flash\"
capacity = \"4GiB\" # of the disk's 9
";
        let with = |flash_bytes| rewritten(TIERS, &Live { flash_bytes, ..Live::default() }).unwrap();
        assert_eq!(with(4 << 30), TIERS);
        assert_eq!(with((4 << 30) - 5), TIERS, "it was rounded down");
        assert_eq!(with(0), TIERS);
        assert_eq!(with(6 << 30), TIERS.replace("\"4GiB\"", "\"6GiB\""));
        assert_eq!(
            rewritten(FILE, &Live { flash_bytes: 1, ..live() }).unwrap(),
            FILE,
            "it is not in the file"
        );
    }

    #[test]
    fn a_file_is_replaced_whole_with_its_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let directory = std::env::temp_dir().join(format!("tiermem-rewrite-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("store.toml");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        replace(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing is left behind");
        fs::remove_dir_all(directory).unwrap();
    }
}
