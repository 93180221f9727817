//! Glob and Grep, through the front door: what they find, what they refuse, what they cost, and that `rg` agrees.

mod bad;
mod cost;
mod front;
mod rg;
mod scope;
mod tree;

use std::path::Path;
use std::sync::Arc;

use minke_files::{Files, FilesConfig};
use minke_record::Scope;
use minke_tool::{Call, News, Place, Tool, ToolError, ToolOutput};
use serde_json::Value;

/// The two tools over a scope, called from a directory.
struct Tools {
    files: Arc<Files>,
    tools: Vec<Arc<dyn Tool>>,
    place: Arc<Place>,
}

impl Tools {
    fn over(config: FilesConfig, cwd: &Path) -> Tools {
        let scope = config.scope.clone();
        let files = Arc::new(Files::new(config).unwrap());
        let tools = minke_tools::search_tools(&files);
        let place = Arc::new(Place { cwd: cwd.to_owned(), scope });
        Tools { files, tools, place }
    }

    /// Everything below a directory.
    fn at(cwd: &Path) -> Tools {
        let scope = Scope::write(cwd.to_str().expect("test directories have plain names"));
        Tools::over(FilesConfig { scope, ..FilesConfig::default() }, cwd)
    }

    fn tool(&self, name: &str) -> &Arc<dyn Tool> {
        self.tools.iter().find(|tool| tool.spec().name == name).expect("it is a search tool")
    }

    fn call(&self) -> Call {
        Call { id: "c".into(), place: self.place.clone(), news: News::nobody() }
    }

    async fn raw(&self, name: &str, arguments: &str) -> Result<ToolOutput, ToolError> {
        let tool = self.tool(name);
        let prepared = tool.prepare(arguments, &self.place);
        let ran = tool.run(arguments, &self.call()).await;
        if let Err(e) = prepared {
            assert_eq!(ran, Err(e), "run and prepare disagree about {arguments}");
        }
        ran
    }

    async fn run(&self, name: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.raw(name, &arguments.to_string()).await
    }

    /// The lines of a result, remarks included.
    async fn lines(&self, name: &str, arguments: Value) -> Vec<String> {
        let output = self.run(name, arguments.clone()).await.unwrap_or_else(|e| panic!("{arguments}: {e:?}"));
        output.content.unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

/// A directory by its real name: a grant is not reached through links.
fn home() -> (tempfile::TempDir, std::path::PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().canonicalize().unwrap();
    (home, path)
}

/// What cannot be tested here says so, and where nothing may be skipped it fails.
fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
    assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "skipped: {why}");
}
