//! Texts and lists that may be too large for a line: stored inline or as the name of a blob.

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// A blob's name: the SHA-256 of its content, as 64 hex characters, and its length.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BlobRef {
    pub blob: String,
    pub bytes: u64,
}

/// A blob that must be on disk before the line that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    pub name: BlobRef,
    pub content: Vec<u8>,
}

impl Blob {
    pub fn new(content: Vec<u8>) -> Blob {
        let name = BlobRef { blob: to_hex(&Sha256::digest(&content)), bytes: content.len() as u64 };
        Blob { name, content }
    }
}

/// Lower-case hex.
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = String::with_capacity(bytes.len() * 2);
    for b in bytes {
        out.push(DIGITS[usize::from(b >> 4)] as char);
        out.push(DIGITS[usize::from(b & 15)] as char);
    }
    out
}

/// A text, stored inline or, if it is too long, in a blob.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Text {
    Inline(String),
    Blob(BlobRef),
}

impl Text {
    /// The inline text. A text in a blob must be loaded by an adapter.
    pub fn inline(&self) -> Option<&str> {
        match self {
            Text::Inline(text) => Some(text),
            Text::Blob(_) => None,
        }
    }

    /// The text, or a placeholder if it is in a blob.
    pub fn display_text(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Text::Inline(text) => text.as_str().into(),
            Text::Blob(b) => format!("[{} bytes in blob {}]", b.bytes, b.blob).into(),
        }
    }

    /// Length in bytes, wherever the text is.
    pub fn byte_len(&self) -> u64 {
        match self {
            Text::Inline(text) => text.len() as u64,
            Text::Blob(b) => b.bytes,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.byte_len() == 0
    }
}

impl Default for Text {
    fn default() -> Self {
        Text::Inline(String::new())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text::Inline(text.to_owned())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text::Inline(text)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Text::Inline(text) => serializer.serialize_str(text),
            Text::Blob(blob) => blob.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text or {\"blob\", \"bytes\"}")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text::Inline(text.to_owned()))
            }
            fn visit_string<E: de::Error>(self, text: String) -> Result<Text, E> {
                Ok(Text::Inline(text))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Text, A::Error> {
                BlobRef::deserialize(de::value::MapAccessDeserializer::new(map)).map(Text::Blob)
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Text {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Text".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let blob = generator.subschema_for::<BlobRef>();
        schemars::json_schema!({ "anyOf": [{ "type": "string" }, blob] })
    }
}

/// A value, stored inline or, if it is too large, in a blob. `apply` always gets it inline: a reader loads
/// the blob first, and a writer spills it last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(untagged)]
pub enum Large<T> {
    /// First, because a carry or list never has the shape of a blob's name: it has no field `blob`.
    Blob(BlobRef),
    Here(T),
}

impl<T> Large<T> {
    pub fn inline(&self) -> Option<&T> {
        match self {
            Large::Here(value) => Some(value),
            Large::Blob(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_itself_or_a_blob() {
        let here: Text = serde_json::from_str("\"hi\"").unwrap();
        assert_eq!(here, Text::from("hi"));
        let blob: Text = serde_json::from_str(r#"{"blob":"ab","bytes":3}"#).unwrap();
        assert_eq!(serde_json::to_string(&blob).unwrap(), r#"{"blob":"ab","bytes":3}"#);
        assert!(serde_json::from_str::<Text>("3").is_err());
        let name = Blob::new(b"abc".to_vec()).name;
        assert!(name.blob.starts_with("ba7816bf8f01cfea"), "{}", name.blob);
    }
}
