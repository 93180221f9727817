//! Planted keys: ten kinds, in every supported place, leaked by the provider in every way; then all files and
//! output of the runs are searched for them.

use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::providers::hostile_provider::{HostileProvider, KEY_TRICKS, unicode_escaped};
use crate::support::world::{CliWorld, CommandResult};

/// A key and its location. Prefix and rest are separate, so that no scanner mistakes it for a real key.
struct PlantedKey {
    provider: &'static str,
    /// `None` for a built-in provider.
    scheme: Option<&'static str>,
    location: KeyLocation,
    prefix: &'static str,
    random_part: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyLocation {
    Env(&'static str),
    File,
    Login,
}

impl PlantedKey {
    fn full_key(&self) -> String {
        format!("{}{}", self.prefix, self.random_part)
    }
}

const fn planted_key(
    provider: &'static str,
    scheme: Option<&'static str>,
    location: KeyLocation,
    prefix: &'static str,
    random_part: &'static str,
) -> PlantedKey {
    PlantedKey { provider, scheme, location, prefix, random_part }
}

const PLANTED_KEYS: [PlantedKey; 10] = [
    planted_key(
        "anthropic",
        None,
        KeyLocation::Env("ANTHROPIC_API_KEY"),
        "sk-ant-",
        "api03-Zq8kT2vXw9LmN4pR7sB1cD5fG6hJ0kQ3-AA",
    ),
    planted_key(
        "openai",
        None,
        KeyLocation::Env("OPENAI_API_KEY"),
        "sk-",
        "proj-9xYzQ2w8E4rT6yU1iO3pA5sD7fG0hJ2kL4zX6cV8bN1m",
    ),
    planted_key("google", None, KeyLocation::Login, "AIza", "SyD3m0K3yTh4tIsN0tR3al1234567890abc"),
    planted_key(
        "openrouter",
        None,
        KeyLocation::Login,
        "sk-or-v1-",
        "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a6978",
    ),
    planted_key(
        "xai",
        None,
        KeyLocation::Env("XAI_API_KEY"),
        "xai-",
        "7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2Ag4Je6Ih8No1Mq3",
    ),
    planted_key("groq", None, KeyLocation::File, "gsk_", "2Wn4Qe6Rt8Yu0Io1Pa3Sd5Fg7Hj9Kl2Zx4Cv6Bn8Mq"),
    planted_key(
        "forge",
        Some("openai_chat"),
        KeyLocation::Login,
        "ghp_",
        "1A2b3C4d5E6f7G8h9I0jK1l2M3n4O5p6Q7r8",
    ),
    planted_key("cloud", Some("openai_responses"), KeyLocation::Env("CLOUD_KEY"), "AKIA", "Q3EGR7XW2LKJ5T4B"),
    planted_key("hub", Some("anthropic"), KeyLocation::File, "hf_", "QwErTyUiOpAsDfGhJkLzXcVbNm123456"),
    planted_key(
        "gate",
        Some("gemini"),
        KeyLocation::Env("GATE_TOKEN"),
        "eyJ",
        "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLW5vdC1yZWFs",
    ),
];

/// A world with the ten planted keys, and a provider that leaks them.
struct KeyTrap {
    world: CliWorld,
    hostile: HostileProvider,
    redirect_target: TcpListener,
    outputs: Vec<CommandResult>,
}

impl KeyTrap {
    fn set_up() -> KeyTrap {
        let redirect_target = TcpListener::bind("127.0.0.1:0").unwrap();
        redirect_target.set_nonblocking(true).unwrap();
        let loot: Vec<String> = PLANTED_KEYS.iter().map(PlantedKey::full_key).collect();
        let hostile = HostileProvider::start_server(redirect_target.local_addr().unwrap(), loot.join(" "));
        let key_trap = KeyTrap { world: CliWorld::new(), hostile, redirect_target, outputs: Vec::new() };
        key_trap.plant_keys();
        key_trap
    }

    fn plant_keys(&self) {
        let config = self.world.home_dir().join("config");
        fs::create_dir_all(&config).unwrap();
        fs::write(config.join("providers.toml"), providers_toml(self.hostile.address)).unwrap();
        for planted in &PLANTED_KEYS {
            match planted.location {
                KeyLocation::Env(_) => {}
                KeyLocation::File => {
                    let path = config.join(format!("{}.key", planted.provider));
                    fs::write(&path, planted.full_key()).unwrap();
                    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
                }
                KeyLocation::Login => {
                    let done = self.world.run_with_stdin(&planted.full_key(), &["login", planted.provider]);
                    assert_eq!(done.code, Some(0), "{done:?}");
                }
            }
        }
    }

    fn minke_command(&self) -> Command {
        let mut command = self.world.minke_command();
        for planted in &PLANTED_KEYS {
            if let KeyLocation::Env(name) = planted.location {
                command.env(name, planted.full_key());
            }
        }
        command
    }

    fn run_minke(&mut self, args: &[&str]) -> &CommandResult {
        let mut command = self.minke_command();
        command.args(args);
        self.outputs.push(self.world.run_command(command));
        self.outputs.last().unwrap()
    }

    /// Plays every trick with each of these providers.
    fn play_tricks(&mut self, providers: &[&str]) {
        for (turn, trick) in KEY_TRICKS.iter().enumerate() {
            let model = format!("{}/{trick}", providers[turn % providers.len()]);
            let name = format!("{}-{trick}", providers[turn % providers.len()]);
            let before = self.hostile.requests().len();
            let mut args = vec!["exec", "--name", &name, "--model", &model, "say it"];
            if turn % 2 == 0 {
                args.push("--json");
            }
            let done = self.run_minke(&args);
            let wanted = if trick.starts_with("error") || *trick == "redirect" { 5 } else { 0 };
            assert_eq!(done.code, Some(wanted), "{model}: {done:?}");
            let told = format!("{}{}", done.out, done.err);
            assert!(self.hostile.requests().len() > before, "{model}: no request was sent");
            let log = &self.run_minke(&["log", "export", &name]).out;
            // The key was leaked and redacted, so the searches below do not pass for lack of leaks.
            let hidden = told.contains("[secret ") || log.contains("[secret ");
            match *trick {
                // Stream errors are live events, which a late client misses; the second attempt proves them.
                "malformed" => assert!(hidden || log.contains("\"attempts\":2"), "{model}: {told}"),
                "error-headers" | "comments" => assert!(!hidden, "{model}: {told}"),
                _ => assert!(hidden, "{model}: {told}"),
            }
        }
        for (trick, show) in
            [("text-split", "show"), ("arguments-escaped", "export"), ("error-escaped", "show")]
        {
            let turn = KEY_TRICKS.iter().position(|one| *one == trick).unwrap();
            let provider = providers[turn % providers.len()];
            self.run_minke(&["log", show, &format!("{provider}-{trick}")]);
            self.run_minke(&["log", "export", &format!("{provider}-{trick}"), "--format", "markdown"]);
            self.run_minke(&["models", "show", &format!("{provider}/{trick}")]);
        }
        self.run_minke(&["login", "--list"]);
        self.run_minke(&["models", "--json"]);
        self.check_no_leaks();
    }

    fn check_no_leaks(&self) {
        for request in self.hostile.requests() {
            let owner = PLANTED_KEYS
                .iter()
                .find(|planted| request.path.starts_with(&format!("/p/{}/", planted.provider)));
            let owner = owner.unwrap_or_else(|| panic!("unknown sender of the request: {request:?}"));
            assert_eq!(request.sent_key(), Some(owner.full_key().as_str()), "{request:?}");
            for planted in &PLANTED_KEYS {
                // Its own key appears once, in its header; leaked keys do not come back with the history.
                let own = usize::from(planted.provider == owner.provider);
                assert_eq!(request.headers.matches(&planted.full_key()).count(), own, "{request:?}");
                assert_eq!(find_key(planted, request.body.as_bytes()), None, "{request:?}");
                assert!(!request.path.contains(planted.random_part), "{request:?}");
            }
        }
        let followed = self.redirect_target.accept();
        assert!(followed.is_err(), "a client followed the redirect");
        for done in &self.outputs {
            assert_eq!(find_leaks(done.out.as_bytes()), Vec::<String>::new(), "{done:?}");
            assert_eq!(find_leaks(done.err.as_bytes()), Vec::<String>::new(), "{done:?}");
        }
        let (searched, found) = search_files(self.world.home_dir());
        assert!(searched >= 5, "only {searched} files were searched");
        assert_eq!(found, Vec::<String>::new());
        assert_eq!(search_files(&self.world.work_dir()).1, Vec::<String>::new());
    }
}

fn providers_toml(address: SocketAddr) -> String {
    let entry = |planted: &PlantedKey| {
        let provider = planted.provider;
        let mut text = format!("[{provider}]\nbase_url = \"http://{address}/p/{provider}\"\n");
        if let Some(scheme) = planted.scheme {
            text += &format!("scheme = \"{scheme}\"\n");
        }
        match planted.location {
            KeyLocation::Env(name) if planted.scheme.is_some() => {
                text += &format!("auth = {{ api_key = {{ env = \"{name}\" }} }}\n");
            }
            KeyLocation::File => text += &format!("auth = {{ api_key = {{ file = \"{provider}.key\" }} }}\n"),
            KeyLocation::Login if planted.scheme.is_some() => text += "auth = \"api_key\"\n",
            KeyLocation::Env(_) | KeyLocation::Login => {}
        }
        text
    };
    PLANTED_KEYS.iter().map(entry).collect()
}

/// Searches all files below a directory except the planted ones. Returns their number and the findings.
fn search_files(dir: &Path) -> (usize, Vec<String>) {
    let mut searched = 0;
    let mut found = Vec::new();
    for path in list_files(dir) {
        let planted_here = path.extension().is_some_and(|end| end == "key")
            || path.parent().is_some_and(|parent| parent.ends_with("config/secrets"));
        if planted_here {
            continue;
        }
        searched += 1;
        // A socket has no content.
        let Ok(bytes) = fs::read(&path) else { continue };
        let name = path.strip_prefix(dir).unwrap().display().to_string();
        found.extend(
            find_leaks(name.as_bytes())
                .into_iter()
                .chain(find_leaks(&bytes))
                .map(|leak| format!("{name}: {leak}")),
        );
    }
    (searched, found)
}

pub(crate) fn list_files(dir: &Path) -> Vec<PathBuf> {
    let Ok(rows) = fs::read_dir(dir) else { return Vec::new() };
    rows.flat_map(|row| {
        let row = row.unwrap();
        if row.file_type().unwrap().is_dir() { list_files(&row.path()) } else { vec![row.path()] }
    })
    .collect()
}

/// Returns the keys in these bytes, and their form.
fn find_leaks(bytes: &[u8]) -> Vec<String> {
    const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    let unpacked = if bytes.starts_with(&ZSTD) { zstd::decode_all(bytes).unwrap() } else { bytes.to_vec() };
    let found = PLANTED_KEYS.iter().filter_map(|planted| {
        find_key(planted, &unpacked).map(|how| format!("the key of {} {how}", planted.provider))
    });
    found.collect()
}

/// Returns the form in which a key, or a large part of one, is in this text: plain, escaped, or in pieces of
/// a stream.
fn find_key(planted: &PlantedKey, bytes: &[u8]) -> Option<&'static str> {
    let text = String::from_utf8_lossy(bytes);
    let parts = key_parts(planted);
    let within = |text: &str| parts.iter().any(|part| text.contains(part.as_str()));
    if within(&text) {
        return Some("found plain");
    }
    if text.contains("\\u") && within(&unescape_unicode(&unescape_unicode(&text))) {
        return Some("found escaped");
    }
    within(&join_deltas(&text)).then_some("found in pieces")
}

/// Returns the start, middle and end of the random part.
fn key_parts(planted: &PlantedKey) -> [String; 3] {
    const PART_CHARS: usize = 12;
    let rest = planted.random_part.len();
    [0, (rest - PART_CHARS) / 2, rest - PART_CHARS]
        .map(|at| planted.random_part.get(at..at + PART_CHARS).unwrap().to_owned())
}

/// Decodes `\uXXXX` everywhere.
pub(crate) fn unescape_unicode(text: &str) -> String {
    let mut out = String::new();
    for (index, piece) in text.split("\\u").enumerate() {
        let letter =
            piece.get(..4).and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
        match letter.filter(|_| index > 0) {
            Some(letter) => {
                // A double backslash is one escaped backslash.
                let kept = out.trim_end_matches('\\').len();
                out.truncate(kept);
                out.push(letter);
                out.push_str(piece.get(4..).unwrap());
            }
            None => out.push_str(piece),
        }
    }
    out
}

/// Concatenates the texts of all deltas.
fn join_deltas(text: &str) -> String {
    fn collect_deltas(value: &Value, delta: bool, out: &mut String) {
        match value {
            Value::String(text) if delta => out.push_str(text),
            Value::Array(list) => list.iter().for_each(|value| collect_deltas(value, false, out)),
            Value::Object(map) => map.iter().for_each(|(name, value)| {
                let delta =
                    ["text", "partial_json", "content", "delta", "arguments"].contains(&name.as_str());
                collect_deltas(value, delta, out);
            }),
            _ => {}
        }
    }
    let mut out = String::new();
    for line in text.lines() {
        let line = line.strip_prefix("data: ").unwrap_or(line);
        if let Ok(value) = serde_json::from_str(line) {
            collect_deltas(&value, false, &mut out);
        }
    }
    out
}

#[test]
fn no_planted_key_is_left_behind_in_the_first_format() {
    KeyTrap::set_up().play_tricks(&["anthropic", "hub"]);
}

#[test]
fn no_planted_key_is_left_behind_in_the_second_format() {
    KeyTrap::set_up().play_tricks(&["openai", "cloud"]);
}

#[test]
fn no_planted_key_is_left_behind_in_the_third_format() {
    KeyTrap::set_up().play_tricks(&["openrouter", "xai", "groq", "forge"]);
}

#[test]
fn no_planted_key_is_left_behind_in_the_fourth_format() {
    KeyTrap::set_up().play_tricks(&["google", "gate"]);
}

#[test]
fn a_key_that_a_tool_reads_is_hidden() {
    let mut key_trap = KeyTrap::set_up();
    let keys: Vec<String> = PLANTED_KEYS.iter().map(PlantedKey::full_key).collect();
    key_trap.world.write_file("loot.key", &keys.join("\n"));
    let script = "[[turn]]\n[[turn.call]]\ntool = \"Read\"\nargs = { file_path = \"loot.key\" }\n[[turn]]\ntext = \"Yes.\"\n";
    key_trap.world.write_file("read.toml", script);
    let done = key_trap.run_minke(&[
        "exec",
        "--name",
        "reader",
        "--model",
        "scripted:read.toml",
        "--json",
        "read it",
    ]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let log = &key_trap.run_minke(&["log", "export", "reader"]).out;
    let result = log.lines().find(|line| line.contains("\"kind\":\"tool_result\"")).unwrap();
    assert_eq!(result.matches("[secret ").count(), PLANTED_KEYS.len(), "{result}");
    key_trap.check_no_leaks();
}

#[test]
fn the_planted_keys_are_of_ten_shapes() {
    let mut shapes: Vec<_> = PLANTED_KEYS
        .iter()
        .map(|planted| minke_secrets::first_kind_in(&planted.full_key()).unwrap())
        .collect();
    shapes.sort_unstable();
    shapes.dedup();
    assert_eq!(shapes.len(), 10);
}

/// The search finds a key in every form.
#[test]
fn the_search_would_find_a_key() {
    let world = CliWorld::new();
    let dir = world.work_dir().join("deep/er");
    fs::create_dir_all(&dir).unwrap();
    assert_eq!(search_files(&world.work_dir()), (0, vec![]));
    for planted in &PLANTED_KEYS {
        let key = planted.full_key();
        let pieces: String =
            key.chars().map(|c| format!("data: {{\"delta\":{{\"text\":\"{c}\"}}}}\n\n")).collect();
        let half: String = key.chars().take(key.len() / 2 + 8).collect();
        for (content, wanted) in [
            (format!("xx{key}yy"), "found plain"),
            (half, "found plain"),
            (unicode_escaped(&key), "found escaped"),
            (unicode_escaped(&key).replace('\\', "\\\\"), "found escaped"),
            (pieces, "found in pieces"),
        ] {
            let wanted = format!("the key of {} {wanted}", planted.provider);
            for bytes in [content.clone().into_bytes(), zstd::encode_all(content.as_bytes(), 0).unwrap()] {
                fs::write(dir.join("left"), bytes).unwrap();
                assert_eq!(
                    search_files(&world.work_dir()),
                    (1, vec![format!("deep/er/left: {wanted}")]),
                    "{content}"
                );
            }
        }
    }
    fs::write(dir.join("left"), "nothing").unwrap();
    assert_eq!(search_files(&world.work_dir()), (1, vec![]));
}
