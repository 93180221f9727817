//! Catalog: the known providers and models.
//!
//! Here: the embedded `providers.toml` and `models.toml`, the user's files of the same names on top, and the
//! lookup of the layer with a value. Elsewhere: the fields (`entry`), their use in a request (`resolve`).
//! Invariant: a user's entry changes only the fields that it sets
//! (`the_users_files_are_merged_field_by_field`), and an unknown key is an error with file and line
//! (`an_unknown_key_is_refused_with_its_nearest_name`).

mod entry;
mod list;
mod price;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use thiserror::Error;

pub(crate) use entry::{AuthConfig, CatalogEntry, KeySourceNames, OneOrMany, PartialCapability};
pub use entry::{LongContextPrices, TokenPrices};
pub use list::{ListedModel, ModelListing, list_models};

use crate::suggest;

const PROVIDERS_TOML: &str = include_str!("../../data/providers.toml");
const MODELS_TOML: &str = include_str!("../../data/models.toml");
/// The largest accepted catalog file. The embedded ones have a few KiB.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;
const MAX_NAME_BYTES: usize = 64;

/// The two files with the kind of their table names.
const PROVIDERS_FILE: (&str, TableKey) = ("providers.toml", TableKey::Provider);
const MODELS_FILE: (&str, TableKey) = ("models.toml", TableKey::Reference);

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueOrigin {
    /// The manifest: command line or the user's own files.
    Manifest,
    /// A file in the workspace of the pod, which is not trusted.
    Workspace,
    Env(String),
    UserModels,
    Models,
    UserProviders,
    Providers,
    /// The model reference itself.
    Reference,
    SchemeDefault,
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueOrigin::Manifest => "manifest",
            ValueOrigin::Workspace => "workspace",
            ValueOrigin::Env(name) => return write!(f, "env {name}"),
            ValueOrigin::UserModels => "models.toml (user)",
            ValueOrigin::Models => "models.toml",
            ValueOrigin::UserProviders => "providers.toml (user)",
            ValueOrigin::Providers => "providers.toml",
            ValueOrigin::Reference => "ref",
            ValueOrigin::SchemeDefault => "scheme default",
        })
    }
}

/// An error in a catalog file.
#[derive(Debug, Error)]
pub enum CatalogError {
    #[error("cannot read the catalog file {}: {source}", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the catalog file {} is longer than {MAX_FILE_BYTES} bytes", .path.display())]
    TooLong { path: PathBuf },
    #[error("the catalog file {place}: {problem}")]
    Invalid { place: String, problem: String },
}

/// The kind of table names in a file.
#[derive(Debug, Clone, Copy)]
enum TableKey {
    Provider,
    Reference,
}

impl TableKey {
    fn check_key(self, key: &str) -> Result<(), String> {
        // Keys are stored under the name of the provider, so it must be a valid file name.
        let fits = |name: &str| {
            let fits = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
            !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(fits)
        };
        match self {
            TableKey::Provider if fits(key) => Ok(()),
            TableKey::Provider => Err("a provider's name has letters a-z, digits, `-` and `_`".to_owned()),
            TableKey::Reference if split_reference(key).is_some_and(|(provider, _)| fits(provider)) => Ok(()),
            TableKey::Reference => Err("write the table as [\"provider/model\"]".to_owned()),
        }
    }
}

type EntryMap = BTreeMap<String, CatalogEntry>;

/// The content of one pair of files.
#[derive(Debug, Clone, Default)]
struct CatalogLayer {
    providers: EntryMap,
    /// Keyed by `provider/model`.
    models: EntryMap,
}

/// All known providers and models. The embedded part is parsed on first use.
#[derive(Debug, Clone)]
pub struct Catalog {
    user: CatalogLayer,
}

impl Catalog {
    /// Loads the user's files over the embedded catalog. Missing files are ignored.
    pub fn load(config_dir: Option<&Path>) -> Result<Catalog, CatalogError> {
        let file = |(name, key): (&str, TableKey)| match config_dir {
            Some(dir) => read_layer_file(&dir.join(name), key),
            None => Ok(EntryMap::new()),
        };
        let user = CatalogLayer { providers: file(PROVIDERS_FILE)?, models: file(MODELS_FILE)? };
        Ok(Catalog { user })
    }

    /// Returns the names of all providers, sorted.
    pub fn providers(&self) -> Vec<&str> {
        let names = self.user.providers.keys().chain(built_in_layer().providers.keys());
        names.map(String::as_str).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns `provider/model` of all described models, sorted.
    pub fn references(&self) -> Vec<&str> {
        let names = self.user.models.keys().chain(built_in_layer().models.keys());
        names.map(String::as_str).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the described models of one provider.
    pub(crate) fn provider_models(&self, provider: &str) -> Vec<&str> {
        let of = |name| split_reference(name).filter(|(of, _)| *of == provider).map(|(_, model)| model);
        self.references().into_iter().filter_map(of).collect()
    }

    pub(crate) fn knows_provider(&self, provider: &str) -> bool {
        self.user.providers.contains_key(provider) || built_in_layer().providers.contains_key(provider)
    }

    /// Returns the entries of a provider and a model, highest priority first.
    pub(crate) fn layered_entries(&self, provider: &str, model: &str) -> Vec<(ValueOrigin, &CatalogEntry)> {
        let reference = format!("{provider}/{model}");
        let found = [
            (ValueOrigin::UserModels, self.user.models.get(&reference)),
            (ValueOrigin::Models, built_in_layer().models.get(&reference)),
            (ValueOrigin::UserProviders, self.user.providers.get(provider)),
            (ValueOrigin::Providers, built_in_layer().providers.get(provider)),
        ];
        found.into_iter().filter_map(|(origin, entry)| Some((origin, entry?))).collect()
    }

    /// Returns the prices of a model in the user's own files.
    pub(crate) fn user_prices(&self, provider: &str, model: &str) -> Option<TokenPrices> {
        let model = self.user.models.get(&format!("{provider}/{model}")).map(|entry| entry.prices);
        let provider = self.user.providers.get(provider).map(|entry| entry.prices);
        model.into_iter().chain(provider).find(|prices| *prices != TokenPrices::default())
    }

    /// Returns the built-in base URL of the provider, ignoring all settings.
    pub(crate) fn built_in_base_url(&self, provider: &str) -> Option<&str> {
        built_in_layer().providers.get(provider)?.base_url.as_deref()
    }

    /// Returns the built-in providers that need a key, with their base URLs.
    pub(crate) fn keyed_providers(&self) -> impl Iterator<Item = (&str, &str)> {
        built_in_layer().providers.iter().filter_map(|(name, entry)| {
            let keyed = matches!(entry.auth, Some(AuthConfig::ApiKey(_)));
            Some((name.as_str(), entry.base_url.as_deref().filter(|_| keyed)?))
        })
    }

    /// Returns every variable that may contain a key.
    pub(crate) fn key_variables(&self) -> BTreeSet<String> {
        self.key_source_names().filter_map(|places| places.env.as_ref()).flat_map(OneOrMany::to_vec).collect()
    }

    /// Returns every file that may contain a key, as written in its entry.
    pub(crate) fn key_files(&self) -> BTreeSet<&str> {
        self.key_source_names().filter_map(|places| places.file.as_deref()).collect()
    }

    fn key_source_names(&self) -> impl Iterator<Item = &KeySourceNames> {
        let layers = [&self.user, built_in_layer()].into_iter();
        let entries = layers.flat_map(|layer| layer.providers.values().chain(layer.models.values()));
        entries.filter_map(|entry| match &entry.auth {
            Some(AuthConfig::ApiKey(places)) => Some(places),
            _ => None,
        })
    }

    /// Returns the error message for an unknown provider.
    pub(crate) fn unknown_provider_message(&self, name: &str) -> String {
        let known = self.providers();
        let suggestion = minke_text::suggest_name(name, known.iter().copied());
        let meant = suggestion.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
        format!("there is no provider `{name}`: {meant}Known providers: {}", known.join(", "))
    }
}

/// Splits `provider/model`. The model may contain more slashes.
pub(crate) fn split_reference(reference: &str) -> Option<(&str, &str)> {
    reference.split_once('/').filter(|(provider, model)| !provider.is_empty() && !model.is_empty())
}

fn built_in_layer() -> &'static CatalogLayer {
    static BUILT_IN: OnceLock<CatalogLayer> = OnceLock::new();
    BUILT_IN.get_or_init(|| {
        let promise = "a test parses the embedded catalog";
        CatalogLayer {
            providers: parse_layer(PROVIDERS_FILE.0, PROVIDERS_TOML, PROVIDERS_FILE.1).expect(promise),
            models: parse_layer(MODELS_FILE.0, MODELS_TOML, MODELS_FILE.1).expect(promise),
        }
    })
}

fn read_layer_file(path: &Path, key: TableKey) -> Result<EntryMap, CatalogError> {
    let failed = |source| CatalogError::Read { path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(EntryMap::new()),
        Err(e) => return Err(failed(e)),
    };
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(CatalogError::TooLong { path: path.to_owned() });
    }
    parse_layer(&path.display().to_string(), &text, key)
}

fn parse_layer(name: &str, text: &str, keys: TableKey) -> Result<EntryMap, CatalogError> {
    let entries: EntryMap = toml::from_str(text).map_err(|e| {
        let place = match e.span() {
            Some(span) => {
                let before = text.as_bytes().get(..span.start).unwrap_or(text.as_bytes());
                let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
                format!("{name}, line {line}")
            }
            None => name.to_owned(),
        };
        CatalogError::Invalid { place, problem: suggest::with_suggestion(e.message()) }
    })?;
    for (key, entry) in &entries {
        keys.check_key(key).and_then(|()| check_entry(entry)).map_err(|problem| CatalogError::Invalid {
            place: name.to_owned(),
            problem: format!("`{key}`: {problem}"),
        })?;
    }
    Ok(entries)
}

/// The longest timeout: one hour.
const MAX_TIMEOUT_S: f64 = 3_600.0;

/// Checks constraints that the types do not express.
fn check_entry(entry: &CatalogEntry) -> Result<(), String> {
    let timeouts = &entry.timeouts;
    for (key, value) in [
        ("connect_s", timeouts.connect_s),
        ("first_byte_s", timeouts.first_byte_s),
        ("idle_s", timeouts.idle_s),
    ] {
        // Also rejects NaN.
        if let Some(value) = value.filter(|value| !(*value > 0.0 && *value <= MAX_TIMEOUT_S)) {
            return Err(format!(
                "`timeouts.{key}` is {value}: it must be seconds, more than 0 and at most {MAX_TIMEOUT_S}"
            ));
        }
    }
    let prices = &entry.prices;
    for price in [prices.input, prices.output, prices.cache_read, prices.cache_write].into_iter().flatten() {
        if !(price >= 0.0 && price.is_finite()) {
            return Err(format!("a price is {price}: it must be dollars per million tokens"));
        }
    }
    for (key, value) in [("context_window", entry.context_window), ("max_output", entry.max_output)] {
        if value == Some(0) {
            return Err(format!("`{key}` is 0: set a number of tokens, or omit it if it is unknown"));
        }
    }
    Ok(())
}
