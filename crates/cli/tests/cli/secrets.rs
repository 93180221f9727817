//! Planted keys: ten shapes, in every place where a key may be, given away by the provider in every way it can; then
//! everything that the runs left behind is searched for them.

use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::hostile::{Hostile, TRICKS, escaped};
use crate::world::{Done, World};

/// A key and where it is planted. Prefix and rest apart, so that no scanner takes them for somebody's.
struct Planted {
    provider: &'static str,
    /// `None`: a built-in provider has its own.
    scheme: Option<&'static str>,
    place: Place,
    prefix: &'static str,
    rest: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Env(&'static str),
    File,
    Login,
}

impl Planted {
    fn key(&self) -> String {
        format!("{}{}", self.prefix, self.rest)
    }
}

const fn planted(
    provider: &'static str,
    scheme: Option<&'static str>,
    place: Place,
    prefix: &'static str,
    rest: &'static str,
) -> Planted {
    Planted { provider, scheme, place, prefix, rest }
}

const KEYS: [Planted; 10] = [
    planted(
        "anthropic",
        None,
        Place::Env("ANTHROPIC_API_KEY"),
        "sk-ant-",
        "api03-Zq8kT2vXw9LmN4pR7sB1cD5fG6hJ0kQ3-AA",
    ),
    planted(
        "openai",
        None,
        Place::Env("OPENAI_API_KEY"),
        "sk-",
        "proj-9xYzQ2w8E4rT6yU1iO3pA5sD7fG0hJ2kL4zX6cV8bN1m",
    ),
    planted("google", None, Place::Login, "AIza", "SyD3m0K3yTh4tIsN0tR3al1234567890abc"),
    planted(
        "openrouter",
        None,
        Place::Login,
        "sk-or-v1-",
        "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a6978",
    ),
    planted("xai", None, Place::Env("XAI_API_KEY"), "xai-", "7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2Ag4Je6Ih8No1Mq3"),
    planted("groq", None, Place::File, "gsk_", "2Wn4Qe6Rt8Yu0Io1Pa3Sd5Fg7Hj9Kl2Zx4Cv6Bn8Mq"),
    planted("forge", Some("openai_chat"), Place::Login, "ghp_", "1A2b3C4d5E6f7G8h9I0jK1l2M3n4O5p6Q7r8"),
    planted("cloud", Some("openai_responses"), Place::Env("CLOUD_KEY"), "AKIA", "Q3EGR7XW2LKJ5T4B"),
    planted("hub", Some("anthropic"), Place::File, "hf_", "QwErTyUiOpAsDfGhJkLzXcVbNm123456"),
    planted(
        "gate",
        Some("gemini"),
        Place::Env("GATE_TOKEN"),
        "eyJ",
        "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLW5vdC1yZWFs",
    ),
];

/// A world in which the ten keys are planted, and a provider that gives them away.
struct Trap {
    world: World,
    hostile: Hostile,
    elsewhere: TcpListener,
    said: Vec<Done>,
}

impl Trap {
    fn set() -> Trap {
        let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
        elsewhere.set_nonblocking(true).unwrap();
        let loot: Vec<String> = KEYS.iter().map(Planted::key).collect();
        let hostile = Hostile::start(elsewhere.local_addr().unwrap(), loot.join(" "));
        let trap = Trap { world: World::new(), hostile, elsewhere, said: Vec::new() };
        trap.plant();
        trap
    }

    fn plant(&self) {
        let config = self.world.home().join("config");
        fs::create_dir_all(&config).unwrap();
        fs::write(config.join("providers.toml"), providers(self.hostile.address)).unwrap();
        for planted in &KEYS {
            match planted.place {
                Place::Env(_) => {}
                Place::File => {
                    let path = config.join(format!("{}.key", planted.provider));
                    fs::write(&path, planted.key()).unwrap();
                    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
                }
                Place::Login => {
                    let done = self.world.pipe(&planted.key(), &["login", planted.provider]);
                    assert_eq!(done.code, Some(0), "{done:?}");
                }
            }
        }
    }

    fn command(&self) -> Command {
        let mut command = self.world.command();
        for planted in &KEYS {
            if let Place::Env(name) = planted.place {
                command.env(name, planted.key());
            }
        }
        command
    }

    fn run(&mut self, args: &[&str]) -> &Done {
        let mut command = self.command();
        command.args(args);
        self.said.push(self.world.done(command));
        self.said.last().unwrap()
    }

    /// Every trick, played by each of these providers in turn.
    fn spring(&mut self, providers: &[&str]) {
        for (turn, trick) in TRICKS.iter().enumerate() {
            let model = format!("{}/{trick}", providers[turn % providers.len()]);
            let name = format!("{}-{trick}", providers[turn % providers.len()]);
            let before = self.hostile.seen().len();
            let mut args = vec!["exec", "--name", &name, "--model", &model, "say it"];
            if turn % 2 == 0 {
                args.push("--json");
            }
            let done = self.run(&args);
            let wanted = if trick.starts_with("error") || *trick == "redirect" { 5 } else { 0 };
            assert_eq!(done.code, Some(wanted), "{model}: {done:?}");
            let told = format!("{}{}", done.out, done.err);
            assert!(self.hostile.seen().len() > before, "{model}: nobody was asked");
            let log = &self.run(&["log", "export", &name]).out;
            // It was there and it was found, so that what is not found below was not merely lost on the way.
            let hidden = told.contains("[secret ") || log.contains("[secret ");
            match *trick {
                // What was wrong with a stream is live news, which who comes late has missed: that it was there shows
                // in the second attempt.
                "malformed" => assert!(hidden || log.contains("\"attempts\":2"), "{model}: {told}"),
                "error-headers" | "comments" => assert!(!hidden, "{model}: {told}"),
                _ => assert!(hidden, "{model}: {told}"),
            }
        }
        for (trick, show) in
            [("text-split", "show"), ("arguments-escaped", "export"), ("error-escaped", "show")]
        {
            let turn = TRICKS.iter().position(|one| *one == trick).unwrap();
            let provider = providers[turn % providers.len()];
            self.run(&["log", show, &format!("{provider}-{trick}")]);
            self.run(&["log", "export", &format!("{provider}-{trick}"), "--format", "markdown"]);
            self.run(&["models", "show", &format!("{provider}/{trick}")]);
        }
        self.run(&["login", "--list"]);
        self.run(&["models", "--json"]);
        self.check();
    }

    fn check(&self) {
        for request in self.hostile.seen() {
            let owner =
                KEYS.iter().find(|planted| request.path.starts_with(&format!("/p/{}/", planted.provider)));
            let owner = owner.unwrap_or_else(|| panic!("whose address is this: {request:?}"));
            assert_eq!(request.key(), Some(owner.key().as_str()), "{request:?}");
            for planted in &KEYS {
                // Its own key, once, in its header; what it gave away does not come back with the history.
                let own = usize::from(planted.provider == owner.provider);
                assert_eq!(request.headers.matches(&planted.key()).count(), own, "{request:?}");
                assert_eq!(found_in(planted, request.body.as_bytes()), None, "{request:?}");
                assert!(!request.path.contains(planted.rest), "{request:?}");
            }
        }
        let followed = self.elsewhere.accept();
        assert!(followed.is_err(), "somebody went where the provider pointed");
        for done in &self.said {
            assert_eq!(leaks(done.out.as_bytes()), Vec::<String>::new(), "{done:?}");
            assert_eq!(leaks(done.err.as_bytes()), Vec::<String>::new(), "{done:?}");
        }
        let (searched, found) = search(self.world.home());
        assert!(searched >= 5, "only {searched} files were searched");
        assert_eq!(found, Vec::<String>::new());
        assert_eq!(search(&self.world.work()).1, Vec::<String>::new());
    }
}

fn providers(address: SocketAddr) -> String {
    let entry = |planted: &Planted| {
        let provider = planted.provider;
        let mut text = format!("[{provider}]\nbase_url = \"http://{address}/p/{provider}\"\n");
        if let Some(scheme) = planted.scheme {
            text += &format!("scheme = \"{scheme}\"\n");
        }
        match planted.place {
            Place::Env(name) if planted.scheme.is_some() => {
                text += &format!("auth = {{ api_key = {{ env = \"{name}\" }} }}\n");
            }
            Place::File => text += &format!("auth = {{ api_key = {{ file = \"{provider}.key\" }} }}\n"),
            Place::Login if planted.scheme.is_some() => text += "auth = \"api_key\"\n",
            Place::Env(_) | Place::Login => {}
        }
        text
    };
    KEYS.iter().map(entry).collect()
}

/// Searches all files below a directory but those in which the keys are planted; gives how many, and what was found.
fn search(dir: &Path) -> (usize, Vec<String>) {
    let mut searched = 0;
    let mut found = Vec::new();
    for path in files(dir) {
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
            leaks(name.as_bytes()).into_iter().chain(leaks(&bytes)).map(|leak| format!("{name}: {leak}")),
        );
    }
    (searched, found)
}

pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(rows) = fs::read_dir(dir) else { return Vec::new() };
    rows.flat_map(|row| {
        let row = row.unwrap();
        if row.file_type().unwrap().is_dir() { files(&row.path()) } else { vec![row.path()] }
    })
    .collect()
}

/// Which keys are in these bytes, and how.
fn leaks(bytes: &[u8]) -> Vec<String> {
    const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    let unpacked = if bytes.starts_with(&ZSTD) { zstd::decode_all(bytes).unwrap() } else { bytes.to_vec() };
    let found = KEYS.iter().filter_map(|planted| {
        found_in(planted, &unpacked).map(|how| format!("the key of {} {how}", planted.provider))
    });
    found.collect()
}

/// Whether a key, or a good part of one, is in this text: as it is, in escapes, or in the pieces of a stream.
fn found_in(planted: &Planted, bytes: &[u8]) -> Option<&'static str> {
    let text = String::from_utf8_lossy(bytes);
    let parts = parts(planted);
    let within = |text: &str| parts.iter().any(|part| text.contains(part.as_str()));
    if within(&text) {
        return Some("stands there");
    }
    if text.contains("\\u") && within(&unescaped(&unescaped(&text))) {
        return Some("stands there in escapes");
    }
    within(&joined(&text)).then_some("stands there in pieces")
}

/// The beginning, the middle and the end of the part that is random.
fn parts(planted: &Planted) -> [String; 3] {
    const LONG: usize = 12;
    let rest = planted.rest.len();
    [0, (rest - LONG) / 2, rest - LONG].map(|at| planted.rest.get(at..at + LONG).unwrap().to_owned())
}

/// `\uXXXX` undone, wherever it stands.
pub(crate) fn unescaped(text: &str) -> String {
    let mut out = String::new();
    for (index, piece) in text.split("\\u").enumerate() {
        let letter =
            piece.get(..4).and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
        match letter.filter(|_| index > 0) {
            Some(letter) => {
                // One of two backslashes was in front of the other.
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

/// The texts of all deltas, one after the other.
fn joined(text: &str) -> String {
    fn gather(value: &Value, delta: bool, out: &mut String) {
        match value {
            Value::String(text) if delta => out.push_str(text),
            Value::Array(list) => list.iter().for_each(|value| gather(value, false, out)),
            Value::Object(map) => map.iter().for_each(|(name, value)| {
                let delta =
                    ["text", "partial_json", "content", "delta", "arguments"].contains(&name.as_str());
                gather(value, delta, out);
            }),
            _ => {}
        }
    }
    let mut out = String::new();
    for line in text.lines() {
        let line = line.strip_prefix("data: ").unwrap_or(line);
        if let Ok(value) = serde_json::from_str(line) {
            gather(&value, false, &mut out);
        }
    }
    out
}

#[test]
fn no_planted_key_is_left_behind_in_the_first_format() {
    Trap::set().spring(&["anthropic", "hub"]);
}

#[test]
fn no_planted_key_is_left_behind_in_the_second_format() {
    Trap::set().spring(&["openai", "cloud"]);
}

#[test]
fn no_planted_key_is_left_behind_in_the_third_format() {
    Trap::set().spring(&["openrouter", "xai", "groq", "forge"]);
}

#[test]
fn no_planted_key_is_left_behind_in_the_fourth_format() {
    Trap::set().spring(&["google", "gate"]);
}

#[test]
fn a_key_that_a_tool_reads_is_hidden() {
    let mut trap = Trap::set();
    let keys: Vec<String> = KEYS.iter().map(Planted::key).collect();
    trap.world.write("loot.key", &keys.join("\n"));
    let script = "[[turn]]\n[[turn.call]]\ntool = \"Read\"\nargs = { file_path = \"loot.key\" }\n[[turn]]\ntext = \"Yes.\"\n";
    trap.world.write("read.toml", script);
    let done = trap.run(&["exec", "--name", "reader", "--model", "scripted:read.toml", "--json", "read it"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let log = &trap.run(&["log", "export", "reader"]).out;
    let result = log.lines().find(|line| line.contains("\"kind\":\"tool_result\"")).unwrap();
    assert_eq!(result.matches("[secret ").count(), KEYS.len(), "{result}");
    trap.check();
}

#[test]
fn the_planted_keys_are_of_ten_shapes() {
    let mut shapes: Vec<_> =
        KEYS.iter().map(|planted| minke_secrets::shape(&planted.key()).unwrap()).collect();
    shapes.sort_unstable();
    shapes.dedup();
    assert_eq!(shapes.len(), 10);
}

/// Whatever the search is to find, it finds when it is there.
#[test]
fn the_search_would_find_a_key() {
    let world = World::new();
    let dir = world.work().join("deep/er");
    fs::create_dir_all(&dir).unwrap();
    assert_eq!(search(&world.work()), (0, vec![]));
    for planted in &KEYS {
        let key = planted.key();
        let pieces: String =
            key.chars().map(|c| format!("data: {{\"delta\":{{\"text\":\"{c}\"}}}}\n\n")).collect();
        let half: String = key.chars().take(key.len() / 2 + 8).collect();
        for (content, wanted) in [
            (format!("xx{key}yy"), "stands there"),
            (half, "stands there"),
            (escaped(&key), "stands there in escapes"),
            (escaped(&key).replace('\\', "\\\\"), "stands there in escapes"),
            (pieces, "stands there in pieces"),
        ] {
            let wanted = format!("the key of {} {wanted}", planted.provider);
            for bytes in [content.clone().into_bytes(), zstd::encode_all(content.as_bytes(), 0).unwrap()] {
                fs::write(dir.join("left"), bytes).unwrap();
                assert_eq!(search(&world.work()), (1, vec![format!("deep/er/left: {wanted}")]), "{content}");
            }
        }
    }
    fs::write(dir.join("left"), "nothing").unwrap();
    assert_eq!(search(&world.work()), (1, vec![]));
}
