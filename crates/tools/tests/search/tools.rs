//! The two tools, called as a pod calls them.

use std::path::Path;
use std::sync::Arc;

use minke_files::{Files, FilesConfig};
use minke_record::Scope;
use minke_tool::{Call, News, Place, Tool, ToolError, ToolOutput};
use serde_json::Value;

/// The two tools over a scope, called from a directory.
pub(crate) struct Tools {
    pub(crate) files: Arc<Files>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) place: Arc<Place>,
}

impl Tools {
    pub(crate) fn over(config: FilesConfig, cwd: &Path) -> Tools {
        let scope = config.scope.clone();
        let files = Arc::new(Files::new(config).unwrap());
        let tools = minke_tools::search_tools(&files);
        let place = Arc::new(Place { cwd: cwd.to_owned(), scope });
        Tools { files, tools, place }
    }

    /// Everything below a directory.
    pub(crate) fn at(cwd: &Path) -> Tools {
        let scope = Scope::write(cwd.to_str().expect("test directories have plain names"));
        Tools::over(FilesConfig { scope, ..FilesConfig::default() }, cwd)
    }

    pub(crate) fn tool(&self, name: &str) -> &Arc<dyn Tool> {
        self.tools.iter().find(|tool| tool.spec().name == name).expect("it is a search tool")
    }

    pub(crate) fn call(&self) -> Call {
        Call::new("c", self.place.clone(), News::nobody())
    }

    pub(crate) async fn raw(&self, name: &str, arguments: &str) -> Result<ToolOutput, ToolError> {
        let tool = self.tool(name);
        let prepared = tool.prepare(arguments, &self.place);
        let ran = tool.run(arguments, &self.call()).await;
        if let Err(e) = prepared {
            assert_eq!(ran, Err(e), "run and prepare disagree about {arguments}");
        }
        ran
    }

    pub(crate) async fn run(&self, name: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.raw(name, &arguments.to_string()).await
    }

    /// The lines of a result, remarks included.
    pub(crate) async fn lines(&self, name: &str, arguments: Value) -> Vec<String> {
        let output = self.run(name, arguments.clone()).await.unwrap_or_else(|e| panic!("{arguments}: {e:?}"));
        output.content.unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

/// A directory by its real name: a grant is not reached through links.
pub(crate) fn home() -> (tempfile::TempDir, std::path::PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().canonicalize().unwrap();
    (home, path)
}
