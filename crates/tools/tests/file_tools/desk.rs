//! A scope and the file tools over it, for the tests that call them as a model does.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_files::{Files, FilesConfig};
use minke_record::{Action, Scope};
use minke_tool::{Call, News, Place, Previewed, Tool, ToolError, ToolOutput};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) struct Desk {
    _dir: TempDir,
    pub(crate) root: PathBuf,
    place: Arc<Place>,
    tools: Vec<Arc<dyn Tool>>,
}

impl Desk {
    /// `in` is the scope and the working directory; beside it is the outside.
    pub(crate) fn new() -> Desk {
        // In memory where that is possible: it is the tools that are tried, not the disk.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        let root = dir.path().canonicalize().expect("it exists");
        fs::create_dir(root.join("in")).expect("it is empty");
        let scope = Scope::write(root.join("in").to_string_lossy());
        let config = FilesConfig { scope: scope.clone(), ..FilesConfig::default() };
        let files = Arc::new(Files::new(config).expect("the scope can be held"));
        let place = Arc::new(Place { cwd: root.join("in"), scope });
        Desk { _dir: dir, root, place, tools: minke_tools::file_tools(&files) }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.root.join("in").join(name)
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        fs::write(&path, content).expect("a file of the test");
        path
    }

    pub(crate) fn get(&self, name: &str) -> Vec<u8> {
        fs::read(self.at(name)).expect("a file of the test")
    }

    pub(crate) fn tool(&self, name: &str) -> &Arc<dyn Tool> {
        self.tools.iter().find(|tool| tool.spec().name == name).expect("a file tool")
    }

    pub(crate) async fn run(&self, tool: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.run_text(tool, &arguments.to_string()).await
    }

    pub(crate) async fn run_text(&self, tool: &str, arguments: &str) -> Result<ToolOutput, ToolError> {
        let call = Call::new("c", Arc::clone(&self.place), News::nobody());
        self.tool(tool).run(arguments, &call).await
    }

    pub(crate) fn prepare(&self, tool: &str, arguments: &str) -> Result<Action, ToolError> {
        self.tool(tool).prepare(arguments, &self.place)
    }

    pub(crate) fn preview(&self, tool: &str, arguments: Value) -> Result<Option<Previewed>, ToolError> {
        let arguments = arguments.to_string();
        let action = self.prepare(tool, &arguments)?;
        self.tool(tool).preview(&arguments, &action, &self.place)
    }

    /// Read, then the change.
    pub(crate) async fn change(&self, tool: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.run("Read", serde_json::json!({ "file_path": arguments["file_path"] })).await?;
        self.run(tool, arguments).await
    }

    pub(crate) async fn failed(&self, tool: &str, arguments: Value) -> String {
        match self.run(tool, arguments.clone()).await {
            Err(ToolError::Failed(text)) => text,
            other => panic!("{tool} {arguments}: {other:?}"),
        }
    }

    pub(crate) async fn invalid(&self, tool: &str, arguments: Value) -> String {
        match self.run(tool, arguments.clone()).await {
            Err(ToolError::Invalid(text)) => text,
            other => panic!("{tool} {arguments}: {other:?}"),
        }
    }

    /// Everything in the scope, to see that a call has left nothing behind.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.root.join("in"))
            .expect("the scope")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

pub(crate) fn skip(why: &str) {
    assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED: {why}");
    eprintln!("SKIPPED: {why}");
}

pub(crate) fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
