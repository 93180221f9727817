//! Resolves a model reference to a model.
//!
//! `provider/model` is looked up in the catalog. `scripted:FILE` is the command line form of a script,
//! `scripted/<absolute file or built-in name>` the form in a manifest. Here: the decision. Elsewhere: the
//! layer of a value (`layers`), the model itself (`provider`, `scripted`). A model is never silently replaced
//! by another one: an unavailable model is an error that lists the available ones (`tests/catalog.rs`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_model::Model;
use minke_record::Route;
use reqwest::Url;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use crate::catalog::{
    AuthConfig, Catalog, CatalogEntry, CatalogError, TokenPrices, ValueOrigin, split_reference,
};
use crate::context::ResolveContext;
use crate::key_sources::build_key_redactor;
use crate::layers::{LayerPicker, ResolvedField, scheme_default};
use crate::provider::{HttpProvider, ProviderSetup};
use crate::provider_keys::{ProviderKeys, check_key_destination};
use crate::scripted::{BUILT_IN_SCRIPTS, ScriptError, ScriptedModel};
use crate::settings::{ModelCapability, ModelSettings, ProviderQuirks, WireScheme};
use crate::suggest;
use crate::with_prices::ModelWithPrices;

const SCRIPTED_PROVIDER: &str = "scripted";
/// The provider of a model that is described without a reference.
const CUSTOM_PROVIDER: &str = "custom";

/// The requested model: the `model` section of the manifest.
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

/// A resolved model with its properties.
#[derive(Clone)]
pub struct ResolvedModel {
    pub route: Route,
    pub model: Arc<dyn Model>,
    pub context_window: Option<u64>,
    pub max_output: Option<u64>,
    pub prices: TokenPrices,
    pub settings: ModelSettings,
    /// Alerts for the user.
    pub alerts: Vec<String>,
    pub needs_key: bool,
    /// Why a run would fail now: the key is missing. The pod starts anyway.
    pub missing_key: Option<String>,
    /// Every value with its origin.
    pub origins: Vec<ResolvedField>,
}

impl std::fmt::Debug for ResolvedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolved")
            .field("route", &self.route)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Why a reference cannot be resolved.
#[derive(Debug, Error)]
pub enum ResolveError {
    #[error("no model is set: use provider/model, or scripted:FILE with your own script")]
    NoModel,
    #[error("`{reference}` is not a model: use provider/model{hint}, or scripted:FILE with your own script")]
    InvalidReference { reference: String, hint: String },
    #[error("the model `{reference}` is unavailable: {why}")]
    UnknownModel { reference: String, why: String },
    /// The reference is only an unknown provider.
    #[error("{why}")]
    UnknownProvider { why: String },
    #[error("the model `{reference}`: `{key}` {why}")]
    InvalidValue { reference: String, key: &'static str, why: String },
    #[error(
        "`{reference}` is not a script: use a file, as in scripted:talk.toml, or a built-in one: {}",
        BUILT_IN_SCRIPTS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    )]
    UnknownScript { reference: String },
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error(transparent)]
    Script(#[from] ScriptError),
}

/// Resolves a request to a model. Opens no connection.
pub fn resolve_model(
    request: &ModelRequest,
    context: &ResolveContext,
) -> Result<ResolvedModel, ResolveError> {
    match &request.reference {
        Some(reference) if is_scripted_reference(reference) => resolve_scripted(reference, context),
        Some(reference) => {
            let (provider, model) = split_reference(reference).ok_or_else(|| invalid_reference(reference))?;
            let catalog = Catalog::load(context.config_dir.as_deref())?;
            ModelResolver { request, context, reference, provider, model }.resolve_provider_model(&catalog)
        }
        None if request.scheme.as_deref() == Some(SCRIPTED_PROVIDER) => {
            let name = request.model_id.as_deref().unwrap_or_default();
            resolve_scripted(&format!("{SCRIPTED_PROVIDER}/{name}"), context)
        }
        None => {
            let model = request.model_id.as_deref().ok_or(ResolveError::NoModel)?;
            let reference = &format!("{CUSTOM_PROVIDER}/{model}");
            let catalog = Catalog::load(context.config_dir.as_deref())?;
            ModelResolver { request, context, reference, provider: CUSTOM_PROVIDER, model }
                .resolve_provider_model(&catalog)
        }
    }
}

/// Resolves a described model of a loaded catalog.
pub(crate) fn resolve_from_catalog(
    catalog: &Catalog,
    reference: &str,
    context: &ResolveContext,
) -> Result<ResolvedModel, ResolveError> {
    let request = &ModelRequest::from(reference);
    match split_reference(reference) {
        Some((SCRIPTED_PROVIDER, _)) => resolve_scripted(reference, context),
        Some((provider, model)) => {
            ModelResolver { request, context, reference, provider, model }.resolve_provider_model(catalog)
        }
        None => Err(invalid_reference(reference)),
    }
}

/// Returns the form of a reference for a manifest, which does not depend on the working directory. Reads no
/// file.
pub fn canonical_reference(reference: &str, cwd: &Path) -> Result<String, ResolveError> {
    if is_scripted_reference(reference) {
        return Ok(format!(
            "{SCRIPTED_PROVIDER}/{}",
            ScriptSource::find_script(reference, cwd)?.display_name()
        ));
    }
    split_reference(reference).map(|_| reference.to_owned()).ok_or_else(|| invalid_reference(reference))
}

fn is_scripted_reference(reference: &str) -> bool {
    reference.split_once([':', '/']).is_some_and(|(provider, _)| provider == SCRIPTED_PROVIDER)
}

fn invalid_reference(reference: &str) -> ResolveError {
    let hint = Catalog::load(None).ok().and_then(|catalog| {
        let wanted = reference.replacen(':', "/", 1);
        let all = catalog.references();
        let model = |full: &&str| split_reference(full).is_some_and(|(_, model)| model == reference);
        let same = all.iter().copied().filter(model).min_by_key(|full| full.len());
        let meant = same.or_else(|| minke_text::suggest_name(&wanted, all.iter().copied()));
        meant.map(|meant| format!(", as in {meant}"))
    });
    ResolveError::InvalidReference { reference: reference.to_owned(), hint: hint.unwrap_or_default() }
}

/// Resolves a reference to a provider's model.
struct ModelResolver<'a> {
    request: &'a ModelRequest,
    context: &'a ResolveContext,
    reference: &'a str,
    provider: &'a str,
    model: &'a str,
}

impl ModelResolver<'_> {
    fn resolve_provider_model(self, catalog: &Catalog) -> Result<ResolvedModel, ResolveError> {
        if self.provider != CUSTOM_PROVIDER && !catalog.knows_provider(self.provider) {
            let why = catalog.unknown_provider_message(self.provider);
            return Err(ResolveError::UnknownModel { reference: self.reference.to_owned(), why });
        }
        let manifest = self.manifest_entry()?;
        let mut picker = LayerPicker::new(&manifest, catalog, self.provider, self.model);
        picker.pick_value("name", |e| e.name.clone());
        let scheme: WireScheme = picker.pick_value("scheme", |e| e.scheme).ok_or_else(|| {
            self.invalid_value(
                "scheme",
                "is not set: anthropic, openai_responses, openai_chat or gemini".to_owned(),
            )
        })?;
        let default = scheme_default(scheme);
        picker.push_default(&default);
        let (base_url, origin) = self.resolve_base_url(&mut picker)?;
        let (auth, auth_origin) = picker.pick_auth();
        let refused = match auth {
            AuthConfig::None => None,
            AuthConfig::ApiKey(_) => check_key_destination(self.provider, &base_url, &origin, catalog).err(),
        };
        let keys = ProviderKeys::new(self.provider, &auth, refused, catalog, self.context);
        picker.note_field("key", &keys.describe_source(), &auth_origin);
        let settings = self.build_settings(scheme, &mut picker);
        let context_window = picker.pick_value("context_window", |e| e.context_window);
        let setup = ProviderSetup {
            model: self.model.to_owned(),
            key_header: picker.pick_value("key_header", |e| e.key_header.clone()),
            headers: picker.merged_headers(),
            timeouts: picker.pick_timeouts(),
            prices: picker.pick_prices(),
            known_models: catalog.provider_models(self.provider).into_iter().map(str::to_owned).collect(),
            http: Arc::clone(&self.context.http),
            settings: settings.clone(),
            base_url,
            keys,
        };
        let prices = setup.prices;
        let alerts = self.setup_alerts(catalog, &setup, &auth);
        let provider = HttpProvider::new(setup).map_err(|problem| self.invalid_value("headers", problem))?;
        let scheme = settings.scheme.as_str().to_owned();
        Ok(ResolvedModel {
            route: Route { provider: self.provider.to_owned(), model: self.model.to_owned(), scheme },
            context_window,
            max_output: settings.max_output,
            prices,
            settings,
            alerts,
            needs_key: auth != AuthConfig::None,
            missing_key: provider.missing_key_message(),
            model: Arc::new(provider),
            origins: picker.into_fields(),
        })
    }

    fn build_settings(&self, scheme: WireScheme, picker: &mut LayerPicker<'_>) -> ModelSettings {
        let model_id = picker.pick_value("model_id", |e| e.model_id.clone()).unwrap_or_else(|| {
            picker.note_field("model_id", &self.model, &ValueOrigin::Reference);
            self.model.to_owned()
        });
        ModelSettings {
            scheme,
            provider: self.provider.to_owned(),
            model_id,
            max_output: picker.pick_value("max_output", |e| e.max_output),
            capability: picker.pick_capability(),
            quirks: picker.pick_quirks(),
        }
    }

    fn invalid_value(&self, key: &'static str, why: String) -> ResolveError {
        ResolveError::InvalidValue { reference: self.reference.to_owned(), key, why }
    }

    /// Returns the manifest section as a layer.
    fn manifest_entry(&self) -> Result<CatalogEntry, ResolveError> {
        let request = self.request;
        let scheme = request.scheme.clone().map(Value::String);
        Ok(CatalogEntry {
            scheme: self.read_value("scheme", scheme.as_ref())?,
            base_url: request.base_url.clone(),
            auth: self.read_value("auth", request.auth.as_ref())?,
            capability: self.read_value("capability", request.capability.as_ref())?.unwrap_or_default(),
            model_id: request.model_id.clone(),
            context_window: request.context_window,
            max_output: request.max_output,
            ..CatalogEntry::default()
        })
    }

    fn read_value<T: DeserializeOwned>(
        &self,
        key: &'static str,
        value: Option<&Value>,
    ) -> Result<Option<T>, ResolveError> {
        let Some(value) = value else { return Ok(None) };
        let read = serde_json::from_value(value.clone());
        read.map(Some).map_err(|e| {
            self.invalid_value(key, format!("is wrong: {}", suggest::with_suggestion(&e.to_string())))
        })
    }

    fn resolve_base_url(&self, picker: &mut LayerPicker<'_>) -> Result<(Url, ValueOrigin), ResolveError> {
        let Some((text, origin)) = picker.pick_base_url(&*self.context.env) else {
            let why = "is not set: set the URL of the server, as in http://127.0.0.1:8080".to_owned();
            return Err(self.invalid_value("base_url", why));
        };
        let text = match text.contains("://") || !matches!(origin, ValueOrigin::Env(_)) {
            true => text,
            false => with_http_scheme(&text, picker.catalog_port()),
        };
        // The message omits the value, which may contain a password.
        let wrong = |why: &str| self.invalid_value("base_url", format!("({origin}) {why}"));
        let url = Url::parse(&text).map_err(|e| wrong(&format!("is not an HTTP URL: {e}")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(wrong("is not an HTTP URL: use http://HOST or https://HOST"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("contains a user name or password: use `auth` or `headers` instead"));
        }
        picker.note_field("base_url", &url.as_str(), &origin);
        Ok((url, origin))
    }

    fn setup_alerts(&self, catalog: &Catalog, setup: &ProviderSetup, auth: &AuthConfig) -> Vec<String> {
        let mut alerts = Vec::new();
        let known = catalog.provider_models(self.provider);
        if !known.contains(&self.model) {
            let suggestion = minke_text::suggest_name(self.model, known.iter().copied());
            let near = suggestion
                .map(|near| format!(" The most similar known model is `{near}`."))
                .unwrap_or_default();
            alerts.push(format!(
                "The model `{}` is not in the catalog: properties that are not set, such as its context window, are unknown.{near}",
                self.reference
            ));
        }
        let host = setup.base_url.host_str().unwrap_or_default();
        let local = matches!(host, "localhost" | "[::1]") || host.starts_with("127.");
        if matches!(auth, AuthConfig::ApiKey(_)) && setup.base_url.scheme() == "http" && !local {
            alerts.push(format!("The key of {} goes to {host} unencrypted: use https.", self.provider));
        }
        alerts
    }
}

/// Adds `http://` to a variable with only a host, with or without a port.
pub(crate) fn with_http_scheme(host: &str, port: Option<u16>) -> String {
    let named = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match port.filter(|_| !named) {
        Some(port) => format!("http://{host}:{port}"),
        None => format!("http://{host}"),
    }
}

fn resolve_scripted(reference: &str, context: &ResolveContext) -> Result<ResolvedModel, ResolveError> {
    let source = ScriptSource::find_script(reference, &context.cwd)?;
    let script = match &source {
        ScriptSource::BuiltIn(name, text) => ScriptedModel::parse_script(name, text, &context.cwd)?,
        ScriptSource::File(path) => ScriptedModel::load_file(path, &context.cwd)?,
    }
    .with_pod(context.pod.clone())
    .with_key_redactor(Arc::new(build_key_redactor(context.clone())));
    let model = source.display_name();
    // The price is 0 unless the user's files set it; the embedded catalog is not read.
    let prices = Catalog::load(context.config_dir.as_deref())?.user_prices(SCRIPTED_PROVIDER, &model);
    let settings = ModelSettings {
        scheme: WireScheme::Scripted,
        provider: SCRIPTED_PROVIDER.to_owned(),
        model_id: model.clone(),
        max_output: None,
        capability: ModelCapability::default(),
        quirks: ProviderQuirks::default(),
    };
    let field = |key, value: &str| ResolvedField {
        key,
        value: value.to_owned(),
        origin: ValueOrigin::Reference.to_string(),
    };
    Ok(ResolvedModel {
        route: Route {
            provider: SCRIPTED_PROVIDER.into(),
            model: model.clone(),
            scheme: SCRIPTED_PROVIDER.into(),
        },
        model: match prices {
            Some(prices) => Arc::new(ModelWithPrices { model: script, prices }),
            None => Arc::new(script),
        },
        context_window: None,
        max_output: None,
        prices: prices.unwrap_or(TokenPrices::FREE),
        settings,
        alerts: Vec::new(),
        needs_key: false,
        missing_key: None,
        origins: vec![field("scheme", SCRIPTED_PROVIDER), field("model_id", &model)],
    })
}

enum ScriptSource {
    BuiltIn(&'static str, &'static str),
    File(PathBuf),
}

impl ScriptSource {
    fn find_script(reference: &str, cwd: &Path) -> Result<ScriptSource, ResolveError> {
        let Some((SCRIPTED_PROVIDER, name)) = reference.split_once([':', '/']) else {
            return Err(invalid_reference(reference));
        };
        if let Some((name, text)) = BUILT_IN_SCRIPTS.iter().find(|(built_in, _)| *built_in == name) {
            return Ok(ScriptSource::BuiltIn(name, text));
        }
        if name.is_empty() {
            return Err(ResolveError::UnknownScript { reference: reference.to_owned() });
        }
        Ok(ScriptSource::File(cwd.join(name)))
    }

    fn display_name(&self) -> String {
        match self {
            ScriptSource::BuiltIn(name, _) => (*name).to_owned(),
            ScriptSource::File(path) => path.to_string_lossy().into_owned(),
        }
    }
}
