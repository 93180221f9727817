//! Entries: the settings of one provider or model in one layer of the catalog. All fields are optional.
//!
//! Providers and models have the same fields, because each value comes from the first layer that sets it. The
//! fields are the keys of `providers.toml` and `models.toml`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::settings::{CachingMode, ReasoningKind, ToolUseSupport, WireScheme};

/// The settings in one layer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CatalogEntry {
    /// The display name.
    pub(crate) name: Option<String>,
    pub(crate) scheme: Option<WireScheme>,
    pub(crate) base_url: Option<String>,
    /// Variables that override the base URL, in order.
    pub(crate) base_url_env: Option<OneOrMany>,
    pub(crate) auth: Option<AuthConfig>,
    /// The header for the key; `bearer` means `Authorization: Bearer`.
    pub(crate) key_header: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) timeouts: TimeoutSeconds,
    /// The provider's name for the model.
    pub(crate) model_id: Option<String>,
    pub(crate) context_window: Option<u64>,
    pub(crate) max_output: Option<u64>,
    pub(crate) capability: PartialCapability,
    pub(crate) quirks: PartialQuirks,
    pub(crate) prices: TokenPrices,
}

/// One name, or several in order.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany {
    One(String),
    Several(Vec<String>),
}

impl OneOrMany {
    pub(crate) fn to_vec(&self) -> Vec<String> {
        match self {
            OneOrMany::One(name) => vec![name.clone()],
            OneOrMany::Several(names) => names.clone(),
        }
    }
}

/// Whether a key is needed and its sources: `"none"`, `"api_key"`, or `{ api_key = { env, file, keyring } }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AuthConfig {
    None,
    ApiKey(KeySourceNames),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct KeySourceNames {
    pub(crate) env: Option<OneOrMany>,
    pub(crate) file: Option<String>,
    pub(crate) keyring: Option<String>,
}

impl<'de> Deserialize<'de> for AuthConfig {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<AuthConfig, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct ApiKeyTable {
            api_key: KeySourceNames,
        }
        struct AuthVisitor;
        impl<'de> serde::de::Visitor<'de> for AuthVisitor {
            type Value = AuthConfig;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("\"none\", \"api_key\" or { api_key = { env, file, keyring } }")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<AuthConfig, E> {
                match text {
                    "none" => Ok(AuthConfig::None),
                    "api_key" => Ok(AuthConfig::ApiKey(KeySourceNames::default())),
                    // The value may be a misplaced key, so it is not shown.
                    _ => Err(E::custom(
                        "`auth` says where a key is, it is never the key: use \"none\", \"api_key\" or \
                         { api_key = { env, file, keyring } }",
                    )),
                }
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<AuthConfig, A::Error> {
                let table = ApiKeyTable::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(AuthConfig::ApiKey(table.api_key))
            }
        }
        deserializer.deserialize_any(AuthVisitor)
    }
}

/// Timeouts in seconds.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TimeoutSeconds {
    pub(crate) connect_s: Option<f64>,
    pub(crate) first_byte_s: Option<f64>,
    pub(crate) idle_s: Option<f64>,
}

/// `ModelCapability` with optional fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PartialCapability {
    pub(crate) tools: Option<ToolUseSupport>,
    pub(crate) reasoning: Option<ReasoningKind>,
    pub(crate) vision: Option<bool>,
    pub(crate) caching: Option<CachingMode>,
    pub(crate) structured_output: Option<bool>,
}

/// `ProviderQuirks` with optional fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PartialQuirks {
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

/// US dollars per million tokens. An absent price is unknown, never free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TokenPrices {
    pub input: Option<f64>,
    pub output: Option<f64>,
    pub cache_read: Option<f64>,
    pub cache_write: Option<f64>,
    /// The prices of a long request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long: Option<LongContextPrices>,
}

/// The prices of a request whose total input exceeds `over` tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongContextPrices {
    pub over: u64,
    pub input: Option<f64>,
    pub output: Option<f64>,
    pub cache_read: Option<f64>,
    pub cache_write: Option<f64>,
}
