//! Glob and Grep, called as a pod calls them.

use std::path::Path;
use std::sync::Arc;

use minke_files::{FilesConfig, ScopedFiles};
use minke_record::Scope;
use minke_tool::{CommandEventSink, Tool, ToolContext, ToolError, ToolInvocation, ToolOutput};
use serde_json::Value;

/// The tools for a scope, with a working directory.
pub(crate) struct Tools {
    pub(crate) files: Arc<ScopedFiles>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) place: Arc<ToolContext>,
}

impl Tools {
    pub(crate) fn over(config: FilesConfig, cwd: &Path) -> Tools {
        let scope = config.scope.clone();
        let files = Arc::new(ScopedFiles::new(config).unwrap());
        let tools = minke_tools::search_tools(&files);
        let place = Arc::new(ToolContext { cwd: cwd.to_owned(), scope });
        Tools { files, tools, place }
    }

    /// Creates the tools for everything below a directory.
    pub(crate) fn at(cwd: &Path) -> Tools {
        let scope = Scope::writable(cwd.to_str().expect("the path is UTF-8"));
        Tools::over(FilesConfig { scope, ..FilesConfig::default() }, cwd)
    }

    pub(crate) fn tool(&self, name: &str) -> &Arc<dyn Tool> {
        self.tools.iter().find(|tool| tool.spec().name == name).expect("it is a search tool")
    }

    pub(crate) fn call(&self) -> ToolInvocation {
        ToolInvocation::new("c", self.place.clone(), CommandEventSink::discard())
    }

    pub(crate) async fn raw(&self, name: &str, arguments: &str) -> Result<ToolOutput, ToolError> {
        let tool = self.tool(name);
        let prepared = tool.prepare(arguments, &self.place);
        let ran = tool.execute(arguments, &self.call()).await;
        if let Err(e) = prepared {
            assert_eq!(ran, Err(e), "run and prepare return different errors for {arguments}");
        }
        ran
    }

    pub(crate) async fn run(&self, name: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.raw(name, &arguments.to_string()).await
    }

    /// Returns the lines of a result, including remarks.
    pub(crate) async fn lines(&self, name: &str, arguments: Value) -> Vec<String> {
        let output = self.run(name, arguments.clone()).await.unwrap_or_else(|e| panic!("{arguments}: {e:?}"));
        output.content.unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

/// Creates a directory and returns its real path, because a grant does not follow links.
pub(crate) fn home() -> (tempfile::TempDir, std::path::PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().canonicalize().unwrap();
    (home, path)
}
