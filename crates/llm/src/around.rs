//! Around: what resolution finds around itself, passed in, so that nobody below looks at the process.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::http::Http;

/// Looks a variable up.
pub type Env = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Where a model is looked for.
#[derive(Clone)]
pub struct Around {
    /// Scripts start here.
    pub cwd: PathBuf,
    /// Where the user's `providers.toml`, `models.toml` and stored keys are.
    pub config_dir: Option<PathBuf>,
    /// The pod's name, by which a script may tell pods apart.
    pub pod: Option<String>,
    pub env: Env,
    /// Names of variables that hold secrets, beside those of providers: what they hold is hidden, too.
    pub secrets: Vec<String>,
    /// The connections that requests go over.
    pub http: Arc<Http>,
}

impl Around {
    /// This process, with its variables and its connections.
    pub fn here(cwd: impl Into<PathBuf>, config_dir: Option<PathBuf>) -> Around {
        let env: Env = Arc::new(|name| std::env::var(name).ok());
        Around { cwd: cwd.into(), config_dir, pod: None, env, secrets: Vec::new(), http: Http::of_process() }
    }

    /// The same for the pod of this name.
    #[must_use]
    pub fn for_pod(mut self, name: impl Into<String>) -> Around {
        self.pod = Some(name.into());
        self
    }

    /// The same, with the values of these variables hidden too.
    #[must_use]
    pub fn with_secrets(mut self, variables: Vec<String>) -> Around {
        self.secrets = variables;
        self
    }

    /// The same with other variables, proxies included, and connections of its own.
    #[must_use]
    pub fn with_env(mut self, env: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Around {
        self.env = Arc::new(env);
        self.http = Arc::new(Http::new(&*self.env));
        self
    }
}

impl fmt::Debug for Around {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Around { cwd, config_dir, pod, env: _, secrets: _, http: _ } = self;
        f.debug_struct("Around").field("cwd", cwd).field("config_dir", config_dir).field("pod", pod).finish()
    }
}
