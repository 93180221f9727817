//! Catalog: what is known of providers and models.
//!
//! Here: the embedded `providers.toml` and `models.toml`, the user's files of the same names over them, and looking up
//! which layer has a field. Elsewhere: the fields (`entry`), what they mean for a request (`resolve`).
//! Invariant: a user's entry changes the fields that it names and no others
//! (`the_users_files_are_merged_field_by_field`), and a key that nobody reads is refused with file and line
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

pub(crate) use entry::{Auth, CapabilityPart, Entry, KeyPlaces, Names};
pub use entry::{LongPrices, Prices};
pub use list::{Listed, Listing, models};

use crate::near;

const PROVIDERS: &str = include_str!("../../data/providers.toml");
const MODELS: &str = include_str!("../../data/models.toml");
/// The longest catalog file; ours are a few KiB.
const FILE_BYTES: u64 = 4 * 1024 * 1024;
const NAME_BYTES: usize = 64;

/// The two files, and what the tables in them are called.
const PROVIDERS_FILE: (&str, Key) = ("providers.toml", Key::Provider);
const MODELS_FILE: (&str, Key) = ("models.toml", Key::Reference);

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// What the pod was declared with, on the command line or in the user's own files.
    Manifest,
    /// What the directory says in which the pod works. It may have come from anybody.
    Workspace,
    Env(String),
    UserModels,
    Models,
    UserProviders,
    Providers,
    /// The reference itself.
    Reference,
    SchemeDefault,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Manifest => "manifest",
            Origin::Workspace => "workspace",
            Origin::Env(name) => return write!(f, "env {name}"),
            Origin::UserModels => "models.toml (user)",
            Origin::Models => "models.toml",
            Origin::UserProviders => "providers.toml (user)",
            Origin::Providers => "providers.toml",
            Origin::Reference => "ref",
            Origin::SchemeDefault => "scheme default",
        })
    }
}

/// A catalog file cannot be used.
#[derive(Debug, Error)]
pub enum CatalogError {
    #[error("cannot read the catalog file {}: {source}", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the catalog file {} is longer than {FILE_BYTES} bytes", .path.display())]
    TooLong { path: PathBuf },
    #[error("the catalog file {place}: {problem}")]
    Bad { place: String, problem: String },
}

/// What the tables of a file are called.
#[derive(Debug, Clone, Copy)]
enum Key {
    Provider,
    Reference,
}

impl Key {
    fn check(self, key: &str) -> Result<(), String> {
        // A key is stored under the provider's name, so it is one that a file can have.
        let fits = |name: &str| {
            let fits = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
            !name.is_empty() && name.len() <= NAME_BYTES && name.bytes().all(fits)
        };
        match self {
            Key::Provider if fits(key) => Ok(()),
            Key::Provider => Err("a provider's name has letters a-z, digits, `-` and `_`".to_owned()),
            Key::Reference if split(key).is_some_and(|(provider, _)| fits(provider)) => Ok(()),
            Key::Reference => Err("write the table as [\"provider/model\"]".to_owned()),
        }
    }
}

type Entries = BTreeMap<String, Entry>;

/// One pair of files.
#[derive(Debug, Clone, Default)]
struct Layer {
    providers: Entries,
    /// By `provider/model`.
    models: Entries,
}

/// Everything that is known. The embedded part is read when it is first asked for.
#[derive(Debug, Clone)]
pub struct Catalog {
    user: Layer,
}

impl Catalog {
    /// The embedded catalog with the user's files over it; files that are not there change nothing.
    pub fn load(config_dir: Option<&Path>) -> Result<Catalog, CatalogError> {
        let file = |(name, key): (&str, Key)| match config_dir {
            Some(dir) => read(&dir.join(name), key),
            None => Ok(Entries::new()),
        };
        let user = Layer { providers: file(PROVIDERS_FILE)?, models: file(MODELS_FILE)? };
        Ok(Catalog { user })
    }

    /// The names of all providers, sorted.
    pub fn providers(&self) -> Vec<&str> {
        let names = self.user.providers.keys().chain(built_in().providers.keys());
        names.map(String::as_str).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// `provider/model` of all models that are described, sorted.
    pub fn references(&self) -> Vec<&str> {
        let names = self.user.models.keys().chain(built_in().models.keys());
        names.map(String::as_str).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The described models of one provider.
    pub(crate) fn models_of(&self, provider: &str) -> Vec<&str> {
        let of = |name| split(name).filter(|(of, _)| *of == provider).map(|(_, model)| model);
        self.references().into_iter().filter_map(of).collect()
    }

    pub(crate) fn knows_provider(&self, provider: &str) -> bool {
        self.user.providers.contains_key(provider) || built_in().providers.contains_key(provider)
    }

    /// The entries of a provider and a model, the first that counts first.
    pub(crate) fn entries(&self, provider: &str, model: &str) -> Vec<(Origin, &Entry)> {
        let reference = format!("{provider}/{model}");
        let found = [
            (Origin::UserModels, self.user.models.get(&reference)),
            (Origin::Models, built_in().models.get(&reference)),
            (Origin::UserProviders, self.user.providers.get(provider)),
            (Origin::Providers, built_in().providers.get(provider)),
        ];
        found.into_iter().filter_map(|(origin, entry)| Some((origin, entry?))).collect()
    }

    /// What the user's own files say that a model costs.
    pub(crate) fn users_prices(&self, provider: &str, model: &str) -> Option<Prices> {
        let model = self.user.models.get(&format!("{provider}/{model}")).map(|entry| entry.prices);
        let provider = self.user.providers.get(provider).map(|entry| entry.prices);
        model.into_iter().chain(provider).find(|prices| *prices != Prices::default())
    }

    /// The provider's own base URL: the built-in one, which no setting changes.
    pub(crate) fn own_base_url(&self, provider: &str) -> Option<&str> {
        built_in().providers.get(provider)?.base_url.as_deref()
    }

    /// The built-in providers that want a key, with their own base URLs.
    pub(crate) fn keyed(&self) -> impl Iterator<Item = (&str, &str)> {
        built_in().providers.iter().filter_map(|(name, entry)| {
            let keyed = matches!(entry.auth, Some(Auth::ApiKey(_)));
            Some((name.as_str(), entry.base_url.as_deref().filter(|_| keyed)?))
        })
    }

    /// Every variable that may hold a key of any provider.
    pub(crate) fn key_variables(&self) -> BTreeSet<String> {
        self.key_places().filter_map(|places| places.env.as_ref()).flat_map(Names::list).collect()
    }

    /// Every file that may hold one, as its entry writes it.
    pub(crate) fn key_files(&self) -> BTreeSet<&str> {
        self.key_places().filter_map(|places| places.file.as_deref()).collect()
    }

    fn key_places(&self) -> impl Iterator<Item = &KeyPlaces> {
        let layers = [&self.user, built_in()].into_iter();
        let entries = layers.flat_map(|layer| layer.providers.values().chain(layer.models.values()));
        entries.filter_map(|entry| match &entry.auth {
            Some(Auth::ApiKey(places)) => Some(places),
            _ => None,
        })
    }

    /// What to say about a provider that is not there.
    pub(crate) fn no_provider(&self, name: &str) -> String {
        let known = self.providers();
        let near = near::nearest(name, known.iter().copied());
        let meant = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
        format!("there is no provider `{name}`: {meant}Known are {}", known.join(", "))
    }
}

/// The two halves of `provider/model`; the model may hold further slashes.
pub(crate) fn split(reference: &str) -> Option<(&str, &str)> {
    reference.split_once('/').filter(|(provider, model)| !provider.is_empty() && !model.is_empty())
}

fn built_in() -> &'static Layer {
    static BUILT_IN: OnceLock<Layer> = OnceLock::new();
    BUILT_IN.get_or_init(|| {
        let promise = "the embedded catalog is read by a test";
        Layer {
            providers: parse(PROVIDERS_FILE.0, PROVIDERS, PROVIDERS_FILE.1).expect(promise),
            models: parse(MODELS_FILE.0, MODELS, MODELS_FILE.1).expect(promise),
        }
    })
}

fn read(path: &Path, key: Key) -> Result<Entries, CatalogError> {
    let failed = |source| CatalogError::Read { path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Entries::new()),
        Err(e) => return Err(failed(e)),
    };
    let mut text = String::new();
    file.take(FILE_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES {
        return Err(CatalogError::TooLong { path: path.to_owned() });
    }
    parse(&path.display().to_string(), &text, key)
}

fn parse(name: &str, text: &str, keys: Key) -> Result<Entries, CatalogError> {
    let entries: Entries = toml::from_str(text).map_err(|e| {
        let place = match e.span() {
            Some(span) => {
                let before = text.as_bytes().get(..span.start).unwrap_or(text.as_bytes());
                let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
                format!("{name}, line {line}")
            }
            None => name.to_owned(),
        };
        CatalogError::Bad { place, problem: near::suggest(e.message()) }
    })?;
    for (key, entry) in &entries {
        keys.check(key).and_then(|()| check(entry)).map_err(|problem| CatalogError::Bad {
            place: name.to_owned(),
            problem: format!("`{key}`: {problem}"),
        })?;
    }
    Ok(entries)
}

/// The longest deadline: an hour.
const DEADLINE_S: f64 = 3_600.0;

/// What the types do not say.
fn check(entry: &Entry) -> Result<(), String> {
    let timeouts = &entry.timeouts;
    for (key, value) in [
        ("connect_s", timeouts.connect_s),
        ("first_byte_s", timeouts.first_byte_s),
        ("idle_s", timeouts.idle_s),
    ] {
        // Also false for what is not a number.
        if let Some(value) = value.filter(|value| !(*value > 0.0 && *value <= DEADLINE_S)) {
            return Err(format!(
                "`timeouts.{key}` is {value}: write seconds, more than 0 and at most {DEADLINE_S}"
            ));
        }
    }
    let prices = &entry.prices;
    for price in [prices.input, prices.output, prices.cache_read, prices.cache_write].into_iter().flatten() {
        if !(price >= 0.0 && price.is_finite()) {
            return Err(format!("a price is {price}: write dollars per million tokens"));
        }
    }
    for (key, value) in [("context_window", entry.context_window), ("max_output", entry.max_output)] {
        if value == Some(0) {
            return Err(format!("`{key}` is 0: write tokens, or leave it out if it is unknown"));
        }
    }
    Ok(())
}
