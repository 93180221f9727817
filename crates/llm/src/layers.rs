//! Layers: each value comes from the first layer that sets it.
//!
//! Here: the order of the layers and the defaults of the schemes. Elsewhere: the layers (`catalog`), the use
//! of the values (`resolve`). Invariant: manifest, then model entry, then provider entry, then scheme
//! default, field by field (`each_value_comes_from_the_first_layer_that_has_it`).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::catalog::{
    AuthConfig, Catalog, CatalogEntry, KeySourceNames, OneOrMany, PartialCapability, TokenPrices, ValueOrigin,
};
use crate::http::HttpTimeouts;
use crate::settings::{CachingMode, ModelCapability, ProviderQuirks, WireScheme};

const DEFAULT_CONNECT_S: f64 = 10.0;
const DEFAULT_FIRST_BYTE_S: f64 = 60.0;
const DEFAULT_IDLE_S: f64 = 90.0;

/// A resolved value for users: its key, the value and its origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResolvedField {
    pub key: &'static str,
    pub value: String,
    pub origin: String,
}

/// Resolves the fields of one table: each from the first layer that sets it, else the default.
macro_rules! fields {
    ($picker:expr, $name:literal, $table:ident, $default:expr; $($field:ident),+) => {
        ($($picker
            .pick_value(concat!($name, ".", stringify!($field)), |entry| entry.$table.$field.clone())
            .unwrap_or_else(|| $default.$field.clone()),)+)
    };
}

/// The layers of one model and the values resolved so far.
pub(crate) struct LayerPicker<'a> {
    layers: Vec<(ValueOrigin, &'a CatalogEntry)>,
    fields: Vec<ResolvedField>,
}

impl<'a> LayerPicker<'a> {
    pub(crate) fn new(
        manifest: &'a CatalogEntry,
        catalog: &'a Catalog,
        provider: &str,
        model: &str,
    ) -> LayerPicker<'a> {
        let mut layers = vec![(ValueOrigin::Manifest, manifest)];
        layers.extend(catalog.layered_entries(provider, model));
        LayerPicker { layers, fields: Vec::new() }
    }

    /// Adds the last layer. The scheme is known only after resolving it from the others.
    pub(crate) fn push_default(&mut self, default: &'a CatalogEntry) {
        self.layers.push((ValueOrigin::SchemeDefault, default));
    }

    fn first_value<T>(&self, get: impl Fn(&CatalogEntry) -> Option<T>) -> Option<(T, ValueOrigin)> {
        self.layers.iter().find_map(|(origin, entry)| Some((get(entry)?, origin.clone())))
    }

    /// Resolves a value and records it for users.
    pub(crate) fn pick_value<T: Serialize>(
        &mut self,
        key: &'static str,
        get: impl Fn(&CatalogEntry) -> Option<T>,
    ) -> Option<T> {
        let (value, origin) = self.first_value(get)?;
        self.note_field(key, &value, &origin);
        Some(value)
    }

    pub(crate) fn note_field(&mut self, key: &'static str, value: &impl Serialize, origin: &ValueOrigin) {
        let value = match serde_json::to_value(value) {
            Ok(serde_json::Value::String(text)) => text,
            Ok(value) => value.to_string(),
            Err(e) => format!("({e})"),
        };
        self.fields.push(ResolvedField { key, value, origin: origin.to_string() });
    }

    /// Returns the base URL: from the manifest, a variable or the catalog.
    pub(crate) fn pick_base_url(
        &self,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Option<(String, ValueOrigin)> {
        let manifest =
            self.layers.first().and_then(|(origin, entry)| Some((entry.base_url.clone()?, origin.clone())));
        let variables = self.first_value(|entry| entry.base_url_env.as_ref().map(OneOrMany::to_vec));
        let named = variables.into_iter().flat_map(|(names, _)| names).find_map(|name| {
            let url = env(&name).filter(|url| !url.trim().is_empty())?;
            Some((url.trim().to_owned(), ValueOrigin::Env(name)))
        });
        manifest.or(named).or_else(|| self.first_value(|entry| entry.base_url.clone()))
    }

    /// Returns the port of the catalog's base URL.
    pub(crate) fn catalog_port(&self) -> Option<u16> {
        let (url, _) = self.first_value(|entry| entry.base_url.clone())?;
        reqwest::Url::parse(&url).ok()?.port()
    }

    /// Returns whether a key is needed, from the first layer that says so, and each key source from the first
    /// layer that sets it.
    pub(crate) fn pick_auth(&self) -> (AuthConfig, ValueOrigin) {
        match self.first_value(|entry| entry.auth.clone()) {
            None => (AuthConfig::None, ValueOrigin::SchemeDefault),
            Some((AuthConfig::None, origin)) => (AuthConfig::None, origin),
            Some((AuthConfig::ApiKey(_), origin)) => {
                let place = |get: fn(&KeySourceNames) -> Option<String>| {
                    self.first_value(|entry| match &entry.auth {
                        Some(AuthConfig::ApiKey(sources)) => get(sources),
                        _ => None,
                    })
                };
                let env = self.first_value(|entry| match &entry.auth {
                    Some(AuthConfig::ApiKey(places)) => places.env.clone(),
                    _ => None,
                });
                let sources = KeySourceNames {
                    env: env.map(|(names, _)| names),
                    file: place(|places| places.file.clone()).map(|(file, _)| file),
                    keyring: place(|places| places.keyring.clone()).map(|(name, _)| name),
                };
                (AuthConfig::ApiKey(sources), origin)
            }
        }
    }

    pub(crate) fn merged_headers(&self) -> BTreeMap<String, String> {
        let mut headers = BTreeMap::new();
        for (_, entry) in self.layers.iter().rev() {
            headers.extend(entry.headers.clone());
        }
        headers
    }

    pub(crate) fn pick_timeouts(&mut self) -> HttpTimeouts {
        let mut seconds = |key, get: fn(&CatalogEntry) -> Option<f64>, default: f64| {
            // The value was checked when its file was read.
            Duration::from_secs_f64(self.pick_value(key, get).unwrap_or(default))
        };
        HttpTimeouts {
            connect: seconds("timeouts.connect_s", |e| e.timeouts.connect_s, DEFAULT_CONNECT_S),
            first_byte: seconds("timeouts.first_byte_s", |e| e.timeouts.first_byte_s, DEFAULT_FIRST_BYTE_S),
            idle: seconds("timeouts.idle_s", |e| e.timeouts.idle_s, DEFAULT_IDLE_S),
        }
    }

    pub(crate) fn pick_capability(&mut self) -> ModelCapability {
        let default = ModelCapability::default();
        let picked = fields!(self, "capability", capability, default; tools, reasoning, vision, caching, structured_output);
        let (tools, reasoning, vision, caching, structured_output) = picked;
        ModelCapability { tools, reasoning, vision, caching, structured_output }
    }

    /// Quirks are recorded only where a layer sets one: most apply to other schemes.
    pub(crate) fn pick_quirks(&mut self) -> ProviderQuirks {
        let default = ProviderQuirks::default();
        let (max_tokens_field, system_role, notice_role, reasoning_field) = fields!(
            self, "quirks", quirks, default; max_tokens_field, system_role, notice_role, reasoning_field
        );
        let (stream_usage, call_signatures, adaptive_thinking, reasoning_summary, reply_after_results) = fields!(
            self, "quirks", quirks, default;
            stream_usage, call_signatures, adaptive_thinking, reasoning_summary, reply_after_results
        );
        let call_id_chars = self.pick_value("quirks.call_id_chars", |e| e.quirks.call_id_chars);
        ProviderQuirks {
            max_tokens_field,
            system_role,
            notice_role,
            reasoning_field,
            stream_usage,
            call_id_chars: call_id_chars.or(default.call_id_chars),
            call_signatures,
            adaptive_thinking,
            reasoning_summary,
            reply_after_results,
        }
    }

    pub(crate) fn pick_prices(&mut self) -> TokenPrices {
        let long = self.first_value(|e| e.prices.long);
        if let Some((long, origin)) = &long {
            self.note_field("prices.long.over", &long.over, origin);
        }
        TokenPrices {
            input: self.pick_value("prices.input", |e| e.prices.input),
            output: self.pick_value("prices.output", |e| e.prices.output),
            cache_read: self.pick_value("prices.cache_read", |e| e.prices.cache_read),
            cache_write: self.pick_value("prices.cache_write", |e| e.prices.cache_write),
            long: long.map(|(long, _)| long),
        }
    }

    pub(crate) fn into_fields(self) -> Vec<ResolvedField> {
        self.fields
    }
}

/// The defaults of a scheme.
pub(crate) fn scheme_default(scheme: WireScheme) -> CatalogEntry {
    let ModelCapability { tools, reasoning, vision, caching, structured_output } = ModelCapability::default();
    let caching = match scheme {
        // The limit of the API.
        WireScheme::Anthropic => CachingMode::Explicit(4),
        WireScheme::OpenaiResponses | WireScheme::OpenaiChat | WireScheme::Gemini | WireScheme::Scripted => {
            caching
        }
    };
    let mut entry = CatalogEntry {
        key_header: Some(
            match scheme {
                WireScheme::Anthropic => "x-api-key",
                WireScheme::Gemini => "x-goog-api-key",
                WireScheme::OpenaiResponses | WireScheme::OpenaiChat | WireScheme::Scripted => "bearer",
            }
            .to_owned(),
        ),
        capability: PartialCapability {
            tools: Some(tools),
            reasoning: Some(reasoning),
            vision: Some(vision),
            caching: Some(caching),
            structured_output: Some(structured_output),
        },
        ..CatalogEntry::default()
    };
    entry.timeouts.connect_s = Some(DEFAULT_CONNECT_S);
    entry.timeouts.first_byte_s = Some(DEFAULT_FIRST_BYTE_S);
    entry.timeouts.idle_s = Some(DEFAULT_IDLE_S);
    entry
}
