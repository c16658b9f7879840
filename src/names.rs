//! Enums with one name per variant, used in JSON, tables and options.

/// Declares an enum with its names: `ALL` in the order of declaration, `name()`, and serde and JSON Schema by name.
macro_rules! names {
    (
        $(#[$of_type:meta])*
        $vis:vis enum $type:ident {
            $($(#[$of_variant:meta])* $variant:ident = $name:literal),+ $(,)?
        }
    ) => {
        $(#[$of_type])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $type {
            $($(#[$of_variant])* $variant),+
        }

        impl $type {
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The name in help, tables, JSON and HTML.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = <String as serde::Deserialize>::deserialize(deserializer)?;
                let found = Self::ALL.into_iter().find(|one| one.name() == name);
                found.ok_or_else(|| <D::Error as serde::de::Error>::unknown_variant(&name, &[$($name),+]))
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            // One view may contain two enums with the same type name.
            fn schema_id() -> std::borrow::Cow<'static, str> {
                concat!(module_path!(), "::", stringify!($type)).into()
            }

            fn json_schema(_generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$($name),+] })
            }
        }
    };
}

pub(crate) use names;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    names! {
        #[derive(PartialOrd, Ord)]
        pub enum Fruit {
            Apple = "apple",
            WildPear = "wild_pear",
        }
    }

    #[test]
    fn an_enum_is_read_back_by_its_name_as_a_value_and_as_a_key() {
        for fruit in Fruit::ALL {
            let map = BTreeMap::from([(fruit, fruit)]);
            let text = serde_json::to_string(&map).unwrap();
            assert_eq!(text, format!(r#"{{"{0}":"{0}"}}"#, fruit.name()));
            assert_eq!(serde_json::from_str::<BTreeMap<Fruit, Fruit>>(&text).unwrap(), map);
        }
        let error = serde_json::from_str::<Fruit>(r#""plum""#).unwrap_err().to_string();
        assert!(error.contains("plum") && error.contains("wild_pear"), "{error}");
    }
}
