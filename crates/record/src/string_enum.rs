//! Closed enums of strings that stay readable when a newer version has added a value.
//!
//! An older binary must read a newer log, so every such enum ends in `Other`, which keeps the original text.
//! Matching code treats `Other` as unknown, never as an error.

/// Declares an enum whose variants are serialized as strings, with `Other` for values of a later version.
/// `protocol` also uses it for the wire; a crate that does so needs `serde`, and `schemars` behind a feature
/// `schema`.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$vmeta])* $variant,)+
            /// A value of a later version, kept as it is.
            Other(Box<str>),
        }

        impl $name {
            /// Every value known to this version, in the order of the specification.
            pub const KNOWN: &'static [$name] = &[$($name::$variant),+];

            /// The serialized value.
            pub fn as_str(&self) -> &str {
                match self {
                    $($name::$variant => $text,)+
                    $name::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($text => $name::$variant,)+
                    other => $name::Other(other.into()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                Ok($name::from(text.as_ref()))
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "examples": [$($text),+],
                    "x-words": [$($text),+],
                })
            }
        }
    };
}

pub(crate) use words;
