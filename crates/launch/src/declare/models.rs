//! The manifest of a new pod with its model, resolved as the pod will resolve it.
//!
//! Elsewhere: the keys and layers (`settings`), the catalog and the keys of providers (`llm`).

use std::path::{Path, PathBuf};

use minke_llm::ModelRequest;
use minke_manifest::{Manifest, ModelSection, NetworkPolicy, SandboxMode, WebSearchSection};
use minke_registry::PathsError;
use serde_json::{Value, json};

use crate::create::{NewPod, path_to_string};
use crate::declare::protected_paths::resolve_lifted;
use crate::declare::settings::declare_pod;
use crate::environment::LaunchEnv;
use crate::error::{SetupError, SetupRefusal};

/// Names the model of new pods when no option does.
pub const MODEL_VARIABLE: &str = "MINKE_MODEL";

/// Returns the declared manifest, with its model in canonical form.
pub(crate) fn declare_manifest(new: &NewPod, cwd: &Path, env: &LaunchEnv) -> Result<Manifest, SetupError> {
    let mut manifest = declare_pod(new, cwd, env)?.manifest;
    if let NetworkPolicy::Hosts(hosts) = &manifest.sandbox.network {
        minke_net::address::HostRules::parse_list(hosts).map_err(|e| {
            SetupRefusal::invalid("sandbox.network contains a host that cannot be granted").with_reason(e)
        })?;
    }
    if new.unsandboxed {
        manifest.sandbox.mode = SandboxMode::Off;
    }
    let hidden = hidden_paths(env)?;
    for path in &new.lift {
        manifest.sandbox.lifted.push(path_to_string(&resolve_lifted(path, cwd, &hidden)?)?);
    }
    if is_model_unset(&manifest.model) {
        manifest.model.reference = env.env_var(MODEL_VARIABLE);
    }
    if let Some(reference) = &manifest.model.reference {
        manifest.model.reference =
            Some(minke_llm::canonical_reference(reference, &env.cwd).map_err(model_error)?);
    }
    Ok(manifest)
}

/// Returns the model of a new pod in this directory, if one is configured.
pub fn default_model(env: &LaunchEnv) -> Result<Option<String>, SetupError> {
    let model = declare_manifest(&NewPod::default(), &env.cwd, env)?.model;
    Ok(model.reference.or(model.model_id))
}

/// Returns the manifest of a pod that is to be started. Resolves the model once, as the pod will in `cwd`, so
/// that a wrong one is refused now.
pub(crate) fn resolve_manifest(new: &NewPod, cwd: &Path, env: &LaunchEnv) -> Result<Manifest, SetupError> {
    let mut manifest = declare_manifest(new, cwd, env)?;
    if is_model_unset(&manifest.model) {
        return Err(SetupRefusal::invalid("no model is selected")
            .with_reason("no model is configured and --model is not given")
            .with_hint("--model PROVIDER/MODEL (`minke models` lists them), or --model scripted:demo, a built-in script")
            .into());
    }
    let around = env.resolve_context(cwd)?;
    let resolved =
        minke_llm::resolve_model(&manifest_model(&manifest.model), &around).map_err(model_error)?;
    if let Some(why) = resolved.missing_key {
        return Err(SetupRefusal::invalid(why).with_code("no_key").into());
    }
    for fallback in &mut manifest.model.fallback {
        *fallback = minke_llm::canonical_reference(fallback, &around.cwd).map_err(model_error)?;
        minke_llm::resolve_model(&fallback.as_str().into(), &around).map_err(model_error)?;
    }
    Ok(manifest)
}

fn is_model_unset(model: &ModelSection) -> bool {
    model.reference.is_none() && model.model_id.is_none()
}

fn model_error(error: minke_llm::ResolveError) -> SetupRefusal {
    let failure = SetupRefusal::invalid(&error).with_code("unknown_model");
    std::error::Error::source(&error).map(|cause| failure.clone().with_reason(cause)).unwrap_or(failure)
}

/// Returns the canonical reference of a model. Resolves it once, as a pod in `cwd` will, so that a wrong one
/// is refused.
pub fn canonical_model(reference: &str, cwd: &Path, env: &LaunchEnv) -> Result<String, SetupError> {
    let reference = minke_llm::canonical_reference(reference, &env.cwd).map_err(model_error)?;
    let there = env.resolve_context(cwd)?;
    minke_llm::resolve_model(&reference.as_str().into(), &there).map_err(model_error)?;
    Ok(reference)
}

/// Returns the paths that every pod hides: the user's secrets and the directories of Minke.
fn hidden_paths(env: &LaunchEnv) -> Result<Vec<PathBuf>, PathsError> {
    let paths = env.find_paths()?;
    // The same lookup as in the pod.
    let home = std::env::home_dir()
        .map(|home| minke_policy::secret_paths(&home.to_string_lossy()))
        .unwrap_or_default();
    let ours = [paths.config, paths.data, paths.state, paths.runtime];
    Ok(home.into_iter().map(PathBuf::from).chain(ours).collect())
}

/// Returns the model catalog.
pub fn model_catalog(env: &LaunchEnv) -> Result<Value, SetupError> {
    let listing = minke_llm::list_models(&env.resolve_context(&env.cwd)?)
        .map_err(|e| SetupRefusal::invalid("could not read the model catalog").with_reason(e))?;
    Ok(json!(listing))
}

/// The model that a manifest requests.
pub fn manifest_model(section: &ModelSection) -> ModelRequest {
    ModelRequest {
        reference: section.reference.clone(),
        scheme: section.scheme.clone(),
        base_url: section.base_url.clone(),
        model_id: section.model_id.clone(),
        auth: section.auth.clone(),
        capability: section.capability.clone(),
        context_window: section.context_window,
        max_output: section.max_output,
    }
}

/// The variables in a manifest that contain secrets; their values are redacted like a provider's key.
pub fn secret_variables(manifest: &Manifest) -> Vec<String> {
    let search = manifest.web.as_ref().and_then(|web| web.search.as_ref());
    let search = search.and_then(search_key_variable);
    let passed = manifest.sandbox.env.pass.iter().filter(|name| minke_exec::is_secret_name(name)).cloned();
    // The address of a store may contain a password.
    search.into_iter().chain(passed).chain([minke_store_postgres::ADDRESS_ENV.to_owned()]).collect()
}

/// The variable with the key of a search service.
pub fn search_key_variable(search: &WebSearchSection) -> Option<String> {
    let usual = (search.provider == "brave").then(|| "BRAVE_API_KEY".to_owned());
    search.api_key_env.clone().or(usual)
}
