//! An engine with its own home, configuration file and key.

use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use minke_client::UserHome;
use minke_host::{ApiError, Engine};
use minke_launch::LaunchEnv;
use minke_record::{Actor, Kind};
use minke_registry::ProcessEnv;
use serde_json::{Value, json};

/// An available model, and a secret that must not be written.
pub(crate) const MODEL: &str = "scripted/demo";
pub(crate) const SECRET: &str = "hunter2-hunter2";
/// The configuration of new threads.
const CONFIG: &str = "[pod]\nname = \"thread\"\n[model]\nref = \"scripted/demo\"\n[permissions]\nposture = \"ask\"\n[sandbox]\nmode = \"scope\"\n";

pub(crate) struct EngineHarness {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) engine: Engine,
    pub(crate) home: UserHome,
}

impl EngineHarness {
    pub(crate) fn new() -> EngineHarness {
        let dir = tempfile::tempdir().unwrap();
        let env = [("MINKE_HOME".into(), dir.path().join("home").into_os_string())].into();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let user_env = ProcessEnv { env, uid: rustix::process::getuid().as_raw() };
        let launch_env = LaunchEnv { user_env, cwd: dir.path().join("work"), helper: None };
        let home = launch_env.open_home().unwrap();
        std::fs::create_dir_all(&home.paths.config).unwrap();
        std::fs::write(home.paths.config.join("config.toml"), CONFIG).unwrap();
        store_key(&home.paths.config, SECRET);
        EngineHarness { dir, engine: Engine::new(home.clone(), launch_env), home }
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

/// Stores a provider's key as `minke login` does.
fn store_key(config: &Path, key: &str) {
    let dir = config.join("secrets");
    std::fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(dir.join("anthropic")).unwrap();
    std::io::Write::write_all(&mut file, key.as_bytes()).unwrap();
}
