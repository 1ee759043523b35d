//! Redis's categories of commands, which ACL rules name.

use super::spec::{Flags, Group, Spec};

/// Commands that can delay or empty the store although every user may call them.
const DANGEROUS: [&str; 4] = ["flushall", "flushdb", "info", "keys"];

/// The access-control categories that follow from a command's flags and family.
pub(crate) fn categories(spec: &Spec) -> impl Iterator<Item = &'static str> + Clone + use<> {
    let flags = spec.flags;
    let family = match spec.group {
        // Redis counts telling of commands to the connection's.
        _ if spec.name == "command" || spec.container == "command" => Some("@connection"),
        // A container is in no family itself.
        _ if !spec.subcommands.is_empty() => None,
        Group::String => Some("@string"),
        Group::Hash => Some("@hash"),
        Group::Keyspace => Some("@keyspace"),
        Group::PubSub if spec.name != "help" => Some("@pubsub"),
        Group::Transaction => Some("@transaction"),
        Group::Connection => Some("@connection"),
        Group::Server | Group::PubSub => None,
    };
    let speed = if flags.contains(Flags::FAST) { "@fast" } else { "@slow" };
    // Redis puts this command into the administrators' category although every user may call it.
    let admin = flags.contains(Flags::ADMIN) || spec.name == "lastsave";
    [
        family,
        flags.contains(Flags::WRITE).then_some("@write"),
        flags.contains(Flags::READONLY).then_some("@read"),
        admin.then_some("@admin"),
        Some(speed),
        (admin || spec.container.is_empty() && DANGEROUS.contains(&spec.name)).then_some("@dangerous"),
    ]
    .into_iter()
    .flatten()
}
