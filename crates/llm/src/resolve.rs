//! From a model's reference to a model.
//!
//! `provider/model` is looked up in the catalog; `scripted:FILE` is the form of the command line for a script,
//! `scripted/<absolute file or built-in name>` the one of a manifest. Here: the decision. Elsewhere: which layer a value
//! comes from (`pick`), the model itself (`provider`, `scripted`).
//! A model is never silently replaced by another one: what cannot be had is an error that says what there is
//! (`tests/catalog.rs`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_model::Model;
use minke_record::Route;
use reqwest::Url;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use crate::around::Around;
use crate::catalog::{Auth, Catalog, CatalogError, Entry, Origin, Prices, split};
use crate::cover::Cover;
use crate::keys::{Keys, may_have_key};
use crate::near;
use crate::pick::{Field, Picker, scheme_default};
use crate::priced::Priced;
use crate::provider::{Provider, Setup};
use crate::scripted::{BUILT_IN, ScriptError, Scripted};
use crate::settings::{Capability, Quirks, Scheme, Settings};

const SCRIPTED: &str = "scripted";
/// The provider of a model that is described without a reference.
const CUSTOM: &str = "custom";

/// Which model is wanted: the manifest's `model` section.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelRequest {
    /// `ref`.
    pub reference: Option<String>,
    pub scheme: Option<String>,
    pub base_url: Option<String>,
    pub model_id: Option<String>,
    pub auth: Option<Value>,
    pub capability: Option<Value>,
    pub context_window: Option<u64>,
    pub max_output: Option<u64>,
}

impl From<&str> for ModelRequest {
    fn from(reference: &str) -> ModelRequest {
        ModelRequest { reference: Some(reference.to_owned()), ..ModelRequest::default() }
    }
}

/// A model that can be asked, and what is known of it.
#[derive(Clone)]
pub struct Resolved {
    pub route: Route,
    pub model: Arc<dyn Model>,
    pub context_window: Option<u64>,
    pub max_output: Option<u64>,
    pub prices: Prices,
    pub settings: Settings,
    /// What a person should know; each is an alert.
    pub alerts: Vec<String>,
    pub needs_key: bool,
    /// Why a run would be refused now: there is no key. The pod starts all the same.
    pub missing_key: Option<String>,
    /// Every value and where it comes from.
    pub origins: Vec<Field>,
}

impl std::fmt::Debug for Resolved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolved")
            .field("route", &self.route)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Why a reference gives no model.
#[derive(Debug, Error)]
pub enum ResolveError {
    #[error("no model is named: write provider/model, or scripted:FILE with a script of your own")]
    NoModel,
    #[error(
        "`{reference}` names no model: write provider/model{hint}, or scripted:FILE with a script of your own"
    )]
    NoReference { reference: String, hint: String },
    #[error("the model `{reference}` cannot be had: {why}")]
    NoProvider { reference: String, why: String },
    /// A provider alone was named.
    #[error("{why}")]
    UnknownProvider { why: String },
    #[error("the model `{reference}`: `{key}` {why}")]
    BadValue { reference: String, key: &'static str, why: String },
    #[error(
        "`{reference}` names no script: give a file, as in scripted:talk.toml, or one of the built-in ones: {}",
        BUILT_IN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    )]
    NoScript { reference: String },
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error(transparent)]
    Script(#[from] ScriptError),
}

/// The model that is meant. Opens no connection.
pub fn resolve(request: &ModelRequest, around: &Around) -> Result<Resolved, ResolveError> {
    match &request.reference {
        Some(reference) if is_scripted(reference) => scripted(reference, around),
        Some(reference) => {
            let (provider, model) = split(reference).ok_or_else(|| no_reference(reference))?;
            let catalog = Catalog::load(around.config_dir.as_deref())?;
            Resolving { request, around, reference, provider, model }.finish(&catalog)
        }
        None if request.scheme.as_deref() == Some(SCRIPTED) => {
            let name = request.model_id.as_deref().unwrap_or_default();
            scripted(&format!("{SCRIPTED}/{name}"), around)
        }
        None => {
            let model = request.model_id.as_deref().ok_or(ResolveError::NoModel)?;
            let reference = &format!("{CUSTOM}/{model}");
            let catalog = Catalog::load(around.config_dir.as_deref())?;
            Resolving { request, around, reference, provider: CUSTOM, model }.finish(&catalog)
        }
    }
}

/// The same for a described model of a catalog that is read already.
pub(crate) fn resolve_in(
    catalog: &Catalog,
    reference: &str,
    around: &Around,
) -> Result<Resolved, ResolveError> {
    let request = &ModelRequest::from(reference);
    match split(reference) {
        Some((SCRIPTED, _)) => scripted(reference, around),
        Some((provider, model)) => Resolving { request, around, reference, provider, model }.finish(catalog),
        None => Err(no_reference(reference)),
    }
}

/// The form of a reference that a manifest keeps: it means the same wherever it is read. Reads no file.
pub fn canonical(reference: &str, cwd: &Path) -> Result<String, ResolveError> {
    if is_scripted(reference) {
        return Ok(format!("{SCRIPTED}/{}", Source::find(reference, cwd)?.name()));
    }
    split(reference).map(|_| reference.to_owned()).ok_or_else(|| no_reference(reference))
}

fn is_scripted(reference: &str) -> bool {
    reference.split_once([':', '/']).is_some_and(|(provider, _)| provider == SCRIPTED)
}

fn no_reference(reference: &str) -> ResolveError {
    let hint = Catalog::load(None).ok().and_then(|catalog| {
        let wanted = reference.replacen(':', "/", 1);
        let all = catalog.references();
        let model = |full: &&str| split(full).is_some_and(|(_, model)| model == reference);
        let same = all.iter().copied().filter(model).min_by_key(|full| full.len());
        let meant = same.or_else(|| near::nearest(&wanted, all.iter().copied()));
        meant.map(|meant| format!(", as in {meant}"))
    });
    ResolveError::NoReference { reference: reference.to_owned(), hint: hint.unwrap_or_default() }
}

/// A reference to a provider's model on its way to the model.
struct Resolving<'a> {
    request: &'a ModelRequest,
    around: &'a Around,
    reference: &'a str,
    provider: &'a str,
    model: &'a str,
}

impl Resolving<'_> {
    fn finish(self, catalog: &Catalog) -> Result<Resolved, ResolveError> {
        if self.provider != CUSTOM && !catalog.knows_provider(self.provider) {
            let why = catalog.no_provider(self.provider);
            return Err(ResolveError::NoProvider { reference: self.reference.to_owned(), why });
        }
        let manifest = self.manifest_entry()?;
        let mut picker = Picker::new(&manifest, catalog, self.provider, self.model);
        picker.pick("name", |e| e.name.clone());
        let scheme: Scheme = picker.pick("scheme", |e| e.scheme).ok_or_else(|| {
            self.bad("scheme", "is not set: anthropic, openai_responses, openai_chat or gemini".to_owned())
        })?;
        let default = scheme_default(scheme);
        picker.push_default(&default);
        let (base, origin) = self.base_url(&mut picker)?;
        let (auth, auth_origin) = picker.auth();
        let refused = match auth {
            Auth::None => None,
            Auth::ApiKey(_) => may_have_key(self.provider, &base, &origin, catalog).err(),
        };
        let keys = Keys::new(self.provider, &auth, refused, catalog, self.around);
        picker.note("key", &keys.shown(), &auth_origin);
        let settings = self.settings(scheme, &mut picker);
        let context_window = picker.pick("context_window", |e| e.context_window);
        let setup = Setup {
            model: self.model.to_owned(),
            key_header: picker.pick("key_header", |e| e.key_header.clone()),
            headers: picker.headers(),
            deadlines: picker.deadlines(),
            prices: picker.prices(),
            known_models: catalog.models_of(self.provider).into_iter().map(str::to_owned).collect(),
            http: Arc::clone(&self.around.http),
            settings: settings.clone(),
            base,
            keys,
        };
        let prices = setup.prices;
        let alerts = self.alerts(catalog, &setup, &auth);
        let provider = Provider::new(setup).map_err(|problem| self.bad("headers", problem))?;
        let scheme = settings.scheme.as_str().to_owned();
        Ok(Resolved {
            route: Route { provider: self.provider.to_owned(), model: self.model.to_owned(), scheme },
            context_window,
            max_output: settings.max_output,
            prices,
            settings,
            alerts,
            needs_key: auth != Auth::None,
            missing_key: provider.missing_key(),
            model: Arc::new(provider),
            origins: picker.into_fields(),
        })
    }

    fn settings(&self, scheme: Scheme, picker: &mut Picker<'_>) -> Settings {
        let model_id = picker.pick("model_id", |e| e.model_id.clone()).unwrap_or_else(|| {
            picker.note("model_id", &self.model, &Origin::Reference);
            self.model.to_owned()
        });
        Settings {
            scheme,
            provider: self.provider.to_owned(),
            model_id,
            max_output: picker.pick("max_output", |e| e.max_output),
            capability: picker.capability(),
            quirks: picker.quirks(),
        }
    }

    fn bad(&self, key: &'static str, why: String) -> ResolveError {
        ResolveError::BadValue { reference: self.reference.to_owned(), key, why }
    }

    /// What the manifest says, as a layer like the others.
    fn manifest_entry(&self) -> Result<Entry, ResolveError> {
        let request = self.request;
        let scheme = request.scheme.clone().map(Value::String);
        Ok(Entry {
            scheme: self.read("scheme", scheme.as_ref())?,
            base_url: request.base_url.clone(),
            auth: self.read("auth", request.auth.as_ref())?,
            capability: self.read("capability", request.capability.as_ref())?.unwrap_or_default(),
            model_id: request.model_id.clone(),
            context_window: request.context_window,
            max_output: request.max_output,
            ..Entry::default()
        })
    }

    fn read<T: DeserializeOwned>(
        &self,
        key: &'static str,
        value: Option<&Value>,
    ) -> Result<Option<T>, ResolveError> {
        let Some(value) = value else { return Ok(None) };
        let read = serde_json::from_value(value.clone());
        read.map(Some).map_err(|e| self.bad(key, format!("is wrong: {}", near::suggest(&e.to_string()))))
    }

    fn base_url(&self, picker: &mut Picker<'_>) -> Result<(Url, Origin), ResolveError> {
        let Some((text, origin)) = picker.base_url(&*self.around.env) else {
            let why = "is not set: write where the server is, as in http://127.0.0.1:8080".to_owned();
            return Err(self.bad("base_url", why));
        };
        let text = match text.contains("://") || !matches!(origin, Origin::Env(_)) {
            true => text,
            false => with_scheme(&text, picker.own_port()),
        };
        // What is wrong is told without the text: a password may stand in it.
        let wrong = |why: &str| self.bad("base_url", format!("({origin}) {why}"));
        let url = Url::parse(&text).map_err(|e| wrong(&format!("is no address: {e}")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(wrong("is no address of a web server: write http://HOST or https://HOST"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("holds a name or password: use `auth` or `headers` instead"));
        }
        picker.note("base_url", &url.as_str(), &origin);
        Ok((url, origin))
    }

    fn alerts(&self, catalog: &Catalog, setup: &Setup, auth: &Auth) -> Vec<String> {
        let mut alerts = Vec::new();
        let known = catalog.models_of(self.provider);
        if !known.contains(&self.model) {
            let near = near::nearest(self.model, known.iter().copied());
            let near = near.map(|near| format!(" The nearest known one is `{near}`.")).unwrap_or_default();
            alerts.push(format!(
                "The model `{}` is not in the catalog: what is not set for it, such as its window, is unknown.{near}",
                self.reference
            ));
        }
        let host = setup.base.host_str().unwrap_or_default();
        let local = matches!(host, "localhost" | "[::1]") || host.starts_with("127.");
        if matches!(auth, Auth::ApiKey(_)) && setup.base.scheme() == "http" && !local {
            alerts.push(format!("The key of {} goes to {host} unencrypted: use https.", self.provider));
        }
        alerts
    }
}

/// A variable that holds only a host, with or without a port, means a server that speaks plain HTTP.
pub(crate) fn with_scheme(host: &str, port: Option<u16>) -> String {
    let named = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match port.filter(|_| !named) {
        Some(port) => format!("http://{host}:{port}"),
        None => format!("http://{host}"),
    }
}

fn scripted(reference: &str, around: &Around) -> Result<Resolved, ResolveError> {
    let source = Source::find(reference, &around.cwd)?;
    let script = match &source {
        Source::BuiltIn(name, text) => Scripted::parse(name, text, &around.cwd)?,
        Source::File(path) => Scripted::load(path, &around.cwd)?,
    }
    .with_pod(around.pod.clone())
    .covered(Arc::new(Cover::new(around.clone())));
    let model = source.name();
    // Its price is 0 unless the user gives it one; the embedded catalog is not read for it.
    let prices = Catalog::load(around.config_dir.as_deref())?.users_prices(SCRIPTED, &model);
    let settings = Settings {
        scheme: Scheme::Scripted,
        provider: SCRIPTED.to_owned(),
        model_id: model.clone(),
        max_output: None,
        capability: Capability::default(),
        quirks: Quirks::default(),
    };
    let field =
        |key, value: &str| Field { key, value: value.to_owned(), origin: Origin::Reference.to_string() };
    Ok(Resolved {
        route: Route { provider: SCRIPTED.into(), model: model.clone(), scheme: SCRIPTED.into() },
        model: match prices {
            Some(prices) => Arc::new(Priced { model: script, prices }),
            None => Arc::new(script),
        },
        context_window: None,
        max_output: None,
        prices: prices.unwrap_or(Prices::FREE),
        settings,
        alerts: Vec::new(),
        needs_key: false,
        missing_key: None,
        origins: vec![field("scheme", SCRIPTED), field("model_id", &model)],
    })
}

enum Source {
    BuiltIn(&'static str, &'static str),
    File(PathBuf),
}

impl Source {
    fn find(reference: &str, cwd: &Path) -> Result<Source, ResolveError> {
        let Some((SCRIPTED, name)) = reference.split_once([':', '/']) else {
            return Err(no_reference(reference));
        };
        if let Some((name, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Ok(Source::BuiltIn(name, text));
        }
        if name.is_empty() {
            return Err(ResolveError::NoScript { reference: reference.to_owned() });
        }
        Ok(Source::File(cwd.join(name)))
    }

    fn name(&self) -> String {
        match self {
            Source::BuiltIn(name, _) => (*name).to_owned(),
            Source::File(path) => path.to_string_lossy().into_owned(),
        }
    }
}
