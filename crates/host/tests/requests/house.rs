//! A home of its own with an engine, and somebody who makes sessions without files of configuration.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use minke_client::Home;
use minke_host::{Engine, Fault, Maker, NewThread};
use minke_pod::{Moment, NewSession, State, new_session};
use minke_record::{Actor, ErrorCode, Ids, InputSegment, Kind, Scope, SessionId};
use minke_registry::{Paths, Surroundings};
use minke_session::{FileStore, RealDisk};
use serde_json::{Value, json};

/// A model that can be had, and a secret that must not be written.
pub(crate) const MODEL: &str = "scripted/demo";
pub(crate) const SECRET: &str = "hunter2-hunter2";

pub(crate) struct House {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) engine: Engine,
    pub(crate) home: Home,
}

struct Bench {
    home: Home,
    made: AtomicU64,
}

impl House {
    pub(crate) fn new() -> House {
        let dir = tempfile::tempdir().unwrap();
        let env = [("MINKE_HOME".into(), dir.path().join("home").into_os_string())].into_iter().collect();
        let paths = Paths::find(&Surroundings { env, uid: rustix::process::getuid().as_raw() }).unwrap();
        paths.create().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let store = FileStore::new(Arc::new(RealDisk), paths.sessions());
        let home = Home { paths, store: Arc::new(store) };
        let maker = Bench { home: home.clone(), made: AtomicU64::new(0) };
        House { dir, engine: Engine::new(home.clone(), Arc::new(maker)), home }
    }

    /// Where threads work.
    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work").canonicalize().unwrap()
    }

    pub(crate) async fn ask(&self, method: &str, params: Value) -> Result<Value, Fault> {
        self.engine.call(method, params, &Actor::person("host")).await
    }

    #[track_caller]
    pub(crate) fn thread(&self, kind: &str, fields: Value) -> impl Future<Output = Result<Value, Fault>> {
        let mut params = fields;
        params["kind"] = json!(kind);
        async move { self.ask("thread", params).await }
    }

    /// The budget that was last set in a thread.
    pub(crate) fn budget(&self, id: &str) -> Value {
        let session = id.trim_start_matches("s_").parse().unwrap();
        let entries = self.home.store.reader(session).unwrap().page(0, 1_000, 1 << 20).unwrap().entries;
        let budgets = entries.into_iter().filter_map(|sealed| match sealed.entry.kind {
            Kind::ConfigChanged(changed) if changed.key == "budget" => Some(changed.value),
            _ => None,
        });
        budgets.last().unwrap_or_default()
    }

    pub(crate) async fn start(&self, name: &str) -> String {
        let made = self.thread("start", json!({ "cwd": self.work(), "name": name })).await.unwrap();
        made["thread_id"].as_str().unwrap().to_owned()
    }
}

impl Maker for Bench {
    fn make(&self, new: NewThread, by: &Actor) -> Result<(SessionId, OwnedFd), Fault> {
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        let now = 1_780_000_000_000 + made * 1_000;
        let session = SessionId(Ids::new(now, made).next_uuid());
        let cwd = new.cwd.unwrap().canonicalize().map_err(|e| Fault::invalid(format!("cwd: {e}")))?;
        let cwd = cwd.to_str().unwrap().to_owned();
        let model = match new.model {
            Some(model) => self.model(&model, Path::new(&cwd))?,
            None => MODEL.to_owned(),
        };
        let first = NewSession {
            session,
            version: "0".to_owned(),
            name: new.name.as_deref().unwrap_or("thread").parse().map_err(Fault::invalid)?,
            created_by: by.clone(),
            cwd: cwd.clone(),
            workspace: cwd.clone(),
            git: None,
            manifest: json!({ "model": { "ref": model }, "permissions": { "posture": "ask" }, "sandbox": { "mode": "scope" } }),
            scope: Scope::write(cwd),
            mandate: new.mandate,
            metadata: new.metadata,
            parent: None,
            history: new.history,
            task: None,
        };
        let written = new_session(Moment { now, seed: made }, first);
        let writer = self.home.store.create(session, written.entries, written.blobs)?;
        Ok((session, writer.into_lease().unwrap()))
    }

    fn said(&self, text: &str, _: &State) -> Result<Vec<InputSegment>, Fault> {
        Ok(vec![InputSegment::Text { content: text.into() }])
    }

    fn model(&self, reference: &str, _: &Path) -> Result<String, Fault> {
        match reference {
            MODEL | "scripted/other" => Ok(reference.to_owned()),
            other => Err(Fault::invalid(format!("there is no model `{other}`"))),
        }
    }

    fn without_secrets(&self, texts: &[&str]) -> Result<(), Fault> {
        match texts.iter().any(|text| text.contains(SECRET)) {
            true => Err(Fault::invalid("it holds a secret")),
            false => Ok(()),
        }
    }

    fn models(&self) -> Result<Value, Fault> {
        Ok(json!({ "models": [{ "ref": MODEL }] }))
    }

    fn config(&self, cwd: Option<&Path>) -> Result<Value, Fault> {
        Ok(json!({ "values": [], "cwd": cwd }))
    }

    fn configure(&self, key: &str, value: Option<&Value>) -> Result<Value, Fault> {
        match key {
            "worker.max_turns" => Ok(json!({ "key": key, "value": value })),
            other => Err(Fault::new(ErrorCode::InvalidRequest, format!("`{other}` is no key"))),
        }
    }
}
