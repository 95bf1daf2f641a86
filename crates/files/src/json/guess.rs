//! Guesses types from JSON values.
//!
//! Invariant: recursion is only as deep as serde_json lets values nest (128 levels).

use super::super::csv::guess::Guess;
use arrow_schema::{DataType, Field, Fields};
use farpool_model::limits;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::HashMap;
use std::fmt;

/// The members seen in objects so far, in the order of their first occurrence.
#[derive(Debug, Default)]
pub(super) struct Object {
    members: Vec<(String, Kind)>,
    places: HashMap<String, usize>,
}

/// The types seen so far among the values of a member.
#[derive(Debug, Default)]
struct Kind {
    booleans: bool,
    integers: bool,
    fractions: bool,
    strings: Option<Guess>,
    list: Option<Box<Kind>>,
    object: Option<Object>,
}

impl Object {
    /// Adds the members of an object, given as JSON text.
    ///
    /// # Errors
    /// Fails if the text is not an object, or has too many names.
    pub(super) fn see(&mut self, text: &[u8]) -> Result<(), serde_json::Error> {
        let mut from = serde_json::Deserializer::from_slice(text);
        from.deserialize_map(Members(self))?;
        from.end()
    }

    /// Returns the entry of the member `name`, which is added if it is new. `expected` is its likely index.
    fn member<E: Error>(&mut self, name: String, expected: usize) -> Result<&mut Kind, E> {
        // Objects mostly have their members in the same order.
        let at = match self.members.get(expected) {
            Some((known, _)) if *known == name => Some(expected),
            _ => self.places.get(&name).copied(),
        };
        let at = match at {
            Some(at) => at,
            None if self.members.len() < limits::COLUMNS_MAX => {
                self.places.insert(name.clone(), self.members.len());
                self.members.push((name, Kind::default()));
                self.members.len() - 1
            }
            None => {
                let most = limits::COLUMNS_MAX;
                return Err(E::custom(format_args!("objects have more than {most} different names")));
            }
        };
        Ok(&mut self.members[at].1)
    }

    /// Returns the columns; members without values have type Null.
    pub(super) fn fields(self) -> Vec<Field> {
        let field = |(name, kind): (String, Kind)| Field::new(name, kind.data_type(), true);
        self.members.into_iter().map(field).collect()
    }
}

impl Kind {
    fn data_type(self) -> DataType {
        let numbers = self.integers || self.fractions;
        let kinds =
            [self.booleans, numbers, self.strings.is_some(), self.list.is_some(), self.object.is_some()];
        if kinds.into_iter().filter(|is_seen| *is_seen).count() > 1 {
            return DataType::Utf8View;
        }
        match (self.strings, self.list, self.object) {
            (Some(strings), ..) => of_strings(strings.data_type()),
            (_, Some(list), _) => DataType::new_list(list.within(), true),
            // Structs without members are not supported.
            (.., Some(object)) if object.members.is_empty() => DataType::Utf8View,
            (.., Some(object)) => {
                let field = |(name, kind): (String, Kind)| Field::new(name, kind.within(), true);
                DataType::Struct(object.members.into_iter().map(field).collect::<Fields>())
            }
            _ if self.fractions => DataType::Float64,
            _ if self.integers => DataType::Int64,
            _ if self.booleans => DataType::Boolean,
            _ => DataType::Null,
        }
    }

    /// Returns the type within a list or struct, where the decoder produces the final type.
    fn within(self) -> DataType {
        match self.data_type() {
            DataType::Null | DataType::Date32 | DataType::Timestamp(..) => DataType::Utf8View,
            other => other,
        }
    }
}

/// Adds the members of an object while it is parsed.
struct Members<'a>(&'a mut Object);

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut expected = 0;
        while let Some(name) = map.next_key::<String>()? {
            map.next_value_seed(self.0.member(name, expected)?)?;
            expected += 1;
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for &mut Kind {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Kind {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.booleans = true;
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.integers = true;
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(_) => self.integers = true,
            Err(_) => self.fractions = true,
        }
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.fractions = true;
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.strings.get_or_insert_default().see(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        let list = self.list.get_or_insert_default();
        while values.next_element_seed(&mut **list)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<(), A::Error> {
        Members(self.object.get_or_insert_default()).visit_map(members)
    }
}

/// Returns the type of values given as strings: numbers in quotes stay text.
fn of_strings(guessed: DataType) -> DataType {
    match guessed {
        DataType::Date32 | DataType::Timestamp(..) => guessed,
        _ => DataType::Utf8View,
    }
}
