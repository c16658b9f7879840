//! Reads a view and its envelope from one object in one pass: it takes the keys of the envelope, and the view gets the
//! others.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{CowStrDeserializer, MapAccessDeserializer};
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{Envelope, FramedView, View};

/// A parsed line.
#[derive(Debug)]
pub enum ParsedLine<V> {
    Of {
        framed: Box<FramedView<V>>,
        command_status: Option<i32>,
    },
    /// Of another schema.
    Other(String),
}

impl<'de, V: View> Deserialize<'de> for ParsedLine<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(First(PhantomData))
    }
}

/// Reads a line whose first key is its schema.
struct First<V>(PhantomData<V>);

impl<'de, V: View> Visitor<'de> for First<V> {
    type Value = ParsedLine<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of {}", V::SCHEMA)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ParsedLine<V>, A::Error> {
        match map.next_entry::<String, String>()? {
            Some((key, schema)) if key == "schema" && schema == V::SCHEMA => {
                let (framed, command_status) = read(map)?;
                Ok(ParsedLine::Of { framed: Box::new(framed), command_status })
            }
            Some((key, schema)) if key == "schema" => {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(ParsedLine::Other(schema))
            }
            _ => Err(A::Error::missing_field("schema")),
        }
    }
}

/// Reads an object that is known to be of the view.
pub(super) struct ObjectSeed<V>(PhantomData<V>);

impl<V> Default for ObjectSeed<V> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<'de, V: View> Visitor<'de> for ObjectSeed<V> {
    type Value = FramedView<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of {}", V::SCHEMA)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FramedView<V>, A::Error> {
        Ok(read(map)?.0)
    }
}

fn read<'de, V: View, A: MapAccess<'de>>(map: A) -> Result<(FramedView<V>, Option<i32>), A::Error> {
    let mut keys = EnvelopeKeys { has_duration: V::HAS_DURATION, ..EnvelopeKeys::default() };
    let view = V::deserialize(without(map, &mut keys))?;
    Ok((FramedView { envelope: keys.envelope, view }, keys.command_status))
}

#[derive(Default)]
struct EnvelopeKeys {
    envelope: Envelope,
    command_status: Option<i32>,
    /// The view has `duration_ns` as well.
    has_duration: bool,
}

impl Keys for EnvelopeKeys {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<KeyOwner, A::Error> {
        let Self { envelope, command_status, has_duration } = self;
        match key {
            "version" => envelope.version = map.next_value()?,
            "kernel" => envelope.kernel = map.next_value()?,
            "start" => envelope.start = map.next_value()?,
            "read_ns" => envelope.read_ns = map.next_value()?,
            "lost" => envelope.lost = map.next_value()?,
            "cost" => envelope.cost = map.next_value()?,
            "missing" => envelope.missing = map.next_value()?,
            "command_status" => *command_status = map.next_value()?,
            "duration_ns" => {
                envelope.duration_ns = map.next_value()?;
                if *has_duration {
                    return Ok(KeyOwner::Both(envelope.duration_ns));
                }
            }
            _ => return Ok(KeyOwner::Outer),
        }
        Ok(KeyOwner::Inner)
    }
}

/// Keys of an inner record within the object of an outer one. `serde(flatten)` would buffer the values of all keys that
/// the outer record does not know until the object ends, each number as an object of its own: that was the first entry
/// in the profile of opening a `latency` recording (12 % of the samples).
pub trait Keys {
    /// Reads the value of this key, if it is one of them.
    ///
    /// # Errors
    ///
    /// If the value is invalid.
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<KeyOwner, A::Error>;
}

/// The record that a key belongs to. The value of an inner key was read.
pub enum KeyOwner {
    Inner,
    Outer,
    /// Both have the key, with this value.
    Both(u64),
}

/// Reads the object without these keys.
pub fn without<'de, A: MapAccess<'de>, K: Keys>(
    map: A,
    keys: &mut K,
) -> MapAccessDeserializer<impl MapAccess<'de, Error = A::Error>> {
    MapAccessDeserializer::new(Others { map, keys, shared: None })
}

struct Others<'a, A, K> {
    map: A,
    keys: &'a mut K,
    /// The value of the shared key.
    shared: Option<u64>,
}

impl<'de, A: MapAccess<'de>, K: Keys> MapAccess<'de> for Others<'_, A, K> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        while let Some(JsonKey(key)) = self.map.next_key()? {
            match self.keys.take(&key, &mut self.map)? {
                KeyOwner::Inner => {}
                KeyOwner::Outer => return seed.deserialize(CowStrDeserializer::new(key)).map(Some),
                KeyOwner::Both(value) => {
                    self.shared = Some(value);
                    return seed.deserialize(CowStrDeserializer::new(key)).map(Some);
                }
            }
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        match self.shared.take() {
            Some(value) => seed.deserialize(value.into_deserializer()),
            None => self.map.next_value_seed(seed),
        }
    }
}

/// A key, borrowed from the line if it has no escapes.
#[derive(Deserialize)]
struct JsonKey<'a>(#[serde(borrow)] Cow<'a, str>);
