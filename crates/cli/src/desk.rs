//! The desk at which the host's threads are made: what files, profiles and the catalog say is found out here.
//!
//! Elsewhere: what programs can ask for (`host`), making a session (`create`), the keys (`settings`).

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_client::Home;
use minke_exec::fence::Helper;
use minke_exec::probe::known_tier_in;
use minke_host::{Engine, Fault, Maker, NewThread};
use minke_pod::State;
use minke_policy::Tier;
use minke_record::{Actor, ErrorCode, InputSegment, SessionId};
use serde_json::{Value, json};

use crate::around::Surroundings;
use crate::create::{NewPod, create, imagined, model_reference};
use crate::failure::{Exit, Failure};
use crate::referred::Here;
use crate::spoken::without_secrets;

/// The engine as this binary runs it.
pub(crate) fn engine(around: &Surroundings) -> Result<Engine, Failure> {
    let home = around.home()?;
    Ok(Engine::new(home.clone(), Arc::new(Desk { around: around.clone(), home })))
}

struct Desk {
    around: Surroundings,
    home: Home,
}

impl Maker for Desk {
    fn make(&self, new: NewThread, by: &Actor) -> Result<(SessionId, OwnedFd), Fault> {
        let home = if new.ephemeral { self.around.passing_home()? } else { self.home.clone() };
        let pod = NewPod {
            cwd: new.cwd,
            name: new.name,
            profile: new.profile,
            posture: new.posture,
            by: Some(by.clone()),
            metadata: new.metadata,
            mandate: new.mandate,
            model: new.model,
            history: new.history,
            blobs: new.blobs,
            ..NewPod::default()
        };
        if let (None, Some(provider)) = (&pod.model, &new.provider) {
            let (state, _) = imagined(&pod, &self.around, &self.home)?;
            minke_host::of_provider(state.manifest.model.reference.as_deref(), provider)?;
        }
        Ok(create(pod, &self.around, &home)?)
    }

    fn model(&self, reference: &str, cwd: &Path) -> Result<String, Fault> {
        Ok(model_reference(reference, cwd, &self.around)?)
    }

    fn without_secrets(&self, texts: &[&str]) -> Result<(), Fault> {
        Ok(without_secrets(texts, Vec::new(), &self.around)?)
    }

    fn said(&self, text: &str, like: &State) -> Result<Vec<InputSegment>, Fault> {
        let cwd = like.facts.about.as_ref().map(|about| PathBuf::from(&about.cwd)).unwrap_or_default();
        let here = Here::new(&cwd, &Surroundings::workspace(&cwd), &like.manifest, &self.around)?;
        Ok(here.said(text))
    }

    fn models(&self) -> Result<Value, Fault> {
        let there = minke_llm::Around::here(self.around.cwd.clone(), Some(self.around.paths()?.config));
        let listing = minke_llm::models(&there)
            .map_err(|e| Fault::new(ErrorCode::InvalidRequest, format!("the catalog cannot be read: {e}")))?;
        Ok(json!(listing))
    }

    fn config(&self, cwd: Option<&Path>) -> Result<Value, Fault> {
        Ok(crate::config::values(cwd, &self.around)?)
    }

    fn tier(&self) -> Option<Tier> {
        Some(known_tier_in(&Helper::default(), &self.home.paths.runtime))
    }

    fn configure(&self, key: &str, value: Option<&Value>) -> Result<Value, Fault> {
        Ok(crate::config::change(key, value, &self.around)?)
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Fault {
        let code = match (failure.word(), failure.exit) {
            ("not_found", _) => ErrorCode::NotFound,
            (_, Exit::Usage) => ErrorCode::InvalidRequest,
            (_, Exit::Refused) => ErrorCode::Denied,
            (_, Exit::Limit) => ErrorCode::BudgetExceeded,
            (_, Exit::Provider) => ErrorCode::ProviderError,
            (_, Exit::ModelRefused) => ErrorCode::Refused,
            (_, Exit::Storage) => ErrorCode::StorageFailed,
            (_, Exit::TryLater) => ErrorCode::Conflict,
            (_, Exit::Done | Exit::Failed | Exit::Signal) => ErrorCode::Internal,
        };
        Fault::new(code, failure.sentence())
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        let exit = match fault.code {
            // Somebody else is in the way; it may be otherwise later.
            ErrorCode::Conflict => Exit::TryLater,
            ref code => Exit::of(code),
        };
        Failure::new(exit, &fault.message).code(fault.code.as_str())
    }
}
