//! The command `COMMAND` of the Redis protocol: descriptions of all commands and subcommands, from their rows in the
//! table of commands (`COMMANDS` of farpool_kv).

use super::host::Done;
use farpool_kv::resp::Replies;
use farpool_kv::{Args, COMMANDS, Command, KeyUse, Keys, Pattern, Refusal, command};

pub(super) const HELP: &[&str] = &[
    "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "(no subcommand)",
    "    Describe all commands.",
    "COUNT",
    "    Return the number of commands.",
    "LIST [FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)]",
    "    Return the names of commands and subcommands.",
    "INFO [<command> ...]",
    "    Describe commands, all of them if none is named.",
    "DOCS [<command> ...]",
    "    Document commands, all of them if none is named.",
    "GETKEYS <command> <arg> [<arg> ...]",
    "    Return the keys of a command.",
    "GETKEYSANDFLAGS <command> <arg> [<arg> ...]",
    "    Return the keys of a command, and what it does with them.",
];

/// ACL categories, in the order of Redis' replies.
const CATEGORIES: &[&str] = &[
    "keyspace",
    "read",
    "write",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "admin",
    "fast",
    "slow",
    "dangerous",
    "connection",
    "transaction",
];

/// Returns the ACL categories of a command: those that follow from its flags and its group, as in Redis, and those in
/// its row.
fn categories(command: &Command) -> Vec<&'static str> {
    let is_container = command.flags.is_empty() && command.subcommands().next().is_some();
    let of_group = match command.description.group {
        _ if is_container => "",
        "bitmap" => "bitmap",
        "connection" => "connection",
        "generic" => "keyspace",
        "hash" => "hash",
        "hyperloglog" => "hyperloglog",
        "string" => "string",
        "transactions" => "transaction",
        _ => "",
    };
    let has = |category: &&&str| match **category {
        "read" => command.has_flag("readonly"),
        "write" => command.has_flag("write"),
        "fast" => command.has_flag("fast"),
        "slow" => !command.has_flag("fast"),
        "admin" | "dangerous" if command.has_flag("admin") => true,
        category => {
            category == of_group || words(command.description.categories).any(|word| word == category)
        }
    };
    CATEGORIES.iter().filter(has).copied().collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').filter(|word| !word.is_empty())
}

/// Returns the command or subcommand with this full name, such as `client|list`; `None` if there is none. Case is
/// ignored.
fn find(name: &[u8]) -> Option<&'static Command> {
    let name = name.to_ascii_lowercase();
    let found = COMMANDS.binary_search_by(|command| command.name.as_bytes().cmp(&name));
    found.ok().map(|at| &COMMANDS[at])
}

fn commands() -> impl Iterator<Item = &'static Command> {
    COMMANDS.iter().filter(|command| !command.is_subcommand())
}

/// Executes `COMMAND`: replies with the properties of all commands.
pub(super) fn tell_all(replies: &mut Replies<'_>) {
    replies.array(commands().count());
    commands().for_each(|command| tell_info(command, replies));
}

pub(super) fn tell_count(replies: &mut Replies<'_>) {
    replies.integer(commands().count() as i64);
}

/// Executes `COMMAND INFO`: replies with the properties of the named commands (null for unknown names), or of all
/// commands if none is named.
pub(super) fn tell_some(names: &Args<'_>, replies: &mut Replies<'_>) {
    if names.is_empty() {
        tell_all(replies);
        return;
    }
    replies.array(names.len());
    for name in names {
        match find(name) {
            Some(command) => tell_info(command, replies),
            None => replies.null(),
        }
    }
}

/// Executes `COMMAND LIST`: replies with the names of all commands, or of those that a filter selects.
pub(super) fn tell_names(filter: &Args<'_>, replies: &mut Replies<'_>) -> Done {
    let found = listed(filter)?;
    replies.array(found.len());
    found.iter().for_each(|command| replies.bulk(command.name.as_bytes()));
    Ok(())
}

/// Executes `COMMAND GETKEYS`: replies with the keys among the arguments of a whole command.
pub(super) fn tell_keys(whole: &Args<'_>, replies: &mut Replies<'_>) -> Done {
    let found = keys_of(whole)?;
    replies.array(found.len());
    found.iter().for_each(|(key, _)| replies.bulk(key));
    Ok(())
}

/// Executes `COMMAND GETKEYSANDFLAGS`: replies with the keys among the arguments of a whole command, and how the
/// command uses each.
pub(super) fn tell_keys_and_flags(whole: &Args<'_>, replies: &mut Replies<'_>) -> Done {
    let found = keys_of(whole)?;
    replies.array(found.len());
    for (key, flags) in found {
        replies.array(2);
        replies.bulk(key);
        tell_words(&flags, replies);
    }
    Ok(())
}

/// Returns the commands and subcommands selected by the arguments of `COMMAND LIST`.
fn listed(filter: &Args<'_>) -> Result<Vec<&'static Command>, Refusal> {
    let (by, what) = match filter {
        [] => return Ok(COMMANDS.iter().collect()),
        [word, by, what] if word.eq_ignore_ascii_case(b"filterby") => (by.to_ascii_lowercase(), *what),
        _ => return Err("ERR syntax error".into()),
    };
    let pattern = Pattern::new(&what.to_ascii_lowercase())?;
    let has = |command: &&Command| match by.as_slice() {
        b"aclcat" => {
            categories(command).iter().any(|category| what.eq_ignore_ascii_case(category.as_bytes()))
        }
        b"pattern" => pattern.matches(command.name.as_bytes()),
        // The filter `MODULE` selects nothing, because this server has no modules.
        _ => false,
    };
    match by.as_slice() {
        b"aclcat" | b"pattern" | b"module" => Ok(COMMANDS.iter().filter(has).collect()),
        _ => Err("ERR syntax error".into()),
    }
}

/// A key, and Redis' flags that say how a command uses it.
type FlaggedKey<'a> = (&'a [u8], Vec<&'static str>);

/// Returns the keys among the arguments of a whole command (name included), with the flags of their use.
fn keys_of<'a>(whole: &Args<'a>) -> Result<Vec<FlaggedKey<'a>>, Refusal> {
    let command = command(whole).filter(|command| !command.lacks_subcommand(whole));
    let command = command.ok_or("ERR Invalid command specified")?;
    if command.key_uses.is_empty() {
        return Err("ERR The command has no key arguments".into());
    }
    if !command.takes(whole.len()) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let flags = |flags: &'static str| match command.name {
        // `SET` reads the old value only with the option `GET`.
        "set" if whole.iter().skip(3).any(|option| option.eq_ignore_ascii_case(b"get")) => {
            vec!["RW", "access", "update"]
        }
        "set" => vec!["OW", "update"],
        _ => flags.split(',').collect(),
    };
    let used = command.key_uses.iter().flat_map(|KeyUse(of_use, keys)| {
        let flags = flags(of_use);
        keys.of(whole).map(move |key| (key, flags.clone()))
    });
    Ok(used.collect())
}

/// Returns the position of the first key, that of the last key, and the step, as Redis reports them; zeros if there are
/// no keys.
fn positions(keys: Keys) -> [i64; 3] {
    match keys {
        Keys::None | Keys::All => [0; 3],
        Keys::At { first, last, step } => [first as i64, last as i64, step as i64],
    }
}

fn tell_words(words: &[&str], replies: &mut Replies<'_>) {
    replies.set(words.len());
    words.iter().for_each(|word| replies.simple(word));
}

fn tell_info(command: &Command, replies: &mut Replies<'_>) {
    replies.array(10);
    replies.bulk(command.name.as_bytes());
    replies.integer(command.arity as i64);
    tell_words(&words(command.flags).collect::<Vec<_>>(), replies);
    positions(command.keys).iter().for_each(|number| replies.integer(*number));
    let categories = categories(command);
    replies.set(categories.len());
    categories.iter().for_each(|category| replies.simple(&format!("@{category}")));
    let tips = command.description.tips;
    replies.set(words(tips).count());
    words(tips).for_each(|tip| replies.bulk(tip.as_bytes()));
    replies.set(command.key_uses.len());
    command.key_uses.iter().for_each(|key_use| tell_key_use(*key_use, replies));
    replies.set(command.subcommands().count());
    command.subcommands().for_each(|command| tell_info(command, replies));
}

fn tell_key_use(KeyUse(flags, keys): KeyUse, replies: &mut Replies<'_>) {
    let [first, last, step] = positions(keys);
    // If not counted from the end, the last position is reported as the distance from the first key.
    let last = if last < 0 { last } else { last - first };
    replies.map(3);
    replies.bulk(b"flags");
    tell_words(&flags.split(',').collect::<Vec<_>>(), replies);
    replies.bulk(b"begin_search");
    replies.map(2);
    tell_pairs(&[("type", "index")], replies);
    replies.bulk(b"spec");
    replies.map(1);
    tell_numbers(&[("index", first)], replies);
    replies.bulk(b"find_keys");
    replies.map(2);
    tell_pairs(&[("type", "range")], replies);
    replies.bulk(b"spec");
    replies.map(3);
    tell_numbers(&[("lastkey", last), ("keystep", step), ("limit", 0)], replies);
}

fn tell_pairs(pairs: &[(&str, &str)], replies: &mut Replies<'_>) {
    for (name, value) in pairs {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
}

fn tell_numbers(pairs: &[(&str, i64)], replies: &mut Replies<'_>) {
    for (name, number) in pairs {
        replies.bulk(name.as_bytes());
        replies.integer(*number);
    }
}

/// Executes `COMMAND DOCS`: replies with the documentation of all commands, or of the named ones.
pub(super) fn tell_docs(names: &Args<'_>, replies: &mut Replies<'_>) {
    let found: Vec<&Command> = match names {
        [] => commands().collect(),
        names => names.iter().filter_map(|name| find(name)).collect(),
    };
    replies.map(found.len());
    found.into_iter().for_each(|command| tell_doc(command, replies));
}

fn tell_doc(command: &Command, replies: &mut Replies<'_>) {
    let subcommands: Vec<_> = command.subcommands().collect();
    let about = &command.description;
    replies.bulk(command.name.as_bytes());
    replies.map(3 + usize::from(!subcommands.is_empty()));
    tell_pairs(&[("summary", about.summary), ("since", about.since), ("group", about.group)], replies);
    if !subcommands.is_empty() {
        replies.bulk(b"subcommands");
        replies.map(subcommands.len());
        subcommands.into_iter().for_each(|command| tell_doc(command, replies));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Node;
    use crate::node::NodeConfig;
    use crate::resp::host::Client;
    use farpool_kv::Host;
    use farpool_kv::resp::Protocol;
    use std::sync::{Arc, LazyLock};

    static NODE: LazyLock<Arc<Node>> = LazyLock::new(|| {
        Node::start(NodeConfig { memory_bytes: 16 << 20, ..NodeConfig::default() }).unwrap()
    });

    fn told(text: &str, protocol: Protocol) -> String {
        let args: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        let mut client = Client::new(&NODE, &Arc::default(), 1, ("peer".into(), "local".into()));
        let mut bytes = Vec::new();
        let mut replies = Replies::new(&mut bytes, protocol);
        let row = command(&args).unwrap();
        let checked = row.check(&args);
        let run = |()| client.run((row, row.of_host().unwrap()), &args, &mut replies);
        if let Err(refusal) = checked.and_then(run) {
            replies.error(&*refusal.0);
        }
        String::from_utf8(bytes).unwrap().replace("\r\n", " ")
    }

    #[test]
    fn every_row_is_described() {
        for command in COMMANDS {
            let about = &command.description;
            assert!([about.group, about.since, about.summary].iter().all(|text| !text.is_empty()));
            assert!(words(about.categories).all(|category| CATEGORIES.contains(&category)), "{command:?}");
            let writes = command.may_write();
            assert!(!writes || !command.has_flag("readonly"), "{command:?}");
            assert_eq!(
                command.is_subcommand(),
                commands().all(|top| top.name != command.name),
                "{command:?}"
            );
        }
    }

    /// Compares with the replies of Redis 7.0.15.
    #[test]
    fn commands_are_described_as_redis_does() {
        let get = "*1 *10 $3 get :2 *2 +readonly +fast :1 :1 :1 *3 +@read +@string +@fast *0 *1 *6 $5 flags *2 +RO \
                   +access $12 begin_search *4 $4 type $5 index $4 spec *2 $5 index :1 $9 find_keys *4 $4 type \
                   $5 range $4 spec *6 $7 lastkey :0 $7 keystep :1 $5 limit :0 *0 ";
        assert_eq!(told("command info GET", Protocol::Resp2), get);
        for name in ["get|key", "config|get|key", "nope"] {
            assert_eq!(told(&format!("command info {name}"), Protocol::Resp2), "*1 $-1 ");
        }
        let told = |command: &str| told(command, Protocol::Resp2);
        assert_eq!(told("command getkeys memory usage key"), "*1 $3 key ");
        assert_eq!(told("command getkeys mset a 1 b 2"), "*2 $1 a $1 b ");
        assert_eq!(told("command getkeys mset a"), "-ERR Invalid number of arguments specified for command ");
        assert_eq!(
            told("command getkeys get"),
            "-ERR wrong number of arguments for 'command|getkeys' command "
        );
        assert_eq!(told("command getkeys nope a"), "-ERR Invalid command specified ");
        assert_eq!(told("command getkeys object k"), "-ERR Invalid command specified ");
        assert_eq!(told("command getkeys ping a"), "-ERR The command has no key arguments ");
        assert_eq!(
            told("command getkeysandflags pfmerge a b c"),
            "*3 *2 $1 a *3 +RW +access +insert *2 $1 b *2 +RO +access *2 $1 c *2 +RO +access "
        );
        assert_eq!(told("command getkeysandflags set k v"), "*1 *2 $1 k *2 +OW +update ");
        assert_eq!(told("command getkeysandflags set k v get"), "*1 *2 $1 k *3 +RW +access +update ");
        assert_eq!(told("command foo"), "-ERR unknown subcommand 'foo'. Try COMMAND HELP. ");
        assert_eq!(told("command docs nope"), "*0 ");
        assert!(told("command docs config").contains("$10 config|set *6 $7 summary "));
        assert_eq!(told("command count x"), "-ERR wrong number of arguments for 'command|count' command ");
    }

    #[test]
    fn names_are_listed_by_pattern_and_category() {
        let told = |command: &str| told(command, Protocol::Resp2);
        assert_eq!(told("command list filterby pattern SET"), "*1 $3 set ");
        assert_eq!(told("command list filterby pattern config|*re*"), "*1 $16 config|resetstat ");
        assert_eq!(told("command list filterby ACLCAT hyperloglog"), "*3 $5 pfadd $7 pfcount $7 pfmerge ");
        for nothing in ["pattern none*", "aclcat none", "module none"] {
            assert_eq!(told(&format!("command list filterby {nothing}")), "*0 ");
        }
        for wrong in ["x", "filterby x", "filterby x y", "filterby pattern"] {
            assert_eq!(told(&format!("command list {wrong}")), "-ERR syntax error ");
        }
        assert!(told("command list").contains("$11 client|list "));
    }
}
