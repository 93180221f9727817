//! Context: the inputs of model resolution, passed in so that resolution does not access the process
//! environment.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use minke_secrets::EnvLookup;

use crate::http::HttpPool;

/// The inputs of model resolution.
#[derive(Clone)]
pub struct ResolveContext {
    /// The working directory, which is the base for the paths of scripts.
    pub cwd: PathBuf,
    /// The directory of the user's `providers.toml`, `models.toml` and stored keys.
    pub config_dir: Option<PathBuf>,
    /// The name of the pod, for scripts with turns for single pods.
    pub pod: Option<String>,
    pub env: EnvLookup,
    /// Names of variables with secrets, in addition to those of providers. Their values are redacted too.
    pub secret_variables: Vec<String>,
    /// The connections for requests.
    pub http: Arc<HttpPool>,
}

impl ResolveContext {
    /// Returns the context of this process, with its variables and connections.
    pub fn for_process(cwd: impl Into<PathBuf>, config_dir: Option<PathBuf>) -> ResolveContext {
        let env: EnvLookup = Arc::new(|name| std::env::var(name).ok());
        ResolveContext {
            cwd: cwd.into(),
            config_dir,
            pod: None,
            env,
            secret_variables: Vec::new(),
            http: HttpPool::shared(),
        }
    }

    /// Sets the name of the pod.
    #[must_use]
    pub fn for_pod(mut self, name: impl Into<String>) -> ResolveContext {
        self.pod = Some(name.into());
        self
    }

    /// Adds variables whose values are redacted too.
    #[must_use]
    pub fn with_secrets(mut self, variables: Vec<String>) -> ResolveContext {
        self.secret_variables = variables;
        self
    }

    /// Replaces the variables, including proxies, and uses separate connections.
    #[must_use]
    pub fn with_env(
        mut self,
        env: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> ResolveContext {
        self.env = Arc::new(env);
        self.http = Arc::new(HttpPool::new(&*self.env));
        self
    }
}

impl fmt::Debug for ResolveContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ResolveContext { cwd, config_dir, pod, env: _, secret_variables: _, http: _ } = self;
        f.debug_struct("Around").field("cwd", cwd).field("config_dir", config_dir).field("pod", pod).finish()
    }
}
