//! `minke login`: keys are stored, listed and forgotten, and never shown; no process of ours leaves its memory behind.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Stdio};

use rustix::process::{Resource, Rlimit, Signal};
use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, tcgetattr};

use crate::world::{Done, World};

/// A script that keeps its pod busy until it is stopped.
const SLOW: &str =
    "[[turn]]\nsteps = [{ text = \"Half\" }, { delay_ms = 60000 }, { text = \" and half.\" }]\n";
const KEY: &str = "planted-0123456789-key";

fn stored(world: &World, provider: &str) -> std::path::PathBuf {
    world.home().join("config/secrets").join(provider)
}

#[track_caller]
fn silent(done: &Done) {
    assert!(!done.out.contains("planted") && !done.err.contains("planted"), "{done:?}");
}

#[test]
fn a_key_from_stdin_is_stored_and_never_shown() {
    let world = World::new();
    let done = world.pipe(&format!("{KEY}\n"), &["login", "anthropic"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    silent(&done);
    let path = stored(&world, "anthropic");
    assert!(done.err.contains(&path.display().to_string()), "{done:?}");
    assert_eq!(fs::read_to_string(&path).unwrap().trim(), KEY);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);

    let done = world.run(&["login", "--list"]);
    silent(&done);
    let row = |name: &str| done.out.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("anthropic ").ends_with("`minke login anthropic`"), "{done:?}");
    assert!(row("groq ").ends_with('–'), "{done:?}");
    let rows = world.json(&["login", "--list", "--json"]);
    let rows = rows.as_array().unwrap();
    let row = rows.iter().find(|row| row["provider"] == "anthropic").unwrap();
    assert_eq!(row["key"], serde_json::json!({ "from": "stored", "name": "anthropic" }));
    assert!(rows.iter().all(|row| row["provider"] != "ollama"), "a provider without keys is listed");
}

#[test]
fn a_variable_goes_before_what_is_stored() {
    let world = World::new();
    world.pipe(KEY, &["login", "google"]);
    let list = |value: &str| {
        let mut command = world.command();
        let output = command.env("GOOGLE_API_KEY", value).args(["login", "--list"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let row = text.lines().find_map(|line| line.strip_prefix("google ")).unwrap();
        row.trim_start().to_owned()
    };
    assert_eq!(list("planted-in-a-variable"), "the variable GOOGLE_API_KEY");
    assert_eq!(list(""), "`minke login google`");
    let mut command = world.command();
    command.env("GOOGLE_API_KEY", "planted-in-a-variable").args(["login", "google"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(KEY.as_bytes()).unwrap();
    let said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.contains("the variable GOOGLE_API_KEY is used before it"), "{said}");
}

#[test]
fn what_cannot_be_stored_is_refused_without_showing_it() {
    let world = World::new();
    for (input, provider, wanted) in [
        (KEY, "anthropc", "did you mean `anthropic`?"),
        (KEY, "../anthropic", "there is no provider"),
        (KEY, "ollama", "wants no key"),
        (KEY, "scripted", "wants no key"),
        ("", "anthropic", "empty"),
        ("planted\nplanted", "anthropic", "control character"),
        (&"planted".repeat(10_000), "anthropic", "longer than"),
    ] {
        let done = world.pipe(input, &["login", provider]);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.err.contains(wanted), "{wanted}: {done:?}");
        silent(&done);
    }
    assert!(!stored(&world, "").exists());
    let done = world.run(&["login"]);
    assert_eq!(done.code, Some(2), "{done:?}");
}

#[test]
fn a_stored_key_can_be_forgotten_once() {
    let world = World::new();
    world.pipe(KEY, &["login", "xai"]);
    assert_eq!(world.run(&["login", "xai", "--remove"]).code, Some(0));
    assert!(!stored(&world, "xai").exists());
    let done = world.run(&["login", "xai", "--remove"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("no key of xai is stored"), "{done:?}");
}

#[test]
fn a_key_that_others_can_read_is_shown_with_the_remedy() {
    let world = World::new();
    world.pipe(KEY, &["login", "mistral"]);
    let path = stored(&world, "mistral");
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let done = world.run(&["login", "--list"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.contains(&format!("chmod 600 {}", path.display())), "{done:?}");
}

/// A terminal of which we are the other side.
struct Terminal {
    ours: File,
    theirs: OwnedFd,
}

impl Terminal {
    fn open() -> Terminal {
        let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        rustix::pty::grantpt(&ours).unwrap();
        rustix::pty::unlockpt(&ours).unwrap();
        let name = rustix::pty::ptsname(&ours, Vec::new()).unwrap();
        let theirs = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        Terminal { ours: ours.into(), theirs: theirs.into() }
    }

    fn end(&self) -> Stdio {
        Stdio::from(self.theirs.try_clone().unwrap())
    }

    fn echoes(&self) -> bool {
        let modes = tcgetattr(&self.theirs).unwrap().local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }

    /// Types once the question is there; gives everything that was on the screen.
    fn converse(&mut self, mut child: Child, typed: &str) -> (Option<i32>, String) {
        let mut screen = Vec::new();
        let mut piece = [0; 1024];
        while !screen.ends_with(b"(it is not shown): ") {
            let read = self.ours.read(&mut piece).unwrap();
            screen.extend_from_slice(&piece[..read]);
        }
        assert!(!self.echoes());
        self.ours.write_all(typed.as_bytes()).unwrap();
        let code = child.wait().unwrap().code();
        // A mark of our own after everything that the program wrote, so that reading ends.
        File::from(self.theirs.try_clone().unwrap()).write_all(b"<end>").unwrap();
        while !screen.ends_with(b"<end>") {
            let read = self.ours.read(&mut piece).unwrap();
            screen.extend_from_slice(&piece[..read]);
        }
        (code, String::from_utf8(screen).unwrap())
    }
}

#[test]
fn a_key_that_is_typed_is_not_shown() {
    let world = World::new();
    let mut terminal = Terminal::open();
    assert!(terminal.echoes());
    let login = |terminal: &Terminal| {
        let mut command = world.command();
        command.args(["login", "groq"]).stdin(terminal.end()).stdout(terminal.end()).stderr(terminal.end());
        command.spawn().unwrap()
    };
    let child = login(&terminal);
    let (code, screen) = terminal.converse(child, "planted\u{3}");
    assert_eq!(code, Some(130), "{screen}");
    assert!(screen.contains("nothing was stored") && !screen.contains("planted"), "{screen}");
    assert!(terminal.echoes() && !stored(&world, "groq").exists());

    let child = login(&terminal);
    let (code, screen) = terminal.converse(child, &format!("wrong\u{15}{KEY}x\u{7f}\r"));
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("is stored in") && !screen.contains("planted"), "{screen}");
    assert!(terminal.echoes());
    assert_eq!(fs::read_to_string(stored(&world, "groq")).unwrap().trim(), KEY);
}

#[test]
fn what_looks_like_a_key_is_masked_or_told() {
    let world = World::new();
    // In two halves, so that no scanner takes it for somebody's.
    let key = format!("ghp_{}", "1A2b3C4d5E6f7G8h9I0jK1l2M3n4O5p6Q7r8");
    world.write("tell.toml", &format!("[[turn]]\ntext = \"it is {key} I think\"\n"));
    let done = world.run(&["exec", "--name", "told", "--model", "scripted:tell.toml", "which key?"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let lines = world.run(&["log", "export", "told"]);
    assert!(lines.out.contains(&key) && lines.err.contains("look as if they held a key ("), "{lines:?}");
    let page = world.run(&["log", "export", "told", "--format", "markdown"]);
    assert!(page.out.contains("it is [key ghp_…] I think") && !page.out.contains(&key), "{page:?}");
    world.run(&["exec", "--name", "plain", "--model", "scripted:demo", "hello"]);
    let lines = world.run(&["log", "export", "plain"]);
    assert!(!lines.err.contains("held a key"), "{lines:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn no_process_of_ours_leaves_a_core_file() {
    let world = World::new();
    world.write("slow.toml", SLOW);
    let mut command = world.command();
    command.args(["exec", "--model", "scripted:slow.toml", "--json", "wait"]);
    // As on a machine whose person wants core files of their own programs.
    let limits = rustix::process::getrlimit(Resource::Core);
    let generous = Rlimit { current: limits.maximum, ..limits };
    rustix::process::setrlimit(Resource::Core, generous).unwrap();
    let mut going = world.start_command(command);
    going.until("Half");
    let pod = world.only_pod()["pid"].as_u64().unwrap();
    for pid in [u64::from(going.child.id()), pod] {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        let soft = core.trim_start_matches("Max core file size").split_whitespace().next();
        assert_eq!(soft, Some("0"), "{core}");
    }
    going.signal(Signal::INT);
    going.end();
}
