//! Reads a view and its envelope from one object, in one pass: the keys of the envelope are taken out of it, and the view
//! gets the others.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{Envelope, Framed, View};

/// What a line is.
#[derive(Debug)]
pub enum Line<V> {
    Of {
        framed: Box<Framed<V>>,
        command_status: Option<i32>,
    },
    /// Of another schema.
    Other(String),
}

impl<'de, V: View> Deserialize<'de> for Line<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(First(PhantomData))
    }
}

/// Of a line whose first key is its schema.
struct First<V>(PhantomData<V>);

impl<'de, V: View> Visitor<'de> for First<V> {
    type Value = Line<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of {}", V::SCHEMA)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Line<V>, A::Error> {
        match map.next_entry::<String, String>()? {
            Some((key, schema)) if key == "schema" && schema == V::SCHEMA => {
                let (framed, command_status) = read(map)?;
                Ok(Line::Of { framed: Box::new(framed), command_status })
            }
            Some((key, schema)) if key == "schema" => {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Line::Other(schema))
            }
            _ => Err(A::Error::missing_field("schema")),
        }
    }
}

/// Of an object that is known to be of the view.
pub(super) struct Whole<V>(PhantomData<V>);

impl<V> Default for Whole<V> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<'de, V: View> Visitor<'de> for Whole<V> {
    type Value = Framed<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of {}", V::SCHEMA)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Framed<V>, A::Error> {
        Ok(read(map)?.0)
    }
}

fn read<'de, V: View, A: MapAccess<'de>>(map: A) -> Result<(Framed<V>, Option<i32>), A::Error> {
    let (mut envelope, mut command_status) = (Envelope::default(), None);
    let keys = Keys {
        map,
        envelope: &mut envelope,
        command_status: &mut command_status,
        has_duration: V::HAS_DURATION,
        duration_ns: None,
    };
    let view = V::deserialize(MapAccessDeserializer::new(keys))?;
    Ok((Framed { envelope, view }, command_status))
}

/// The keys of the view.
struct Keys<'a, A> {
    map: A,
    envelope: &'a mut Envelope,
    command_status: &'a mut Option<i32>,
    has_duration: bool,
    /// The value of the key that was shown, where both have it.
    duration_ns: Option<u64>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Keys<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.map.next_key::<String>()? {
            let Self { map, envelope, .. } = self;
            match key.as_str() {
                "version" => envelope.version = map.next_value()?,
                "kernel" => envelope.kernel = map.next_value()?,
                "start" => envelope.start = map.next_value()?,
                "lost" => envelope.lost = map.next_value()?,
                "cost" => envelope.cost = map.next_value()?,
                "missing" => envelope.missing = map.next_value()?,
                "command_status" => *self.command_status = map.next_value()?,
                "duration_ns" => {
                    envelope.duration_ns = map.next_value()?;
                    if self.has_duration {
                        self.duration_ns = Some(envelope.duration_ns);
                        return seed.deserialize(StringDeserializer::new(key)).map(Some);
                    }
                }
                _ => return seed.deserialize(StringDeserializer::new(key)).map(Some),
            }
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        match self.duration_ns.take() {
            Some(ns) => seed.deserialize(ns.into_deserializer()),
            None => self.map.next_value_seed(seed),
        }
    }
}
