//! LIKE patterns and regular expressions on one string column, compiled to automata that run over strings as they are
//! stored: the codes of compressed strings are not decompressed.
//!
//! Patterns whose automaton has too many states, or that need look-around (`\b` beyond ASCII), are evaluated on decoded
//! strings instead.

use farpool_columns::Automaton as Bytes;
use farpool_model::{Expr, Pattern};
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::{Anchored, Input};
use std::collections::HashMap;
use std::sync::OnceLock;

/// Maximum memory for building an automaton, in bytes. Reason: it also limits the time of building to some
/// milliseconds.
const BUILD_BYTES_MAX: usize = 1 << 20;

/// Maximum number of states of an automaton before equivalent states are merged.
const STATES_MAX: usize = 1000;

/// A pattern. Its automaton is built when the pattern first meets strings that the automaton can run over.
#[derive(Clone, Debug)]
pub(super) struct Texts {
    regex: String,
    automaton: OnceLock<Option<Bytes>>,
}

impl Texts {
    /// Returns the pattern of `expr` if that matches a string column against a pattern; `None` for other expressions,
    /// and for binary columns.
    pub(super) fn of(expr: &Expr) -> Option<Texts> {
        let (value, regex) = match expr {
            Expr::Like { value, pattern, case_insensitive: false } => {
                (value, Pattern::regex_of_like(pattern))
            }
            Expr::Regex { value, pattern } => {
                let flag = if pattern.is_case_insensitive() { "(?i)" } else { "" };
                (value, format!("{flag}{}", pattern.as_str()))
            }
            _ => return None,
        };
        matches!(**value, Expr::Column(_)).then(|| Texts { regex, automaton: OnceLock::new() })
    }

    /// Returns the automaton; `None` if the pattern exceeds a limit.
    pub(super) fn automaton(&self) -> Option<&Bytes> {
        self.automaton.get_or_init(|| automaton_of(&self.regex)).as_ref()
    }
}

/// Builds an automaton that accepts a string if `regex` matches anywhere in it; `None` if the automaton exceeds a
/// limit.
fn automaton_of(regex: &str) -> Option<Bytes> {
    let config = dense::Config::new()
        .start_kind(StartKind::Unanchored)
        .dfa_size_limit(Some(BUILD_BYTES_MAX))
        .determinize_size_limit(Some(BUILD_BYTES_MAX));
    let states = thompson::Config::new().nfa_size_limit(Some(BUILD_BYTES_MAX));
    let dfa = dense::Builder::new().configure(config).thompson(states).build(regex).ok()?;
    let (next, accepts) = explore(&dfa)?;
    let classes = equivalent(&next, &accepts)?;
    let count = usize::from(*classes.iter().max()?) + 1;
    let mut states = vec![([0; 256], false); count];
    for (state, class) in classes.iter().enumerate() {
        let next = std::array::from_fn(|byte| classes[usize::from(next[state][byte])]);
        states[usize::from(*class)] = (next, accepts[state]);
    }
    let (next, accepts) = states.into_iter().unzip();
    Bytes::new(classes[0], next, accepts)
}

/// For each state, the next state for every byte, and whether a string that ends in that state is accepted. State 0
/// is the start; state 1 is reached by every match and never left.
type Explored = (Vec<[u16; 256]>, Vec<bool>);

/// Visits the reachable states of `dfa` and assigns ids to them. All match states become state 1.
fn explore<A: Automaton>(dfa: &A) -> Option<Explored> {
    let start = dfa.start_state_forward(&Input::new("").anchored(Anchored::No)).ok()?;
    let mut numbers: HashMap<StateID, u16> = HashMap::from([(start, 0)]);
    // Reserves state 1 for matches.
    let mut states = vec![start, start];
    let (mut next, mut accepts) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < states.len() {
        if at == 1 {
            next.push([1; 256]);
            accepts.push(true);
            at += 1;
            continue;
        }
        let mut row = [0; 256];
        for (byte, to) in (0..=u8::MAX).zip(&mut row) {
            let state = dfa.next_state(states[at], byte);
            if dfa.is_quit_state(state) || states.len() > STATES_MAX {
                return None;
            }
            // The automaton enters its match state one byte after the end of the match.
            *to = if dfa.is_match_state(state) {
                1
            } else {
                *numbers.entry(state).or_insert_with(|| {
                    states.push(state);
                    (states.len() - 1) as u16
                })
            };
        }
        next.push(row);
        accepts.push(dfa.is_match_state(dfa.next_eoi_state(states[at])));
        at += 1;
    }
    Some((next, accepts))
}

/// Returns the equivalence class of each state (Moore's algorithm); `None` if there are more than 256
/// classes.
fn equivalent(next: &[[u16; 256]], accepts: &[bool]) -> Option<Vec<u8>> {
    let mut classes: Vec<u8> = accepts.iter().map(|accepts| u8::from(*accepts)).collect();
    let mut count = 0;
    loop {
        let mut known: HashMap<(u8, Vec<u8>), usize> = HashMap::new();
        let mut finer = Vec::with_capacity(classes.len());
        for (state, next) in next.iter().enumerate() {
            let after = next.iter().map(|to| classes[usize::from(*to)]).collect();
            let number = known.len();
            finer.push(u8::try_from(*known.entry((classes[state], after)).or_insert(number)).ok()?);
        }
        classes = finer;
        if known.len() == count {
            return Some(classes);
        }
        count = known.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column_is_like(pattern: &str) -> Expr {
        Expr::Like { value: Box::new(Expr::Column(0)), pattern: pattern.into(), case_insensitive: false }
    }

    #[test]
    fn automata_match_as_the_kernels_do() {
        let texts = [
            "",
            "a",
            "ab",
            "aab",
            "fox 12 bar",
            "fox 1 2 bar",
            "fox\n12bar",
            "xfoxy99..bar\n",
            "\u{fc}ber",
            "\u{1F98A} fox 77 \u{1F98A}bar",
            "%",
            "a%b",
            "a\\",
            "A",
            "FOX 12 bar",
            "ba",
            "12",
            "\n",
            "fo fox12ba bar",
        ];
        let mut automata = 0;
        for regex in [
            "fox.*[0-9]{2}.*bar",
            "^a",
            "b$",
            "a|b+c",
            "",
            "^$",
            "\u{fc}",
            "[^a]b",
            "(?s)x.1",
            "\\d\\d",
            "\\bfox",
            "(a|aa)*b$",
        ] {
            for case_insensitive in [false, true] {
                let pattern = Pattern::new(regex, case_insensitive).unwrap();
                let texts_of =
                    Texts::of(&Expr::Regex { value: Box::new(Expr::Column(0)), pattern: pattern.clone() });
                let Some(automaton) = texts_of.as_ref().and_then(Texts::automaton) else { continue };
                automata += 1;
                for text in texts {
                    assert_eq!(
                        automaton.is_match(text.as_bytes()),
                        pattern.is_match(text),
                        "{text:?} ~ {regex}"
                    );
                }
            }
        }
        assert!(automata >= 18, "{automata}");
        let array = arrow_array::StringViewArray::from(texts.to_vec());
        for pattern in [
            "",
            "%",
            "a",
            "a%",
            "%b",
            "%fox%bar%",
            "_",
            "a_",
            "%\\%%",
            "a\\",
            "_fox%",
            "%.%",
            "%\u{fc}%",
            "(a|b)%",
        ] {
            let expr = column_is_like(pattern);
            let like = Texts::of(&expr).unwrap();
            let scalar = arrow_array::Scalar::new(arrow_array::StringViewArray::from(vec![pattern]));
            let expected = arrow_string::like::like(&array, &scalar).unwrap();
            for (row, text) in texts.iter().enumerate() {
                let automaton = like.automaton().unwrap();
                assert_eq!(
                    automaton.is_match(text.as_bytes()),
                    expected.value(row),
                    "{text:?} LIKE {pattern}"
                );
            }
        }
    }

    #[test]
    fn only_patterns_on_columns_become_automata_and_not_endless_ones() {
        assert!(Texts::of(&Expr::Column(0)).is_none());
        let pattern = Pattern::new("(a|b){40}c.{60}d", false).unwrap();
        let endless = Texts::of(&Expr::Regex { value: Box::new(Expr::Column(0)), pattern }).unwrap();
        assert!(endless.automaton().is_none());
    }
}
