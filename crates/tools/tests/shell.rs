//! Bash, BashInput, BashOutput and KillBash, called as a pod calls them.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minke_exec::command::{Commands, CommandsConfig, OutputFilter};
use minke_exec::sandbox::{EnvRules, HelperBinary, NetworkAccess, PodDirs, SandboxSpec};
use minke_policy::SandboxBackend;
use minke_record::{Action, Class, Scope};
use minke_tool::{
    CommandEnd, CommandEvent, CommandEventSink, Tool, ToolContext, ToolError, ToolInvocation, ToolOutput,
};
use minke_tools::shell_tools;
use serde_json::{Value, json};

struct NoFilter;

impl OutputFilter for NoFilter {
    fn filter_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }
    fn finish(&mut self) -> Vec<u8> {
        Vec::new()
    }
}

/// The directories of a pod and its shell tools.
struct ShellFixture {
    dir: tempfile::TempDir,
    commands: Arc<Commands>,
    tools: Vec<Arc<dyn Tool>>,
    events: Arc<Mutex<Vec<CommandEvent>>>,
}

impl ShellFixture {
    fn new() -> ShellFixture {
        ShellFixture::with_backend(SandboxBackend::Off)
    }

    fn with_backend(backend: SandboxBackend) -> ShellFixture {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["work", "tmp", "output"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let spec = SandboxSpec {
            scope: Scope::writable(root.join("work").to_str().unwrap()),
            read_only: false,
            dirs: PodDirs {
                tmp: root.join("tmp"),
                output: root.join("output"),
                lock_file: root.join("sandboxes"),
                writable_tmp: true,
            },
            masked: Vec::new(),
            lifted: Vec::new(),
            network: NetworkAccess::Off,
            env: EnvRules::default(),
            findings: minke_exec::sandbox::ScopeFindings::default(),
        };
        let commands = Arc::new(Commands::new(CommandsConfig {
            backend,
            spec: Arc::new(move || spec.clone()),
            output_dir: root.join("output"),
            output_filter: Arc::new(|| Box::new(NoFilter)),
            helper: HelperBinary::from_path(env!("CARGO_BIN_EXE_tools-sandbox")),
            guard: minke_exec::command::RepositoryGuard::default(),
        }));
        let tools = shell_tools(Some(Arc::clone(&commands)));
        ShellFixture { dir, commands, tools, events: Arc::default() }
    }

    fn test_place(&self) -> Arc<ToolContext> {
        let cwd = self.dir.path().canonicalize().unwrap().join("work");
        Arc::new(ToolContext { cwd, scope: Scope::default() })
    }

    async fn run_tool(&self, name: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.run_raw(name, &arguments.to_string()).await
    }

    async fn run_raw(&self, name: &str, arguments: &str) -> Result<ToolOutput, ToolError> {
        let events = Arc::clone(&self.events);
        let news = CommandEventSink::new(move |_, news| events.lock().unwrap().push(news));
        let call = ToolInvocation::new("call/../1", self.test_place(), news);
        find_tool(&self.tools, name).execute(arguments, &call).await
    }

    /// Runs a line and returns its result.
    async fn run_bash(&self, command: &str) -> ToolOutput {
        self.run_tool("Bash", json!({ "command": command })).await.unwrap()
    }

    /// Starts a line in the background and returns its id.
    async fn start_background(&self, command: &str, tty: bool) -> String {
        let started =
            self.run_tool("Bash", json!({ "command": command, "background": true, "tty": tty })).await;
        let content = started.unwrap().content.unwrap();
        content.split('`').nth(1).unwrap().to_owned()
    }
}

fn find_tool<'a>(tools: &'a [Arc<dyn Tool>], name: &str) -> &'a Arc<dyn Tool> {
    tools.iter().find(|tool| tool.spec().name == name).unwrap()
}

#[test]
fn the_tools_are_sorted_closed_and_short() {
    let tools = shell_tools(None);
    let specs: Vec<_> = tools.iter().map(|tool| tool.spec()).collect();
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["Bash", "BashInput", "BashOutput", "KillBash"]);
    let classes: Vec<Class> = tools.iter().map(|tool| tool.class()).collect();
    assert_eq!(classes, [Class::Once, Class::Once, Class::Pure, Class::Once]);
    for spec in specs {
        assert!(spec.description.len() <= 600, "{}: {}", spec.name, spec.description.len());
        assert_eq!(spec.schema["additionalProperties"], false);
        for name in spec.schema["required"].as_array().unwrap() {
            assert!(spec.schema["properties"].get(name.as_str().unwrap()).is_some());
        }
        assert!(!spec.description.contains("  "), "{}", spec.description);
    }
}

/// Returns the commands of a line that an approval request shows.
fn shown_commands(line: &str) -> Vec<String> {
    let place = ToolContext { cwd: PathBuf::from("/"), scope: Scope::default() };
    let arguments = json!({ "command": line }).to_string();
    find_tool(&shell_tools(None), "Bash").prepare(&arguments, &place).unwrap().commands
}

#[test]
fn an_action_names_the_commands_that_the_line_would_run() {
    let seen = shown_commands("cd x && rm -rf \"$(ls)\" | sudo tee y");
    for command in ["cd x", "rm -rf", "ls", "sudo", "tee y"] {
        assert!(seen.iter().any(|one| one.contains(command)), "{command} is missing in {seen:?}");
    }
    assert!(shown_commands("true && bash -c 'rm -rf x'").iter().any(|one| one.contains("rm -rf x")));
    let many = shown_commands(&"true; ".repeat(100));
    assert_eq!((many.len(), many.last().unwrap().as_str()), (32, "… and 69 more"));
    let most = shown_commands(&"true; ".repeat(32));
    assert_eq!((most.len(), most.last().unwrap().as_str()), (32, "true"));
    let long = shown_commands(&format!("echo {}", "ö".repeat(500)));
    assert_eq!((long[0].chars().count(), long[0].chars().last()), (200, Some('…')));
    for line in ["(", "\u{202e}", "$((", &"(".repeat(60_000), &"x".repeat(100_000)] {
        let said = shown_commands(line);
        assert!(said.len() <= 32 && said.iter().all(|one| one.chars().count() <= 200), "{said:?}");
    }
}

#[tokio::test]
async fn variables_of_a_call_reach_its_command_and_no_other() {
    let pod = ShellFixture::new();
    let env = [("FROM_HOOK".to_owned(), "two words".to_owned())];
    let call = ToolInvocation {
        env: Arc::new(env.into()),
        ..ToolInvocation::new("1", pod.test_place(), CommandEventSink::discard())
    };
    let arguments = json!({ "command": "echo \"<$FROM_HOOK>\"" }).to_string();
    let said = find_tool(&pod.tools, "Bash").execute(&arguments, &call).await.unwrap();
    assert_eq!(said.content.as_deref(), Some("<two words>\n"));
    assert_eq!(pod.run_bash("echo \"<$FROM_HOOK>\"").await.content.as_deref(), Some("<>\n"));
}

#[tokio::test]
async fn without_commands_the_tools_prepare_and_do_not_run() {
    let tools = shell_tools(None);
    let place = ToolContext { cwd: PathBuf::from("/"), scope: Scope::default() };
    let action = find_tool(&tools, "Bash").prepare(r#"{"command":"ls -l"}"#, &place).unwrap();
    let expected = Action {
        command: Some("ls -l".to_owned()),
        commands: vec!["ls -l".to_owned()],
        side_effects: true,
        ..Action::default()
    };
    assert_eq!(action, expected);
    let call = ToolInvocation::new("1", place.clone(), CommandEventSink::discard());
    let inputs = [
        ("Bash", r#"{"command":"ls"}"#, true),
        ("BashInput", r#"{"id":"a","text":"b"}"#, true),
        ("BashOutput", r#"{"id":"a"}"#, false),
        ("KillBash", r#"{"id":"a"}"#, true),
    ];
    for (name, arguments, side_effects) in inputs {
        let tool = find_tool(&tools, name);
        assert_eq!(tool.prepare(arguments, &place).unwrap().side_effects, side_effects, "{name}");
        let answer = tool.execute(arguments, &call).await;
        assert!(matches!(answer, Err(ToolError::Internal(_))), "{name}: {answer:?}");
        let invalid = tool.execute("{}", &call).await;
        assert!(matches!(invalid, Err(ToolError::InvalidArguments(_))), "{name}: {invalid:?}");
    }
}

#[tokio::test]
async fn a_command_says_how_it_ended_and_what_it_said() {
    let pod = ShellFixture::new();
    let done = pod.run_bash("echo hello; echo world >&2").await;
    assert_eq!(done.summary, "$ echo hello; echo world >&2 (exit 0)");
    assert_eq!(done.content.as_deref(), Some("hello\nworld\n"));
    assert_eq!(done.full_output, None);
    let failed = pod.run_bash("exit 3").await;
    assert_eq!((failed.summary.as_str(), failed.content), ("$ exit 3 (exit 3)", None));
    assert_eq!(pod.run_bash("kill -TERM $$").await.summary, "$ kill -TERM $$ (ended by SIGTERM)");
    assert_eq!(pod.run_bash("kill -RTMIN $$").await.summary, "$ kill -RTMIN $$ (ended by signal 34)");
    assert_eq!(pod.run_bash("\n  pwd\n# more\n").await.summary, "$ pwd… (exit 0)");
    let long = pod.run_bash(&format!("echo {}", "é".repeat(300))).await;
    assert!(long.summary.len() <= 200 && long.summary.ends_with("é… (exit 0)"), "{}", long.summary);
    let events = pod.events.lock().unwrap();
    assert!(events.contains(&CommandEvent::Ended { end: CommandEnd::Failed, exit_code: Some(3) }));
}

#[tokio::test]
async fn output_that_does_not_fit_ends_inline_and_is_whole_in_a_file() {
    let pod = ShellFixture::new();
    let long = pod.run_bash("seq 1 5000").await;
    let file = long.full_output.unwrap();
    let whole = std::fs::read_to_string(&file).unwrap();
    assert_eq!(whole.lines().count(), 5000);
    let content = long.content.unwrap();
    let (header, tail) = content.split_once('\n').unwrap();
    assert_eq!(
        header,
        format!("[5000 lines and 23893 bytes; this is the end; all of it is in {}]", file.display())
    );
    assert!(tail.starts_with("4921\n") && tail.ends_with("\n5000\n"));
}

/// Sparse files of a gigabyte simulate earlier output.
#[tokio::test]
async fn old_output_goes_when_there_is_too_much_of_it() {
    const HALF: u64 = 512 * 1024 * 1024;
    let pod = ShellFixture::new();
    let output = pod.dir.path().canonicalize().unwrap().join("output");
    let old = |name: &str, age: u64| {
        let file = std::fs::File::create(output.join(name)).unwrap();
        file.set_len(HALF).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(age)).unwrap();
    };
    old("call_1_0.txt", 300);
    old("call_2_0.txt", 200);
    old("call_3_0.txt", 100);
    // The output directory is known from a background command whose output was never requested.
    let id = pod.start_background("seq 1 5000; read -r x", false).await;
    let end = Instant::now() + Duration::from_secs(10);
    while pod.commands.read_output(&id, Some(0)).await.unwrap().file.is_none() {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let next = pod.run_bash("echo next").await;
    assert_eq!(
        next.content.as_deref(),
        Some(
            "[to make room, the output of 1 earlier command was removed, the oldest first: 1024 MiB are kept]\n\
             next\n"
        )
    );
    let there = |name: &str| output.join(name).exists();
    assert!(!there("call_1_0.txt") && there("call_2_0.txt") && there("call_3_0.txt"));
    assert!(there(&format!("{id}.txt")), "a running command keeps its file");
    let more = pod.run_bash("echo more").await;
    assert_eq!(more.content.as_deref(), Some("more\n"));
    pod.commands.stop_all().await;
}

#[tokio::test]
async fn time_that_is_over_is_said_with_what_came_before() {
    let pod = ShellFixture::new();
    let began = Instant::now();
    let error = pod.run_tool("Bash", json!({ "command": "echo first; sleep 50", "timeout": 0.3 })).await;
    let Err(ToolError::TimedOut { after, output }) = error else { panic!("{error:?}") };
    assert_eq!(after, Duration::from_millis(300));
    assert_eq!(output.summary, "$ echo first; sleep 50 (timed out after 0.3 s)");
    assert_eq!(output.content.as_deref(), Some("first\n"));
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_call_is_stopped_from_outside_only_after_its_own_time() {
    let tools = shell_tools(None);
    let seconds = |name: &str, arguments: &str| find_tool(&tools, name).timeout(arguments).as_secs();
    assert!((121..=150).contains(&seconds("Bash", r#"{"command":"x"}"#)));
    assert!((601..=630).contains(&seconds("Bash", r#"{"command":"x","timeout":600}"#)));
    assert!((101..=130).contains(&seconds("BashOutput", r#"{"id":"x","wait":100}"#)));
    assert!((5..=30).contains(&seconds("KillBash", r#"{"id":"x"}"#)));
    assert!(seconds("Bash", "nonsense") > 0);
}

#[tokio::test]
async fn a_background_command_is_started_looked_at_talked_to_and_killed() {
    let pod = ShellFixture::new();
    let id =
        pod.start_background("echo ready; while read -r x; do echo got $x; done; sleep 100", false).await;
    let look = pod.run_tool("BashOutput", json!({ "id": id, "wait": 10 })).await.unwrap();
    assert_eq!(look.content.as_deref(), Some("ready\n"));
    assert!(look.summary.starts_with("$ echo ready; while read") && look.summary.contains("(running for "));
    assert!(look.summary.ends_with(", 6 new bytes"), "{}", look.summary);

    let gave = pod.run_tool("BashInput", json!({ "id": id, "text": "one\n" })).await.unwrap();
    assert_eq!(gave.summary, format!("{id} got 4 bytes"));
    let look = pod.run_tool("BashOutput", json!({ "id": id, "wait": 10 })).await.unwrap();
    assert_eq!(look.content.as_deref(), Some("got one\n"));
    let nothing = pod.run_tool("BashOutput", json!({ "id": id })).await.unwrap();
    assert_eq!(nothing.content, None);

    let gave = pod.run_tool("BashInput", json!({ "id": id, "text": "two\n", "end": true })).await.unwrap();
    assert_eq!(gave.summary, format!("{id} got 4 bytes, then its end"));
    let look = pod.run_tool("BashOutput", json!({ "id": id, "wait": 10 })).await.unwrap();
    assert_eq!(look.content.as_deref(), Some("got two\n"));
    let closed = pod.run_tool("BashInput", json!({ "id": id, "text": "three\n" })).await;
    assert!(
        matches!(&closed, Err(ToolError::ExecutionFailed(text)) if text.contains("closed")),
        "{closed:?}"
    );

    let killed = pod.run_tool("KillBash", json!({ "id": id })).await.unwrap();
    assert_eq!(killed.summary, format!("{id} was killed"));
    let look = pod.run_tool("BashOutput", json!({ "id": id })).await.unwrap();
    assert!(look.summary.contains("(killed after "), "{}", look.summary);
    assert!(pod.commands.running_commands().is_empty());
    let late = pod.run_tool("BashInput", json!({ "id": id, "text": "x" })).await;
    assert!(matches!(&late, Err(ToolError::ExecutionFailed(text)) if text.contains("has ended")), "{late:?}");
}

#[tokio::test]
async fn a_background_command_that_ended_says_how() {
    let pod = ShellFixture::new();
    let id = pod.start_background("exit 9", false).await;
    let look = pod.run_tool("BashOutput", json!({ "id": id, "wait": 10 })).await.unwrap();
    assert!(look.summary.contains("(exit 9 after "), "{}", look.summary);
    let killed = pod.run_tool("KillBash", json!({ "id": id })).await.unwrap();
    assert_eq!(killed.summary, format!("{id} had ended already (exit 9)"));
}

#[tokio::test]
async fn much_new_output_is_cut_and_says_where_all_of_it_is() {
    let pod = ShellFixture::new();
    let id = pod.start_background("seq 1 5000; read -r x", false).await;
    let end = Instant::now() + Duration::from_secs(10);
    while pod.commands.read_output(&id, Some(0)).await.unwrap().bytes < 23_893 {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let look = pod.run_tool("BashOutput", json!({ "id": id })).await.unwrap();
    let file = look.full_output.unwrap();
    let content = look.content.unwrap();
    let header = format!("[23493 new bytes before this were left out; all of it is in {}]\n", file.display());
    assert!(content.starts_with(&header), "{content}");
    assert!(content.ends_with("\n5000\n"));
    pod.commands.stop_all().await;
}

#[tokio::test]
async fn a_terminal_takes_control_characters() {
    let pod = ShellFixture::new();
    let id = pod.start_background("echo up; sleep 100; echo not reached", true).await;
    let look = pod.run_tool("BashOutput", json!({ "id": id, "wait": 10 })).await.unwrap();
    assert_eq!(look.content.as_deref(), Some("up\r\n"));
    pod.run_tool("BashInput", json!({ "id": id, "text": "\u{3}" })).await.unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let look = pod.run_tool("BashOutput", json!({ "id": id, "wait": 1 })).await.unwrap();
        assert!(!look.content.unwrap_or_default().contains("not reached"));
        if look.summary.contains("(ended by SIGINT after ") {
            break;
        }
        assert!(Instant::now() < end, "{}", look.summary);
    }
}

#[tokio::test]
async fn an_unknown_id_is_answered_with_those_that_run() {
    let pod = ShellFixture::new();
    for name in ["BashOutput", "KillBash"] {
        let answer = pod.run_tool(name, json!({ "id": "nope" })).await;
        assert!(
            matches!(&answer, Err(ToolError::InvalidArguments(text)) if text.contains("no command runs")),
            "{answer:?}"
        );
    }
    let id = pod.start_background("sleep 77; true", false).await;
    for (name, arguments) in [
        ("BashOutput", json!({ "id": "nope" })),
        ("BashOutput", json!({ "id": "nope", "wait": 5 })),
        ("BashInput", json!({ "id": "nope", "text": "x" })),
        ("KillBash", json!({ "id": "nope" })),
    ] {
        let answer = pod.run_tool(name, arguments).await;
        let Err(ToolError::InvalidArguments(text)) = answer else { panic!("{answer:?}") };
        assert!(text.contains("`nope`") && text.contains(&id) && text.contains("sleep 77"), "{text}");
    }
    pod.commands.stop_all().await;
}

#[tokio::test]
async fn arguments_that_cannot_be_used_are_refused_with_the_reason() {
    let pod = ShellFixture::new();
    let huge = "x".repeat(1_000_000);
    let bad: Vec<(&str, String, &str)> = vec![
        ("Bash", String::new(), "EOF"),
        ("Bash", "null".into(), "null"),
        ("Bash", "[]".into(), "Bash"),
        ("Bash", "{}".into(), "command"),
        ("Bash", "not json".into(), "Bash"),
        ("Bash", json!({ "command": 3 }).to_string(), "expected a string"),
        ("Bash", json!({ "command": ["ls"] }).to_string(), "expected a string"),
        ("Bash", json!({ "command": "" }).to_string(), "empty"),
        ("Bash", json!({ "command": " \n " }).to_string(), "empty"),
        ("Bash", json!({ "command": "a\0b" }).to_string(), "NUL"),
        ("Bash", json!({ "command": huge }).to_string(), "write it to a file"),
        ("Bash", json!({ "command": "ls", "timeout": "5" }).to_string(), "timeout"),
        ("Bash", json!({ "command": "ls", "timeout": huge }).to_string(), "`timeout`: invalid type"),
        ("Bash", json!({ "command": { huge.as_str(): 1 } }).to_string(), "`command`: invalid type"),
        ("Bash", json!({ "command": "ls", huge.as_str(): 1 }).to_string(), "unknown field"),
        ("Bash", json!({ "command": "ls", "timeout": 0 }).to_string(), "timeout"),
        ("Bash", json!({ "command": "ls", "timeout": -1 }).to_string(), "timeout"),
        ("Bash", json!({ "command": "ls", "timeout": 601 }).to_string(), "at most 600"),
        ("Bash", json!({ "command": "ls", "timeout": 120_000 }).to_string(), "not milliseconds"),
        (
            "Bash",
            r#"{"command":"ls","timeout":1e308}"#.into(),
            "`timeout` is 1e308: give seconds, at most 600",
        ),
        ("Bash", r#"{"command":"ls","timeout":-1e308}"#.into(), "`timeout` is -1e308: give"),
        ("Bash", r#"{"command":"ls","timeout":1e999}"#.into(), "Bash"),
        ("Bash", json!({ "command": "ls", "background": "yes" }).to_string(), "boolean"),
        ("Bash", json!({ "command": "ls", "sandbox": false }).to_string(), "sandbox"),
        ("Bash", json!({ "command": "ls", "dangerouslyDisableSandbox": true }).to_string(), "unknown field"),
        ("BashOutput", "{}".into(), "id"),
        ("BashOutput", json!({ "id": 1 }).to_string(), "expected a string"),
        ("BashOutput", json!({ "id": "" }).to_string(), "empty"),
        ("BashOutput", json!({ "id": "a", "wait": 301 }).to_string(), "at most 300"),
        ("BashOutput", json!({ "id": "a", "wait": -0.5 }).to_string(), "wait"),
        ("BashOutput", json!({ "id": "a", "filter": "x" }).to_string(), "filter"),
        ("BashOutput", json!({ "id": huge }).to_string(), "no background command"),
        ("BashInput", json!({ "id": "a" }).to_string(), "text"),
        ("BashInput", json!({ "id": "a", "text": null }).to_string(), "string"),
        ("BashInput", json!({ "id": "a", "text": "" }).to_string(), "empty"),
        ("BashInput", json!({ "id": "a", "text": huge }).to_string(), "in parts"),
        ("BashInput", json!({ "id": "a\0", "text": "x" }).to_string(), "no background command"),
        ("KillBash", json!({ "id": ["a"] }).to_string(), "expected a string"),
        ("KillBash", json!({ "id": "  " }).to_string(), "empty"),
        ("KillBash", json!({ "id": "a", "signal": 9 }).to_string(), "signal"),
    ];
    for (name, arguments, reason) in bad {
        let shown: String = arguments.chars().take(80).collect();
        let answer = pod.run_raw(name, &arguments).await;
        let Err(ToolError::InvalidArguments(text)) = answer else { panic!("{name} {shown}: {answer:?}") };
        assert!(text.contains(reason), "{name} {shown}: {text}");
        assert!(text.len() < 500, "{name} {shown}: {} bytes", text.len());
    }
    assert!(pod.events.lock().unwrap().is_empty(), "no command was started");
}

#[tokio::test]
async fn commands_really_run_beside_each_other() {
    let pod = ShellFixture::new();
    let one = "mkfifo a b; echo x > a; cat b";
    let other = "until [ -p b ]; do :; done; cat a; echo y > b";
    let (one, other) = tokio::join!(pod.run_bash(one), pod.run_bash(other));
    assert_eq!(one.content.as_deref(), Some("y\n"), "each waits for the other");
    assert_eq!(other.content.as_deref(), Some("x\n"));
}

#[tokio::test]
async fn a_command_that_cannot_start_says_why() {
    let pod = ShellFixture::new();
    std::fs::remove_dir(pod.test_place().cwd.as_path()).unwrap();
    let answer = pod.run_tool("Bash", json!({ "command": "ls" })).await;
    assert!(matches!(&answer, Err(ToolError::ExecutionFailed(text)) if text.contains("work")), "{answer:?}");
}

#[tokio::test]
async fn the_result_of_a_call_reports_a_refused_set_id_file() {
    // Otherwise the test binary would be executed as the helper and start all tests again.
    HelperBinary::from_path(env!("CARGO_BIN_EXE_tools-sandbox")).set_as_default();
    let backend = minke_exec::probe::best_backend();
    if backend == SandboxBackend::Unavailable {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED: no sandbox works here");
        eprintln!("SKIPPED: no sandbox works here");
        return;
    }
    let words = "[the sandbox refuses set-user-id and set-group-id files and directories";
    let pod = ShellFixture::with_backend(backend);
    let said = pod.run_bash("cp /bin/sh rsh; chmod 4755 rsh").await;
    assert!(said.summary.contains("exit 1"), "{}", said.summary);
    let content = said.content.unwrap();
    assert!(content.starts_with(words) && content.contains("Operation not permitted"), "{content}");
    assert!(!pod.run_bash("chmod 755 rsh; echo done").await.content.unwrap().contains(words));
    let id = pod.start_background("chmod g+s rsh; echo tried", false).await;
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let said = pod.run_tool("BashOutput", json!({ "id": id, "wait": 1 })).await.unwrap();
        if said.content.as_deref().is_some_and(|said| said.starts_with(words)) {
            break;
        }
        assert!(Instant::now() < until, "{said:?}");
    }
    let mode = std::fs::metadata(pod.dir.path().join("work/rsh")).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o7777, 0o755);
}
