//! Random commands of a client: of all kinds, on few keys, so that they often collide.

use crate::random::Random;

/// The parameters of a simulated client's random commands.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Maximal bytes of a usual value.
    pub bytes_max: usize,
    /// Number of plain keys; a few of them are used most often.
    pub keys: usize,
    /// Whether keys get an expiry.
    pub has_expiry: bool,
}

/// Number of fields of hashes without a schema.
const FIELDS: usize = 6;

/// Number of keys of a named keyspace.
const IDS: usize = 24;

/// Maximal number of milliseconds until a key expires.
const EXPIRY_MS: usize = 4_000;

/// Returns a random command on a given kind of keys; most commands change something.
pub fn random_command(random: &mut Random, habits: &Habits) -> Vec<String> {
    let name = key(random, habits);
    let text = text(random, habits.bytes_max);
    let number = (random.below(2000) as i64 - 1000).to_string();
    let ms = (1 + random.magnitude(EXPIRY_MS)).to_string();
    let command: Vec<&str> = match random.below(32) {
        0..4 => vec!["SET", &name, &text],
        4 if habits.has_expiry => vec!["SET", &name, &text, "PX", &ms],
        5 => vec!["SET", &name, &text, random.pick(&["NX", "XX", "KEEPTTL"])],
        6 => vec!["APPEND", &name, &text],
        7 => vec!["INCRBY", &name, &number],
        8 => vec!["SET", &name, &number],
        9 => vec!["GETSET", &name, &text],
        10 => vec![random.pick(&["GETDEL", "STRLEN"]), &name],
        11 if habits.has_expiry => vec!["GETEX", &name, "PX", &ms],
        12 if habits.has_expiry => vec!["PEXPIRE", &name, &ms],
        13 => vec!["PERSIST", &name],
        14 => {
            let at = random.magnitude(habits.bytes_max).to_string();
            return ["SETRANGE", &name, &at, "range"].map(String::from).to_vec();
        }
        15 => vec!["FP.UPDATE", &name, &text],
        16 => {
            let other = self::text(random, 3);
            return ["FP.CAS", &name, random.pick(&["a", "b", "ab"]), &other].map(String::from).to_vec();
        }
        17 | 18 => return several(random, habits),
        19 => return pairs(random, habits),
        20 => return given(random, habits),
        21 => return rows(random),
        22..27 => return of_hash(random, habits),
        27 => vec![random.pick(&["TYPE", "PEXPIRETIME"]), &name],
        28 => {
            let least = format!("n > {number}");
            let condition = if name.starts_with("u:") { &least } else { "value like 'a%'" };
            return ["FP.CGET", &name, condition].map(String::from).to_vec();
        }
        _ => vec!["GET", &name],
    };
    command.into_iter().map(String::from).collect()
}

/// Returns a command that sets many plain keys, or removes them.
pub fn many(random: &mut Random, habits: &Habits, is_set: bool) -> Vec<String> {
    let mut args = vec![if is_set { "MSET" } else { "DEL" }.to_string()];
    for _ in 0..10 + random.below(30) {
        args.push(format!("k{}", random.below(habits.keys)));
        args.extend(is_set.then(|| text(random, habits.bytes_max)));
    }
    args
}

fn key(random: &mut Random, habits: &Habits) -> String {
    match random.below(10) {
        0..2 => format!("s:{}", random.below(IDS)),
        // The keyspace of rows does not accept strings, so that this command fails.
        2 if random.chance(20) => format!("u:{}", random.below(IDS)),
        _ => plain(random, habits),
    }
}

fn plain(random: &mut Random, habits: &Habits) -> String {
    format!("k{}", random.magnitude(habits.keys))
}

/// Returns a string that is also a valid SQL text.
fn text(random: &mut Random, bytes_max: usize) -> String {
    let bytes = match random.below(60) {
        0 => 16 << 10,
        1 => 70_000,
        _ => bytes_max,
    };
    let bytes = random.magnitude(bytes.max(2));
    let letter = random.pick(&["a", "b", "ab", "c"]);
    letter.repeat(bytes.div_ceil(letter.len()).max(1))
}

fn several(random: &mut Random, habits: &Habits) -> Vec<String> {
    let mut args = vec![random.pick(&["DEL", "EXISTS", "MGET"]).to_string()];
    args.extend((0..1 + random.below(4)).map(|_| key(random, habits)));
    args
}

fn pairs(random: &mut Random, habits: &Habits) -> Vec<String> {
    let mut args = vec![random.pick(&["MSET", "MSETNX"]).to_string()];
    for _ in 0..1 + random.below(5) {
        args.extend([key(random, habits), text(random, habits.bytes_max)]);
    }
    args
}

/// Returns a command that renames or copies a key to one of the same kind.
fn given(random: &mut Random, habits: &Habits) -> Vec<String> {
    let is_row = random.chance(20);
    let mut name = || match is_row {
        true => format!("u:{}", random.below(IDS)),
        false => plain(random, habits),
    };
    let (from, mut to) = (name(), name());
    while to == from {
        to = name();
    }
    let mut args = vec![random.pick(&["RENAME", "RENAMENX", "COPY", "COPY"]).to_string(), from, to];
    if args[0] == "COPY" {
        if random.chance(40) {
            args.extend(["DB".into(), random.below(3).to_string()]);
        }
        args.extend(random.chance(60).then(|| "REPLACE".to_string()));
    }
    args
}

fn rows(random: &mut Random) -> Vec<String> {
    let mut args = vec!["FP.ROWSET".to_string(), "u".into()];
    for _ in 0..1 + random.below(6) {
        let number = random.below(2000) as i64 - 1000;
        args.extend([random.below(IDS).to_string(), number.to_string(), text(random, 60)]);
    }
    args
}

/// Returns a command on a hash; keys that begin with `u:` have the fields of the keyspace of rows.
fn of_hash(random: &mut Random, habits: &Habits) -> Vec<String> {
    let is_row = random.chance(40);
    let name = if is_row { format!("u:{}", random.below(IDS)) } else { plain(random, habits) };
    let number = (random.below(200) as i64 - 100).to_string();
    let text = text(random, 200);
    let field = if is_row { "s".into() } else { format!("f{}", random.below(FIELDS)) };
    let command: Vec<&str> = match random.below(9) {
        0..2 => vec!["HSET", &name, &field, &text],
        2 => vec!["HSET", &name, "n", &number, &field, &text],
        3 => vec!["HSETNX", &name, &field, &text],
        4 => vec!["HINCRBY", &name, "n", &number],
        5 => vec!["HDEL", &name, &field],
        6 => vec!["HDEL", &name, &field, "n"],
        7 => vec!["HGETALL", &name],
        _ => vec![random.pick(&["HGET", "HLEN"]), &name, "n"],
    };
    let arguments = if command[0] == "HLEN" { 2 } else { command.len() };
    command.into_iter().take(arguments).map(String::from).collect()
}
