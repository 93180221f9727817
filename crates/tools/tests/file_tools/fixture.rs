//! A scope with the file tools, called as a model calls them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_files::{FilesConfig, ScopedFiles};
use minke_record::{Action, Scope};
use minke_tool::{CallPreview, CommandEventSink, Tool, ToolContext, ToolError, ToolInvocation, ToolOutput};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) struct FileToolFixture {
    _dir: TempDir,
    pub(crate) root: PathBuf,
    place: Arc<ToolContext>,
    tools: Vec<Arc<dyn Tool>>,
}

impl FileToolFixture {
    /// `in` is the scope and the working directory; its parent is outside.
    pub(crate) fn new() -> FileToolFixture {
        // In memory if possible, because the test does not measure the disk.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        let root = dir.path().canonicalize().expect("the directory exists");
        fs::create_dir(root.join("in")).expect("the directory is empty");
        let scope = Scope::writable(root.join("in").to_string_lossy());
        let config = FilesConfig { scope: scope.clone(), ..FilesConfig::default() };
        let files = Arc::new(ScopedFiles::new(config).expect("the scope is valid"));
        let place = Arc::new(ToolContext { cwd: root.join("in"), scope });
        FileToolFixture { _dir: dir, root, place, tools: minke_tools::file_tools(&files) }
    }

    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.root.join("in").join(name)
    }

    pub(crate) fn write_file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path_of(name);
        fs::write(&path, content).expect("a file of the test");
        path
    }

    pub(crate) fn read_file(&self, name: &str) -> Vec<u8> {
        fs::read(self.path_of(name)).expect("a file of the test")
    }

    pub(crate) fn find_tool(&self, name: &str) -> &Arc<dyn Tool> {
        self.tools.iter().find(|tool| tool.spec().name == name).expect("a file tool")
    }

    pub(crate) async fn run_tool(&self, tool: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.run_raw(tool, &arguments.to_string()).await
    }

    pub(crate) async fn run_raw(&self, tool: &str, arguments: &str) -> Result<ToolOutput, ToolError> {
        let call = ToolInvocation::new("c", Arc::clone(&self.place), CommandEventSink::discard());
        self.find_tool(tool).execute(arguments, &call).await
    }

    pub(crate) fn prepare_call(&self, tool: &str, arguments: &str) -> Result<Action, ToolError> {
        self.find_tool(tool).prepare(arguments, &self.place)
    }

    pub(crate) fn preview_call(
        &self,
        tool: &str,
        arguments: Value,
    ) -> Result<Option<CallPreview>, ToolError> {
        let arguments = arguments.to_string();
        let action = self.prepare_call(tool, &arguments)?;
        self.find_tool(tool).preview(&arguments, &action, &self.place)
    }

    /// Runs Read, then the change.
    pub(crate) async fn read_and_run(&self, tool: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.run_tool("Read", serde_json::json!({ "file_path": arguments["file_path"] })).await?;
        self.run_tool(tool, arguments).await
    }

    pub(crate) async fn run_failed(&self, tool: &str, arguments: Value) -> String {
        match self.run_tool(tool, arguments.clone()).await {
            Err(ToolError::ExecutionFailed(text)) => text,
            other => panic!("{tool} {arguments}: {other:?}"),
        }
    }

    pub(crate) async fn run_invalid(&self, tool: &str, arguments: Value) -> String {
        match self.run_tool(tool, arguments.clone()).await {
            Err(ToolError::InvalidArguments(text)) => text,
            other => panic!("{tool} {arguments}: {other:?}"),
        }
    }

    /// Returns the names in the scope, to detect leftover files.
    pub(crate) fn entry_names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.root.join("in"))
            .expect("the scope")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

pub(crate) fn skip_test(why: &str) {
    assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED: {why}");
    eprintln!("SKIPPED: {why}");
}

pub(crate) fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
