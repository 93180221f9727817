//! `minke login`: keys are stored, listed, removed and never printed; no process exposes its memory.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Stdio};

use rustix::process::{Resource, Rlimit, Signal};
use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, tcgetattr};

use crate::support::world::{CliWorld, CommandResult};

/// A script that keeps its pod busy until it is stopped.
const SLOW_SCRIPT: &str =
    "[[turn]]\nsteps = [{ text = \"Half\" }, { delay_ms = 60000 }, { text = \" and half.\" }]\n";
const PLANTED_KEY: &str = "planted-0123456789-key";

fn stored_key_path(world: &CliWorld, provider: &str) -> std::path::PathBuf {
    world.home_dir().join("config/secrets").join(provider)
}

#[track_caller]
fn check_no_key(done: &CommandResult) {
    assert!(!done.out.contains("planted") && !done.err.contains("planted"), "{done:?}");
}

#[test]
fn a_key_from_stdin_is_stored_and_never_shown() {
    let world = CliWorld::new();
    let done = world.run_with_stdin(&format!("{PLANTED_KEY}\n"), &["login", "anthropic"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    check_no_key(&done);
    let path = stored_key_path(&world, "anthropic");
    assert!(done.err.contains(&path.display().to_string()), "{done:?}");
    assert_eq!(fs::read_to_string(&path).unwrap().trim(), PLANTED_KEY);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);

    let done = world.run_minke(&["login", "--list"]);
    check_no_key(&done);
    let row = |name: &str| done.out.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("anthropic ").ends_with("`minke login anthropic`"), "{done:?}");
    assert!(row("groq ").ends_with('–'), "{done:?}");
    let rows = world.run_json(&["login", "--list", "--json"]);
    let rows = rows.as_array().unwrap();
    let row = rows.iter().find(|row| row["provider"] == "anthropic").unwrap();
    assert_eq!(row["key"], serde_json::json!({ "from": "stored", "name": "anthropic" }));
    assert!(rows.iter().all(|row| row["provider"] != "ollama"), "a provider without keys is listed");
}

#[test]
fn a_variable_goes_before_what_is_stored() {
    let world = CliWorld::new();
    world.run_with_stdin(PLANTED_KEY, &["login", "google"]);
    let list = |value: &str| {
        let mut command = world.minke_command();
        let output = command.env("GOOGLE_API_KEY", value).args(["login", "--list"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let row = text.lines().find_map(|line| line.strip_prefix("google ")).unwrap();
        row.trim_start().to_owned()
    };
    assert_eq!(list("planted-in-a-variable"), "the variable GOOGLE_API_KEY");
    assert_eq!(list(""), "`minke login google`");
    let mut command = world.minke_command();
    command.env("GOOGLE_API_KEY", "planted-in-a-variable").args(["login", "google"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(PLANTED_KEY.as_bytes()).unwrap();
    let said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.contains("the variable GOOGLE_API_KEY takes precedence"), "{said}");
}

#[test]
fn what_cannot_be_stored_is_refused_without_showing_it() {
    let world = CliWorld::new();
    for (input, provider, wanted) in [
        (PLANTED_KEY, "anthropc", "did you mean `anthropic`?"),
        (PLANTED_KEY, "../anthropic", "there is no provider"),
        (PLANTED_KEY, "ollama", "needs no key"),
        (PLANTED_KEY, "scripted", "needs no key"),
        ("", "anthropic", "empty"),
        ("planted\nplanted", "anthropic", "control character"),
        (&"planted".repeat(10_000), "anthropic", "longer than"),
    ] {
        let done = world.run_with_stdin(input, &["login", provider]);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.err.contains(wanted), "{wanted}: {done:?}");
        check_no_key(&done);
    }
    assert!(!stored_key_path(&world, "").exists());
    let done = world.run_minke(&["login"]);
    assert_eq!(done.code, Some(2), "{done:?}");
}

#[test]
fn a_stored_key_can_be_forgotten_once() {
    let world = CliWorld::new();
    world.run_with_stdin(PLANTED_KEY, &["login", "xai"]);
    assert_eq!(world.run_minke(&["login", "xai", "--remove"]).code, Some(0));
    assert!(!stored_key_path(&world, "xai").exists());
    let done = world.run_minke(&["login", "xai", "--remove"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("no key of xai is stored"), "{done:?}");
}

#[test]
fn a_key_that_others_can_read_is_shown_with_the_remedy() {
    let world = CliWorld::new();
    world.run_with_stdin(PLANTED_KEY, &["login", "mistral"]);
    let path = stored_key_path(&world, "mistral");
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let done = world.run_minke(&["login", "--list"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.contains(&format!("chmod 600 {}", path.display())), "{done:?}");
}

/// A terminal controlled by the test.
struct TestTerminal {
    controller: File,
    device: OwnedFd,
}

impl TestTerminal {
    fn open_terminal() -> TestTerminal {
        let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        rustix::pty::grantpt(&ours).unwrap();
        rustix::pty::unlockpt(&ours).unwrap();
        let name = rustix::pty::ptsname(&ours, Vec::new()).unwrap();
        let theirs = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        TestTerminal { controller: ours.into(), device: theirs.into() }
    }

    fn device_stdio(&self) -> Stdio {
        Stdio::from(self.device.try_clone().unwrap())
    }

    fn is_echoing(&self) -> bool {
        let modes = tcgetattr(&self.device).unwrap().local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }

    /// Types after the question has appeared. Returns everything shown on the terminal.
    fn run_dialog(&mut self, mut child: Child, typed: &str) -> (Option<i32>, String) {
        let mut screen = Vec::new();
        let mut piece = [0; 1024];
        while !screen.ends_with(b"(it is not shown): ") {
            let read = self.controller.read(&mut piece).unwrap();
            screen.extend_from_slice(&piece[..read]);
        }
        assert!(!self.is_echoing());
        self.controller.write_all(typed.as_bytes()).unwrap();
        let code = child.wait().unwrap().code();
        // A mark after all output of the program, so that reading ends.
        File::from(self.device.try_clone().unwrap()).write_all(b"<end>").unwrap();
        while !screen.ends_with(b"<end>") {
            let read = self.controller.read(&mut piece).unwrap();
            screen.extend_from_slice(&piece[..read]);
        }
        (code, String::from_utf8(screen).unwrap())
    }
}

#[test]
fn a_key_that_is_typed_is_not_shown() {
    let world = CliWorld::new();
    let mut terminal = TestTerminal::open_terminal();
    assert!(terminal.is_echoing());
    let login = |terminal: &TestTerminal| {
        let mut command = world.minke_command();
        command
            .args(["login", "groq"])
            .stdin(terminal.device_stdio())
            .stdout(terminal.device_stdio())
            .stderr(terminal.device_stdio());
        command.spawn().unwrap()
    };
    let child = login(&terminal);
    let (code, screen) = terminal.run_dialog(child, "planted\u{3}");
    assert_eq!(code, Some(130), "{screen}");
    assert!(screen.contains("nothing was stored") && !screen.contains("planted"), "{screen}");
    assert!(terminal.is_echoing() && !stored_key_path(&world, "groq").exists());

    let child = login(&terminal);
    let (code, screen) = terminal.run_dialog(child, &format!("wrong\u{15}{PLANTED_KEY}x\u{7f}\r"));
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("is stored in") && !screen.contains("planted"), "{screen}");
    assert!(terminal.is_echoing());
    assert_eq!(fs::read_to_string(stored_key_path(&world, "groq")).unwrap().trim(), PLANTED_KEY);
}

#[test]
fn what_looks_like_a_key_is_masked_or_told() {
    let world = CliWorld::new();
    // In two halves, so that no scanner mistakes it for a real key.
    let key = format!("ghp_{}", "1A2b3C4d5E6f7G8h9I0jK1l2M3n4O5p6Q7r8");
    world.write_file("tell.toml", &format!("[[turn]]\ntext = \"it is {key} I think\"\n"));
    let done = world.run_minke(&["exec", "--name", "told", "--model", "scripted:tell.toml", "which key?"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let lines = world.run_minke(&["log", "export", "told"]);
    assert!(lines.out.contains(&key) && lines.err.contains("may contain a key ("), "{lines:?}");
    let page = world.run_minke(&["log", "export", "told", "--format", "markdown"]);
    assert!(page.out.contains("it is [key ghp_…] I think") && !page.out.contains(&key), "{page:?}");
    world.run_minke(&["exec", "--name", "plain", "--model", "scripted:demo", "hello"]);
    let lines = world.run_minke(&["log", "export", "plain"]);
    assert!(!lines.err.contains("contain a key"), "{lines:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn no_process_of_ours_leaves_a_core_file() {
    let world = CliWorld::new();
    world.write_file("slow.toml", SLOW_SCRIPT);
    let mut command = world.minke_command();
    command.args(["exec", "--model", "scripted:slow.toml", "--json", "wait"]);
    // As on a machine whose user enables core dumps.
    let limits = rustix::process::getrlimit(Resource::Core);
    let generous = Rlimit { current: limits.maximum, ..limits };
    rustix::process::setrlimit(Resource::Core, generous).unwrap();
    let mut going = world.start_command(command);
    going.wait_for_stdout("Half");
    let pod = world.only_live_pod()["pid"].as_u64().unwrap();
    for pid in [u64::from(going.child.id()), pod] {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        let soft = core.trim_start_matches("Max core file size").split_whitespace().next();
        assert_eq!(soft, Some("0"), "{core}");
    }
    going.send_signal(Signal::INT);
    going.wait_for_exit();
}
