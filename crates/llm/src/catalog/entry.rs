//! Entries: what one layer of the catalog says of a provider or of a model. Everything may be absent.
//!
//! Providers and models are described by the same fields, because each field comes from the first layer that has it,
//! whichever that is. The fields are the keys of `providers.toml` and `models.toml`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::settings::{Caching, ReasoningKind, Scheme, ToolUse};

/// What one layer says.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Entry {
    /// How people call it.
    pub(crate) name: Option<String>,
    pub(crate) scheme: Option<Scheme>,
    pub(crate) base_url: Option<String>,
    /// Variables that name another base URL, in order.
    pub(crate) base_url_env: Option<Names>,
    pub(crate) auth: Option<Auth>,
    /// The header that carries the key; `bearer` is `Authorization: Bearer`.
    pub(crate) key_header: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) timeouts: Timeouts,
    /// The provider's own name of the model.
    pub(crate) model_id: Option<String>,
    pub(crate) context_window: Option<u64>,
    pub(crate) max_output: Option<u64>,
    pub(crate) capability: CapabilityPart,
    pub(crate) quirks: QuirksPart,
    pub(crate) prices: Prices,
}

/// One name, or several in order.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Names {
    One(String),
    Several(Vec<String>),
}

impl Names {
    pub(crate) fn list(&self) -> Vec<String> {
        match self {
            Names::One(name) => vec![name.clone()],
            Names::Several(names) => names.clone(),
        }
    }
}

/// Whether a key is needed and where it is: `"none"`, `"api_key"`, or `{ api_key = { env, file, keyring } }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Auth {
    None,
    ApiKey(KeyPlaces),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct KeyPlaces {
    pub(crate) env: Option<Names>,
    pub(crate) file: Option<String>,
    pub(crate) keyring: Option<String>,
}

impl<'de> Deserialize<'de> for Auth {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Auth, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            api_key: KeyPlaces,
        }
        struct Either;
        impl<'de> serde::de::Visitor<'de> for Either {
            type Value = Auth;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("\"none\", \"api_key\" or { api_key = { env, file, keyring } }")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Auth, E> {
                match text {
                    "none" => Ok(Auth::None),
                    "api_key" => Ok(Auth::ApiKey(KeyPlaces::default())),
                    // What stands here may be a key that was put in the wrong place: it is not shown.
                    _ => Err(E::custom(
                        "`auth` says where a key is, it is never the key: use \"none\", \"api_key\" or \
                         { api_key = { env, file, keyring } }",
                    )),
                }
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Auth, A::Error> {
                let table = Table::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(Auth::ApiKey(table.api_key))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Seconds.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Timeouts {
    pub(crate) connect_s: Option<f64>,
    pub(crate) first_byte_s: Option<f64>,
    pub(crate) idle_s: Option<f64>,
}

/// `Capability`, field by field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CapabilityPart {
    pub(crate) tools: Option<ToolUse>,
    pub(crate) reasoning: Option<ReasoningKind>,
    pub(crate) vision: Option<bool>,
    pub(crate) caching: Option<Caching>,
    pub(crate) structured_output: Option<bool>,
}

/// `Quirks`, field by field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct QuirksPart {
    pub(crate) max_tokens_field: Option<String>,
    pub(crate) system_role: Option<String>,
    pub(crate) notice_role: Option<String>,
    pub(crate) reasoning_field: Option<String>,
    pub(crate) stream_usage: Option<bool>,
    pub(crate) call_id_chars: Option<u32>,
    pub(crate) call_signatures: Option<bool>,
    pub(crate) adaptive_thinking: Option<bool>,
    pub(crate) reasoning_summary: Option<bool>,
    pub(crate) reply_after_results: Option<bool>,
}

/// Dollars per million tokens. Absent = unknown, never free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    pub input: Option<f64>,
    pub output: Option<f64>,
    pub cache_read: Option<f64>,
    pub cache_write: Option<f64>,
    /// What a long request costs instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long: Option<LongPrices>,
}

/// The prices of a request whose whole input is longer than `over` tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongPrices {
    pub over: u64,
    pub input: Option<f64>,
    pub output: Option<f64>,
    pub cache_read: Option<f64>,
    pub cache_write: Option<f64>,
}
