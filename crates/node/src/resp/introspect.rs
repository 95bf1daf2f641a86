//! `COMMAND`: descriptions of all commands and subcommands, from `commands.tsv`.

use super::host::{Done, tell_help, unknown_subcommand, wrong_number_of};
use farpool_kv::resp::Replies;
use farpool_kv::{Args, Pattern};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The description of a command, or of a subcommand, whose name is written as `client|list`.
pub(super) struct About {
    pub name: &'static str,
    /// Number of arguments including the name; if negative, the least number.
    pub arity: i64,
    flags: Vec<&'static str>,
    /// Positions of the first and the last key, and the distance between keys.
    pub keys: [i64; 3],
    categories: Vec<&'static str>,
    tips: Vec<&'static str>,
    groups: Vec<KeyGroup>,
    group: &'static str,
    since: &'static str,
    summary: &'static str,
}

/// A group of keys that a command uses in the same way.
struct KeyGroup {
    flags: Vec<&'static str>,
    first: i64,
    /// Distance from the first key to the last; if negative, the position counted from the end.
    last: i64,
    step: i64,
    limit: i64,
}

/// All descriptions, by name.
static ALL: LazyLock<BTreeMap<&'static str, About>> = LazyLock::new(|| {
    let lines = include_str!("commands.tsv").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(About::of_line).map(|about| (about.name, about)).collect()
});

impl About {
    fn of_line(line: &'static str) -> Option<About> {
        let mut fields = line.split('\t');
        let mut next = || fields.next();
        let words = |text: &'static str| text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>();
        let (name, arity, flags) = (next()?, next()?.parse().ok()?, words(next()?));
        let keys = words(next()?).iter().map(|number| number.parse().ok()).collect::<Option<Vec<i64>>>()?;
        let (categories, tips) = (words(next()?), words(next()?));
        let groups = next()?.split(';').filter(|group| !group.is_empty());
        let groups = groups.map(KeyGroup::of).collect::<Option<Vec<_>>>()?;
        let (group, since, summary) = (next()?, next()?, next()?);
        let keys = keys.try_into().ok()?;
        Some(About { name, arity, flags, keys, categories, tips, groups, group, since, summary })
    }

    /// Returns whether the command takes this number of arguments, including its name.
    pub fn takes(&self, arguments: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { arguments >= least } else { arguments == least }
    }

    fn is_subcommand(&self) -> bool {
        self.name.contains('|')
    }

    fn subcommands(&self) -> impl Iterator<Item = &'static About> {
        let of = if self.is_subcommand() { "" } else { self.name };
        ALL.values().filter(move |about| about.name.split_once('|').is_some_and(|(command, _)| command == of))
    }
}

impl KeyGroup {
    /// Parses `flag,flag@first:last:step:limit`.
    fn of(text: &'static str) -> Option<KeyGroup> {
        let (flags, numbers) = text.split_once('@')?;
        let numbers = numbers.split(':').map(|number| number.parse().ok()).collect::<Option<Vec<_>>>()?;
        let [first, last, step, limit] = numbers.try_into().ok()?;
        Some(KeyGroup { flags: flags.split(',').collect(), first, last, step, limit })
    }

    fn keys<'a>(&self, args: &Args<'a>) -> Vec<&'a [u8]> {
        let last = if self.last < 0 { args.len() as i64 + self.last } else { self.first + self.last };
        let step = usize::try_from(self.step).unwrap_or(1).max(1);
        let places = (self.first..=last).step_by(step);
        places.filter_map(|at| args.get(usize::try_from(at).ok()?).copied()).collect()
    }
}

/// Returns the command, or subcommand, with this name; case is ignored.
fn find(name: &[u8]) -> Option<&'static About> {
    let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
    ALL.get(&*name)
}

/// Returns the command that the arguments name, or its subcommand if it has subcommands; `None` if it does not exist.
pub(super) fn asked(args: &Args<'_>) -> Option<&'static About> {
    let command = find(args.first()?).filter(|about| !about.is_subcommand())?;
    match args.get(1) {
        Some(name) if command.subcommands().next().is_some() => {
            find(&[command.name.as_bytes(), b"|", name].concat())
        }
        _ => Some(command),
    }
}

/// Replies to `COMMAND`.
pub(super) fn tell(args: &Args<'_>, replies: &mut Replies<'_>) -> Done {
    let Some(name) = args.get(1) else {
        tell_all(replies);
        return Ok(());
    };
    match (name.to_ascii_lowercase().as_slice(), &args[2..]) {
        (b"count", []) => replies.integer(commands().count() as i64),
        (b"docs", names) => tell_docs(names, replies),
        (b"info", []) => tell_all(replies),
        (b"info", names) => {
            replies.array(names.len());
            for name in names {
                match find(name) {
                    Some(about) => tell_info(about, replies),
                    None => replies.null(),
                }
            }
        }
        (b"list", filter) => {
            let found = listed(filter)?;
            replies.array(found.len());
            found.iter().for_each(|about| replies.bulk(about.name.as_bytes()));
        }
        (b"getkeys", whole @ [_, _, ..]) => {
            let found = keys_of(whole)?;
            replies.array(found.len());
            found.iter().for_each(|(key, _)| replies.bulk(key));
        }
        (b"getkeysandflags", whole @ [_, _, ..]) => {
            let found = keys_of(whole)?;
            replies.array(found.len());
            for (key, flags) in found {
                replies.array(2);
                replies.bulk(key);
                tell_words(&flags, replies);
            }
        }
        (b"help", []) => tell_help(HELP, replies),
        (known, _) if find(&[b"command|", known].concat()).is_some() => {
            return Err(wrong_number_of("command", known));
        }
        (unknown, _) => return Err(unknown_subcommand("COMMAND", unknown)),
    }
    Ok(())
}

const HELP: &[&str] = &[
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

fn commands() -> impl Iterator<Item = &'static About> {
    ALL.values().filter(|about| !about.is_subcommand())
}

fn tell_all(replies: &mut Replies<'_>) {
    replies.array(commands().count());
    commands().for_each(|about| tell_info(about, replies));
}

/// Returns the number of commands and subcommands.
pub(super) fn count() -> usize {
    ALL.len()
}

/// Returns the commands and subcommands selected by the arguments of `COMMAND LIST`.
fn listed(filter: &Args<'_>) -> std::result::Result<Vec<&'static About>, farpool_kv::Refusal> {
    let (by, what) = match filter {
        [] => return Ok(ALL.values().collect()),
        [word, by, what] if word.eq_ignore_ascii_case(b"filterby") => (by.to_ascii_lowercase(), *what),
        _ => return Err("ERR syntax error".into()),
    };
    let pattern = Pattern::new(&what.to_ascii_lowercase())?;
    let has = |about: &About| match by.as_slice() {
        b"aclcat" => about.categories.iter().any(|category| what.eq_ignore_ascii_case(category.as_bytes())),
        b"pattern" => pattern.matches(about.name.as_bytes()),
        // There are no modules.
        _ => false,
    };
    match by.as_slice() {
        b"aclcat" | b"pattern" | b"module" => Ok(ALL.values().filter(|about| has(about)).collect()),
        _ => Err("ERR syntax error".into()),
    }
}

type KeyUse<'a> = (&'a [u8], Vec<&'static str>);

/// Returns the keys of a command and how it uses them.
fn keys_of<'a>(whole: &Args<'a>) -> std::result::Result<Vec<KeyUse<'a>>, farpool_kv::Refusal> {
    let about = asked(whole).ok_or("ERR Invalid command specified")?;
    if about.groups.is_empty() {
        return Err("ERR The command has no key arguments".into());
    }
    if !about.takes(whole.len()) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let flags = |group: &KeyGroup| match about.name {
        // `SET` reads the old value only with the option `GET`.
        "set" if whole.iter().skip(3).any(|option| option.eq_ignore_ascii_case(b"get")) => {
            vec!["RW", "access", "update"]
        }
        "set" => vec!["OW", "update"],
        _ => group.flags.clone(),
    };
    let used = about.groups.iter().flat_map(|group| {
        let flags = flags(group);
        group.keys(whole).into_iter().map(move |key| (key, flags.clone()))
    });
    Ok(used.collect())
}

fn tell_words(words: &[&str], replies: &mut Replies<'_>) {
    replies.set(words.len());
    words.iter().for_each(|word| replies.simple(word));
}

fn tell_info(about: &About, replies: &mut Replies<'_>) {
    replies.array(10);
    replies.bulk(about.name.as_bytes());
    replies.integer(about.arity);
    tell_words(&about.flags, replies);
    about.keys.iter().for_each(|number| replies.integer(*number));
    replies.set(about.categories.len());
    about.categories.iter().for_each(|category| replies.simple(&format!("@{category}")));
    replies.set(about.tips.len());
    about.tips.iter().for_each(|tip| replies.bulk(tip.as_bytes()));
    replies.set(about.groups.len());
    about.groups.iter().for_each(|group| tell_group(group, replies));
    replies.set(about.subcommands().count());
    about.subcommands().for_each(|about| tell_info(about, replies));
}

fn tell_group(group: &KeyGroup, replies: &mut Replies<'_>) {
    replies.map(3);
    replies.bulk(b"flags");
    tell_words(&group.flags, replies);
    replies.bulk(b"begin_search");
    replies.map(2);
    tell_pairs(&[("type", "index")], replies);
    replies.bulk(b"spec");
    replies.map(1);
    tell_numbers(&[("index", group.first)], replies);
    replies.bulk(b"find_keys");
    replies.map(2);
    tell_pairs(&[("type", "range")], replies);
    replies.bulk(b"spec");
    replies.map(3);
    let numbers = [("lastkey", group.last), ("keystep", group.step), ("limit", group.limit)];
    tell_numbers(&numbers, replies);
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

fn tell_docs(names: &Args<'_>, replies: &mut Replies<'_>) {
    let found: Vec<&About> = match names {
        [] => commands().collect(),
        names => names.iter().filter_map(|name| find(name)).collect(),
    };
    replies.map(found.len());
    found.into_iter().for_each(|about| tell_doc(about, replies));
}

fn tell_doc(about: &About, replies: &mut Replies<'_>) {
    let subcommands: Vec<_> = about.subcommands().collect();
    replies.bulk(about.name.as_bytes());
    replies.map(3 + usize::from(!subcommands.is_empty()));
    tell_pairs(&[("summary", about.summary), ("since", about.since), ("group", about.group)], replies);
    if !subcommands.is_empty() {
        replies.bulk(b"subcommands");
        replies.map(subcommands.len());
        subcommands.into_iter().for_each(|about| tell_doc(about, replies));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::host::OWN;
    use farpool_kv::resp::Protocol;
    use farpool_kv::{COMMANDS, Keys};

    fn told(command: &str, protocol: Protocol) -> String {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let mut bytes = Vec::new();
        let mut replies = Replies::new(&mut bytes, protocol);
        if let Err(refusal) = tell(&words, &mut replies) {
            replies.error(&*refusal.0);
        }
        String::from_utf8(bytes).unwrap().replace("\r\n", " ")
    }

    #[test]
    fn the_list_has_every_command_as_it_is_carried_out() {
        let lines = include_str!("commands.tsv").lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(ALL.len(), lines, "every line is understood, once");
        for command in COMMANDS {
            let about =
                find(command.name.as_bytes()).unwrap_or_else(|| panic!("{} is missing", command.name));
            assert_eq!(about.arity, command.arity as i64, "{}", command.name);
            // Commands whose subcommands have keys have none themselves.
            let expected = match command.keys {
                Keys::At { first, last, step } if about.subcommands().next().is_none() => {
                    [first as i64, last as i64, step as i64]
                }
                _ => [0; 3],
            };
            assert_eq!(about.keys, expected, "{}", command.name);
            let says_write = about.flags.contains(&"write")
                || about.subcommands().any(|about| about.flags.contains(&"write"));
            assert_eq!(says_write, command.may_write(), "{}", command.name);
        }
        for (name, arity) in OWN {
            let about = find(name.as_bytes()).unwrap_or_else(|| panic!("{name} is missing"));
            assert_eq!(about.arity, *arity as i64, "{name}");
        }
        let of_sessions = ["multi", "exec", "discard", "watch", "unwatch", "select"];
        assert_eq!(commands().count(), COMMANDS.len() + OWN.len() + of_sessions.len());
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
