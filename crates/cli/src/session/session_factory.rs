//! Creates the threads of the host, from files, profiles and the model catalog.
//!
//! Elsewhere: the requests of programs (`host`), creating a session (`create`), the keys (`settings`).

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_client::UserHome;
use minke_exec::probe::cached_backend_in;
use minke_exec::sandbox::HelperBinary;
use minke_host::{ApiError, Engine, NewThread, SessionFactory};
use minke_pod::State;
use minke_policy::SandboxBackend;
use minke_record::{Actor, ErrorCode, InputSegment, SessionId};
use serde_json::{Value, json};

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::session::create::{NewPod, canonical_model, create_session, preview_session};
use crate::session::references::ReferenceScope;
use crate::session::secret_check::reject_secrets;

/// Opens the engine of the host in this process.
pub(crate) fn open_engine(context: &CliContext) -> Result<Engine, CliError> {
    let home = context.open_home()?;
    Ok(Engine::new(home.clone(), Arc::new(CliSessionFactory { context: context.clone(), home })))
}

struct CliSessionFactory {
    context: CliContext,
    home: UserHome,
}

impl SessionFactory for CliSessionFactory {
    fn create_session(&self, new: NewThread, by: &Actor) -> Result<(SessionId, OwnedFd), ApiError> {
        let home = if new.ephemeral { self.context.open_ephemeral_home()? } else { self.home.clone() };
        let pod = NewPod {
            cwd: new.cwd,
            name: new.name,
            profile: new.profile,
            posture: new.posture,
            created_by: Some(by.clone()),
            metadata: new.metadata,
            mandate: new.mandate,
            model: new.model,
            history: new.history,
            blobs: new.blobs,
            ..NewPod::default()
        };
        if let (None, Some(provider)) = (&pod.model, &new.provider) {
            let (state, _) = preview_session(&pod, &self.context, &self.home)?;
            minke_host::check_provider(state.manifest.model.reference.as_deref(), provider)?;
        }
        Ok(create_session(pod, &self.context, &home)?)
    }

    fn resolve_model(&self, reference: &str, cwd: &Path) -> Result<String, ApiError> {
        Ok(canonical_model(reference, cwd, &self.context)?)
    }

    fn reject_secrets(&self, texts: &[&str]) -> Result<(), ApiError> {
        Ok(reject_secrets(texts, Vec::new(), &self.context)?)
    }

    fn parse_input(&self, text: &str, like: &State) -> Result<Vec<InputSegment>, ApiError> {
        let cwd = like.facts.about.as_ref().map(|about| PathBuf::from(&about.cwd)).unwrap_or_default();
        let references =
            ReferenceScope::new(&cwd, &CliContext::find_workspace(&cwd), &like.manifest, &self.context)?;
        Ok(references.parse_text(text))
    }

    fn model_catalog(&self) -> Result<Value, ApiError> {
        let resolve_env = minke_llm::ResolveContext::for_process(
            self.context.cwd.clone(),
            Some(self.context.find_paths()?.config),
        );
        let listing = minke_llm::list_models(&resolve_env).map_err(|e| {
            ApiError::new(ErrorCode::InvalidRequest, format!("could not read the model catalog: {e}"))
        })?;
        Ok(json!(listing))
    }

    fn config_values(&self, cwd: Option<&Path>) -> Result<Value, ApiError> {
        Ok(crate::commands::setup::config::values_json(cwd, &self.context)?)
    }

    fn sandbox_backend(&self) -> Option<SandboxBackend> {
        Some(cached_backend_in(&HelperBinary::default(), &self.home.paths.runtime))
    }

    fn set_config(&self, key: &str, value: Option<&Value>) -> Result<Value, ApiError> {
        Ok(crate::commands::setup::config::change_value(key, value, &self.context)?)
    }
}

impl From<CliError> for ApiError {
    fn from(failure: CliError) -> ApiError {
        let code = match (failure.error_code(), failure.exit) {
            ("not_found", _) => ErrorCode::NotFound,
            (_, ExitKind::Usage) => ErrorCode::InvalidRequest,
            (_, ExitKind::Refused) => ErrorCode::Denied,
            (_, ExitKind::Limit) => ErrorCode::BudgetExceeded,
            (_, ExitKind::Provider) => ErrorCode::ProviderError,
            (_, ExitKind::ModelRefused) => ErrorCode::Refused,
            (_, ExitKind::Storage) => ErrorCode::StorageFailed,
            (_, ExitKind::TryLater) => ErrorCode::Conflict,
            (_, ExitKind::Success | ExitKind::Failed | ExitKind::Signal) => ErrorCode::Internal,
        };
        ApiError::new(code, failure.single_line())
    }
}

impl From<ApiError> for CliError {
    fn from(fault: ApiError) -> CliError {
        let exit = match fault.code {
            // The conflict may be gone later.
            ErrorCode::Conflict => ExitKind::TryLater,
            ref code => ExitKind::from_error_code(code),
        };
        CliError::new(exit, &fault.message).with_code(fault.code.as_str())
    }
}
