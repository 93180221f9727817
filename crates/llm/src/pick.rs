//! Picking: each value from the first layer that has it, and which layer that was.
//!
//! Here: the order of the layers and the defaults of the schemes. Elsewhere: the layers (`catalog`), what is made of
//! the values (`resolve`).
//! Invariant: manifest, then model entry, then provider entry, then scheme default, field by field
//! (`each_value_comes_from_the_first_layer_that_has_it`).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::catalog::{Auth, CapabilityPart, Catalog, Entry, KeyPlaces, Names, Origin, Prices};
use crate::http::Deadlines;
use crate::settings::{Caching, Capability, Quirks, Scheme};

const CONNECT_S: f64 = 10.0;
const FIRST_BYTE_S: f64 = 60.0;
const IDLE_S: f64 = 90.0;

/// A value that was picked, for people: what it is called, what it is, where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Field {
    pub key: &'static str,
    pub value: String,
    pub origin: String,
}

/// The fields of one table, each from the first layer that has it, else from the default.
macro_rules! fields {
    ($picker:expr, $name:literal, $table:ident, $default:expr; $($field:ident),+) => {
        ($($picker
            .pick(concat!($name, ".", stringify!($field)), |entry| entry.$table.$field.clone())
            .unwrap_or_else(|| $default.$field.clone()),)+)
    };
}

/// The layers over one model, and what was picked from them so far.
pub(crate) struct Picker<'a> {
    layers: Vec<(Origin, &'a Entry)>,
    fields: Vec<Field>,
}

impl<'a> Picker<'a> {
    pub(crate) fn new(manifest: &'a Entry, catalog: &'a Catalog, provider: &str, model: &str) -> Picker<'a> {
        let mut layers = vec![(Origin::Manifest, manifest)];
        layers.extend(catalog.entries(provider, model));
        Picker { layers, fields: Vec::new() }
    }

    /// The last layer; the scheme is known only after the others were asked for it.
    pub(crate) fn push_default(&mut self, default: &'a Entry) {
        self.layers.push((Origin::SchemeDefault, default));
    }

    fn first<T>(&self, get: impl Fn(&Entry) -> Option<T>) -> Option<(T, Origin)> {
        self.layers.iter().find_map(|(origin, entry)| Some((get(entry)?, origin.clone())))
    }

    /// A value, noted for people.
    pub(crate) fn pick<T: Serialize>(
        &mut self,
        key: &'static str,
        get: impl Fn(&Entry) -> Option<T>,
    ) -> Option<T> {
        let (value, origin) = self.first(get)?;
        self.note(key, &value, &origin);
        Some(value)
    }

    pub(crate) fn note(&mut self, key: &'static str, value: &impl Serialize, origin: &Origin) {
        let value = match serde_json::to_value(value) {
            Ok(serde_json::Value::String(text)) => text,
            Ok(value) => value.to_string(),
            Err(e) => format!("({e})"),
        };
        self.fields.push(Field { key, value, origin: origin.to_string() });
    }

    /// The base URL: the manifest's, the one that a variable names, else the catalog's.
    pub(crate) fn base_url(&self, env: &dyn Fn(&str) -> Option<String>) -> Option<(String, Origin)> {
        let manifest =
            self.layers.first().and_then(|(origin, entry)| Some((entry.base_url.clone()?, origin.clone())));
        let variables = self.first(|entry| entry.base_url_env.as_ref().map(Names::list));
        let named = variables.into_iter().flat_map(|(names, _)| names).find_map(|name| {
            let url = env(&name).filter(|url| !url.trim().is_empty())?;
            Some((url.trim().to_owned(), Origin::Env(name)))
        });
        manifest.or(named).or_else(|| self.first(|entry| entry.base_url.clone()))
    }

    /// The port of the catalog's base URL.
    pub(crate) fn own_port(&self) -> Option<u16> {
        let (url, _) = self.first(|entry| entry.base_url.clone())?;
        reqwest::Url::parse(&url).ok()?.port()
    }

    /// Whether a key is needed, from the first layer that says so; each place of it from the first that names one.
    pub(crate) fn auth(&self) -> (Auth, Origin) {
        match self.first(|entry| entry.auth.clone()) {
            None => (Auth::None, Origin::SchemeDefault),
            Some((Auth::None, origin)) => (Auth::None, origin),
            Some((Auth::ApiKey(_), origin)) => {
                let place = |get: fn(&KeyPlaces) -> Option<String>| {
                    self.first(|entry| match &entry.auth {
                        Some(Auth::ApiKey(places)) => get(places),
                        _ => None,
                    })
                };
                let env = self.first(|entry| match &entry.auth {
                    Some(Auth::ApiKey(places)) => places.env.clone(),
                    _ => None,
                });
                let places = KeyPlaces {
                    env: env.map(|(names, _)| names),
                    file: place(|places| places.file.clone()).map(|(file, _)| file),
                    keyring: place(|places| places.keyring.clone()).map(|(name, _)| name),
                };
                (Auth::ApiKey(places), origin)
            }
        }
    }

    pub(crate) fn headers(&self) -> BTreeMap<String, String> {
        let mut headers = BTreeMap::new();
        for (_, entry) in self.layers.iter().rev() {
            headers.extend(entry.headers.clone());
        }
        headers
    }

    pub(crate) fn deadlines(&mut self) -> Deadlines {
        let mut seconds = |key, get: fn(&Entry) -> Option<f64>, default: f64| {
            // What a file may say was checked when it was read.
            Duration::from_secs_f64(self.pick(key, get).unwrap_or(default))
        };
        Deadlines {
            connect: seconds("timeouts.connect_s", |e| e.timeouts.connect_s, CONNECT_S),
            first_byte: seconds("timeouts.first_byte_s", |e| e.timeouts.first_byte_s, FIRST_BYTE_S),
            idle: seconds("timeouts.idle_s", |e| e.timeouts.idle_s, IDLE_S),
        }
    }

    pub(crate) fn capability(&mut self) -> Capability {
        let default = Capability::default();
        let picked = fields!(self, "capability", capability, default; tools, reasoning, vision, caching, structured_output);
        let (tools, reasoning, vision, caching, structured_output) = picked;
        Capability { tools, reasoning, vision, caching, structured_output }
    }

    /// Quirks are noted only where somebody names one: most are about other schemes.
    pub(crate) fn quirks(&mut self) -> Quirks {
        let default = Quirks::default();
        let (max_tokens_field, system_role, notice_role, reasoning_field) = fields!(
            self, "quirks", quirks, default; max_tokens_field, system_role, notice_role, reasoning_field
        );
        let (stream_usage, call_signatures, adaptive_thinking, reasoning_summary, reply_after_results) = fields!(
            self, "quirks", quirks, default;
            stream_usage, call_signatures, adaptive_thinking, reasoning_summary, reply_after_results
        );
        let call_id_chars = self.pick("quirks.call_id_chars", |e| e.quirks.call_id_chars);
        Quirks {
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

    pub(crate) fn prices(&mut self) -> Prices {
        let long = self.first(|e| e.prices.long);
        if let Some((long, origin)) = &long {
            self.note("prices.long.over", &long.over, origin);
        }
        Prices {
            input: self.pick("prices.input", |e| e.prices.input),
            output: self.pick("prices.output", |e| e.prices.output),
            cache_read: self.pick("prices.cache_read", |e| e.prices.cache_read),
            cache_write: self.pick("prices.cache_write", |e| e.prices.cache_write),
            long: long.map(|(long, _)| long),
        }
    }

    pub(crate) fn into_fields(self) -> Vec<Field> {
        self.fields
    }
}

/// What is assumed of a scheme where nobody says anything.
pub(crate) fn scheme_default(scheme: Scheme) -> Entry {
    let Capability { tools, reasoning, vision, caching, structured_output } = Capability::default();
    let caching = match scheme {
        // The format's own limit.
        Scheme::Anthropic => Caching::Explicit(4),
        Scheme::OpenaiResponses | Scheme::OpenaiChat | Scheme::Gemini | Scheme::Scripted => caching,
    };
    let mut entry = Entry {
        key_header: Some(
            match scheme {
                Scheme::Anthropic => "x-api-key",
                Scheme::Gemini => "x-goog-api-key",
                Scheme::OpenaiResponses | Scheme::OpenaiChat | Scheme::Scripted => "bearer",
            }
            .to_owned(),
        ),
        capability: CapabilityPart {
            tools: Some(tools),
            reasoning: Some(reasoning),
            vision: Some(vision),
            caching: Some(caching),
            structured_output: Some(structured_output),
        },
        ..Entry::default()
    };
    entry.timeouts.connect_s = Some(CONNECT_S);
    entry.timeouts.first_byte_s = Some(FIRST_BYTE_S);
    entry.timeouts.idle_s = Some(IDLE_S);
    entry
}
