//! An engine with its own home, and a session factory without configuration files.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use minke_client::UserHome;
use minke_host::{ApiError, Engine, NewThread, SessionFactory};
use minke_pod::{NewSession, State, StepSeed, new_session};
use minke_record::{Actor, ErrorCode, IdGenerator, InputSegment, Kind, Scope, SessionId};
use minke_registry::{ProcessEnv, UserPaths};
use minke_session::{FileStore, RealDisk};
use serde_json::{Value, json};

/// An available model, and a secret that must not be written.
pub(crate) const MODEL: &str = "scripted/demo";
pub(crate) const SECRET: &str = "hunter2-hunter2";

pub(crate) struct EngineHarness {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) engine: Engine,
    pub(crate) home: UserHome,
}

struct PlainSessionFactory {
    home: UserHome,
    created: AtomicU64,
}

impl EngineHarness {
    pub(crate) fn new() -> EngineHarness {
        let dir = tempfile::tempdir().unwrap();
        let env = [("MINKE_HOME".into(), dir.path().join("home").into_os_string())].into_iter().collect();
        let paths =
            UserPaths::from_env(&ProcessEnv { env, uid: rustix::process::getuid().as_raw() }).unwrap();
        paths.create_dirs().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let store = FileStore::new(Arc::new(RealDisk), paths.sessions_dir());
        let home = UserHome { paths, store: Arc::new(store) };
        let session_factory = PlainSessionFactory { home: home.clone(), created: AtomicU64::new(0) };
        EngineHarness { dir, engine: Engine::new(home.clone(), Arc::new(session_factory)), home }
    }

    /// Returns the working directory of threads.
    pub(crate) fn work_dir(&self) -> PathBuf {
        self.dir.path().join("work").canonicalize().unwrap()
    }

    pub(crate) async fn call_engine(&self, method: &str, params: Value) -> Result<Value, ApiError> {
        self.engine.call(method, params, &Actor::from_person("host")).await
    }

    #[track_caller]
    pub(crate) fn thread_request(
        &self,
        kind: &str,
        fields: Value,
    ) -> impl Future<Output = Result<Value, ApiError>> {
        let mut params = fields;
        params["kind"] = json!(kind);
        async move { self.call_engine("thread", params).await }
    }

    /// Returns the last budget set in a thread.
    pub(crate) fn last_budget(&self, id: &str) -> Value {
        let session = id.trim_start_matches("s_").parse().unwrap();
        let entries =
            self.home.store.open_reader(session).unwrap().read_page(0, 1_000, 1 << 20).unwrap().entries;
        let budgets = entries.into_iter().filter_map(|sealed| match sealed.entry.kind {
            Kind::ConfigChanged(changed) if changed.key == "budget" => Some(changed.value),
            _ => None,
        });
        budgets.last().unwrap_or_default()
    }

    pub(crate) async fn start_thread(&self, name: &str) -> String {
        let creation =
            self.thread_request("start", json!({ "cwd": self.work_dir(), "name": name })).await.unwrap();
        creation["thread_id"].as_str().unwrap().to_owned()
    }
}

impl SessionFactory for PlainSessionFactory {
    fn create_session(&self, new: NewThread, by: &Actor) -> Result<(SessionId, OwnedFd), ApiError> {
        let made = self.created.fetch_add(1, Ordering::Relaxed);
        let now = 1_780_000_000_000 + made * 1_000;
        let session = SessionId(IdGenerator::new(now, made).next_uuid());
        let cwd = new.cwd.unwrap().canonicalize().map_err(|e| ApiError::invalid(format!("cwd: {e}")))?;
        let cwd = cwd.to_str().unwrap().to_owned();
        let model = match new.model {
            Some(model) => self.resolve_model(&model, Path::new(&cwd))?,
            None => MODEL.to_owned(),
        };
        let first = NewSession {
            session,
            version: "0".to_owned(),
            name: new.name.as_deref().unwrap_or("thread").parse().map_err(ApiError::invalid)?,
            created_by: by.clone(),
            cwd: cwd.clone(),
            workspace: cwd.clone(),
            git: None,
            manifest: json!({ "model": { "ref": model }, "permissions": { "posture": "ask" }, "sandbox": { "mode": "scope" } }),
            scope: Scope::writable(cwd),
            mandate: new.mandate,
            metadata: new.metadata,
            parent: None,
            history: new.history,
            task: None,
        };
        let written = new_session(StepSeed { now, seed: made }, first);
        let writer = self.home.store.create(session, written.entries, written.blobs)?;
        Ok((session, writer.into_lease().unwrap()))
    }

    fn parse_input(&self, text: &str, _: &State) -> Result<Vec<InputSegment>, ApiError> {
        Ok(vec![InputSegment::Text { content: text.into() }])
    }

    fn resolve_model(&self, reference: &str, _: &Path) -> Result<String, ApiError> {
        match reference {
            MODEL | "scripted/other" => Ok(reference.to_owned()),
            other => Err(ApiError::invalid(format!("there is no model `{other}`"))),
        }
    }

    fn reject_secrets(&self, texts: &[&str]) -> Result<(), ApiError> {
        match texts.iter().any(|text| text.contains(SECRET)) {
            true => Err(ApiError::invalid("it holds a secret")),
            false => Ok(()),
        }
    }

    fn model_catalog(&self) -> Result<Value, ApiError> {
        Ok(json!({ "models": [{ "ref": MODEL }] }))
    }

    fn config_values(&self, cwd: Option<&Path>) -> Result<Value, ApiError> {
        Ok(json!({ "values": [], "cwd": cwd }))
    }

    fn set_config(&self, key: &str, value: Option<&Value>) -> Result<Value, ApiError> {
        match key {
            "worker.max_turns" => Ok(json!({ "key": key, "value": value })),
            other => Err(ApiError::new(ErrorCode::InvalidRequest, format!("`{other}` is not a key"))),
        }
    }
}
