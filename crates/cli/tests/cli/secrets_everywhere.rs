//! Three configured secrets in everything that a pod takes in: output in pieces, files, names of files, diffs, pages,
//! arguments, inputs, what hooks say. None is left in the log, in blobs, on the wire, with hooks or in exports; and what
//! looks like a key that nobody configured is told once.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::secrets::{files, unescaped};
use crate::world::{Done, UNFENCED, World};

/// A provider's key in a variable, one that `minke login` stored, and a variable that commands are given by name. The
/// last one looks different inside JSON; the beginnings apart, so that no scanner takes them for somebody's.
const BY_ENV: (&str, &str) = ("sk-ant-", "api03-Zq8kT2vXw9LmN4pR7sB1cD5fG6hJ0kQ3-AA");
const STORED: (&str, &str) = ("gsk_", "planted-stored-7hq2lm9xv4bn6zc8kd1p");
const PASSED: (&str, &str) = ("pl\"anted", "\\pass-7Hq2Lm9Xv4Bn");

fn values() -> [String; 3] {
    [BY_ENV, STORED, PASSED].map(|(begin, rest)| format!("{begin}{rest}"))
}

/// Which secrets are in these bytes, as they are or in escapes.
fn leaks(bytes: &[u8]) -> Vec<String> {
    const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    let unpacked = if bytes.starts_with(&ZSTD) { zstd::decode_all(bytes).unwrap() } else { bytes.to_vec() };
    let text = String::from_utf8_lossy(&unpacked);
    // Once as it is, once and twice without escapes: an object inside a text inside a line.
    let once = unescaped(&text).replace("\\\"", "\"").replace("\\\\", "\\");
    let twice = once.replace("\\\"", "\"").replace("\\\\", "\\");
    let parts = |value: &String| {
        let letters: Vec<char> = value.chars().collect();
        [&letters[..12], &letters[letters.len() - 12..]].map(|part| part.iter().collect::<String>())
    };
    let held = |value: &&String| {
        parts(value).iter().any(|part| [&*text, &once, &twice].iter().any(|t| t.contains(part)))
    };
    values().iter().filter(held).cloned().collect()
}

fn world() -> World {
    let world = World::new();
    let done = world.pipe(&values()[1], &["login", "groq"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    world
}

fn command(world: &World) -> Command {
    let [by_env, _, passed] = values();
    let mut command = world.command();
    command
        .env("ANTHROPIC_API_KEY", by_env)
        .env("DEPLOY_TOKEN", passed)
        .env("OTHER_TOKEN", "never-passed-on-1234");
    command
}

fn run(world: &World, args: &[&str]) -> Done {
    let mut command = command(world);
    command.args(args);
    world.done(command)
}

/// Everything that is left of a world's runs, but the places where secrets belong.
fn search(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    for path in files(world.home()) {
        let belongs = path.parent().is_some_and(|parent| parent.ends_with("config/secrets"));
        if belongs || path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket()) {
            continue;
        }
        let bytes = fs::read(&path).unwrap_or_default();
        let name = path.strip_prefix(world.home()).unwrap().display().to_string();
        found.extend(
            leaks(name.as_bytes()).into_iter().chain(leaks(&bytes)).map(|leak| format!("{name}: {leak}")),
        );
    }
    found
}

/// A page that tells everything, and one that sends people to where everything is told.
fn pages(loot: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map(Result::unwrap) {
            let mut first = String::new();
            drop(BufReader::new(&stream).read_line(&mut first));
            let body = format!("<html><title>{loot}</title><p>{loot}</p><a href=\"/x?{loot}\">x</a></html>");
            let answer = if first.contains("/away") {
                let to = loot.split_whitespace().next().unwrap_or_default();
                format!("HTTP/1.1 302 Found\r\nlocation: ftp://{to}/\r\ncontent-length: 0\r\n\r\n")
            } else {
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                )
            };
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    address
}

fn call(tool: &str, args: &Value) -> String {
    let members = args.as_object().unwrap().iter();
    let args: Vec<String> = members.map(|(name, value)| format!("{name} = {value}")).collect();
    format!("[[turn.call]]\ntool = \"{tool}\"\nargs = {{ {} }}\n", args.join(", "))
}

fn plant(world: &World) -> String {
    let [by_env, stored, passed] = values();
    let escaped: String = stored.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
    let loot = format!("findme\n{by_env} {stored}\n{passed}\n{}\n\"{escaped}\"\n", json!(passed));
    world.write("loot.txt", &loot);
    world.write("conf.env", &format!("A={by_env}\nmode = old\nB={passed}\nC={stored}\n"));
    world.write("conf2.env", &format!("A={by_env}\n"));
    world.write(&format!("n-{stored}.txt"), "findme\n");
    fs::create_dir(world.work().join(format!("d-{stored}"))).unwrap();
    fs::write(world.work().join(format!("d-{stored}/x")), "there\n").unwrap();
    std::os::unix::fs::symlink(format!("d-{stored}/x"), world.work().join("link")).unwrap();
    loot
}

/// Every way in that a model has.
fn script(world: &World) {
    let [by_env, stored, _] = values();
    let pieces = "until test -e go; do sleep 0.02; done; cat loot.txt; cat loot.txt >&2; \
                  while IFS= read -r -n1 c; do printf '%s' \"$c\"; done < loot.txt; \
                  printf '%s' \"${DEPLOY_TOKEN%Xv4Bn}\"; sleep 0.3; printf '%s\\n' Xv4Bn; env; ls";
    let turns = [
        call("Bash", &json!({ "command": pieces })),
        call("Read", &json!({ "file_path": "loot.txt" }))
            + &call("Grep", &json!({ "pattern": "findme|planted", "output_mode": "content" }))
            + &call("Grep", &json!({ "pattern": "findme" }))
            + &call("Glob", &json!({ "pattern": "**/*" }))
            + &call("Read", &json!({ "file_path": "link" }))
            + &call("Read", &json!({ "file_path": "nowhere/[secret ANTHROPIC_API_KEY]" })),
        call("Read", &json!({ "file_path": "conf.env" }))
            + &call("Read", &json!({ "file_path": "conf2.env" })),
        call(
            "Edit",
            &json!({ "file_path": "conf.env", "old_string": "mode = old", "new_string": "mode = new" }),
        ),
        call("Write", &json!({ "file_path": "conf2.env", "content": "nothing\n" })),
        call("Write", &json!({ "file_path": "told.txt", "content": format!("it is {by_env}") }))
            + &call("Bash", &json!({ "command": format!("echo {stored} > told.txt") })),
    ];
    let last = json!(format!("It is {by_env} and {stored}, I think."));
    let turns: String = turns.iter().map(|calls| format!("[[turn]]\n{calls}")).collect();
    world.write("s.toml", &format!("{turns}[[turn]]\ntext = {last}\n"));
}

fn hooks(world: &World) -> PathBuf {
    let told = world.home().join("told-by-hooks.jsonl");
    let loot = world.work().join("loot.txt");
    let mut text = format!(
        "[[hook]]\nname = \"no\"\nevent = \"before_tool\"\nwhen = {{ tool = \"Glob\" }}\ncommand = \"cat {} >&2; exit 2\"\n",
        loot.display()
    );
    for event in ["lifecycle", "after_tool", "session_start", "run_end", "ask"] {
        text +=
            &format!("[[hook]]\nname = \"{event}\"\nevent = \"{event}\"\nfile = \"{}\"\n", told.display());
    }
    fs::create_dir_all(world.home().join("config")).unwrap();
    fs::write(world.home().join("config/hooks.toml"), text).unwrap();
    told
}

/// The socket of the pod `tale`, once it is there.
fn socket(world: &World) -> UnixStream {
    let dir = world.home().join("run/pods/tale");
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let sockets = files(&dir).into_iter().filter(|path| {
            !path.ends_with("proxy.sock")
                && path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket())
        });
        if let Some(Ok(stream)) = sockets.map(UnixStream::connect).find(Result::is_ok) {
            return stream;
        }
        assert!(Instant::now() < until, "no pod listens");
    }
}

/// What a pod says to somebody who only listens, up to its end.
fn listen(world: &World) -> std::thread::JoinHandle<String> {
    let mut stream = socket(world);
    stream.write_all(b"{\"method\":\"hello\",\"params\":{\"subscribe\":\"full\"}}\n").unwrap();
    std::thread::spawn(move || {
        let mut all = String::new();
        drop(stream.read_to_string(&mut all));
        all
    })
}

/// Sends a line and gives the reply to it.
fn ask(world: &World, method: &str, params: &Value) -> Value {
    let mut stream = socket(world);
    stream.write_all(b"{\"method\":\"hello\",\"params\":{\"subscribe\":\"none\"}}\n").unwrap();
    writeln!(stream, "{}", json!({ "method": method, "params": params, "id": "q" })).unwrap();
    let mut lines = BufReader::new(stream).lines();
    lines
        .find_map(|line| {
            let line = line.unwrap();
            assert_eq!(leaks(line.as_bytes()), Vec::<String>::new(), "{line}");
            let frame: Value = serde_json::from_str(&line).unwrap();
            (frame["event"] == "reply").then_some(frame)
        })
        .unwrap()
}

#[test]
fn no_configured_secret_is_left_anywhere() {
    let world = world();
    plant(&world);
    script(&world);
    let hooked = hooks(&world);
    let mut exec = command(&world);
    exec.args(["exec", "--name", "tale", "--model", "scripted:s.toml", "--json"]).args(UNFENCED);
    exec.args(["--set", "sandbox.env.pass=[\"DEPLOY_TOKEN\"]", "go"]);
    let going = world.start_command(exec);
    let listening = listen(&world);
    for (value, more) in values().iter().zip([json!(null), json!({ "deep": [1] }), json!("x")]) {
        for (method, params) in [
            (
                "run",
                json!({ "input": [{ "kind": "text", "content": format!("use {value}!") }], "mode": "queue" }),
            ),
            ("notify", json!({ "message": value, "auto_run": false })),
            (
                "call_tool",
                json!({ "name": "Write", "arguments": { "file_path": "told.txt", "content": value } }),
            ),
            ("set", json!({ "goal": { "objective": value } })),
            ("cancel", json!({ "detail": value })),
            ("checkpoint", json!({ "id": "c", "state": { "a": [value, more] } })),
            (value, json!({})),
        ] {
            let reply = ask(&world, method, &params);
            let error = reply["data"]["error"].to_string();
            assert!(error.contains("invalid_request") && error.contains("the secret "), "{method}: {reply}");
        }
    }
    world.write("go", "");
    let live = search(&world);
    assert_eq!(live, Vec::<String>::new(), "while it lives");
    let done = going.end();
    assert_eq!(done.code, Some(0), "{}", done.err.chars().take(2_000).collect::<String>());
    run(&world, &["stop", "tale"]);
    let heard = listening.join().unwrap();
    assert!(!world.work().join("told.txt").exists(), "nothing is done with a secret");
    assert!(world.read("conf.env").contains("mode = new") && world.read("conf.env").contains(&values()[0]));

    let lines = run(&world, &["log", "export", "tale"]);
    let told = fs::read_to_string(&hooked).unwrap();
    let shown = ["show", "export"].map(|what| match what {
        "show" => run(&world, &["log", "show", "tale"]),
        _ => run(&world, &["log", "export", "tale", "--format", "markdown"]),
    });
    for (what, text) in [
        ("exec", &done.out),
        ("exec's stderr", &done.err),
        ("the wire", &heard),
        ("the log", &lines.out),
        ("hooks", &told),
        ("log show", &shown[0].out),
        ("markdown", &shown[1].out),
    ] {
        assert_eq!(leaks(text.as_bytes()), Vec::<String>::new(), "{what}");
    }
    assert_eq!(search(&world), Vec::<String>::new());

    // They were there and were found, in each of the ways in.
    let log: Vec<Value> = lines.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let result = |call: &str| {
        let found =
            log.iter().find(|entry| entry["kind"] == "tool_result" && entry["item"]["call_id"] == call);
        found.unwrap_or_else(|| panic!("no result of {call}")).to_string()
    };
    let masks = |text: &str| text.matches("[secret ").count();
    assert!(masks(&result("call_0_0")) >= 12, "{}", result("call_0_0"));
    assert!(!result("call_0_0").contains("never-passed-on"), "a variable that nobody named");
    for (call, least) in [("call_1_0", 4), ("call_1_1", 3), ("call_1_2", 1), ("call_1_3", 3)] {
        assert!(masks(&result(call)) >= least, "{call}: {}", result(call));
    }
    for call in ["call_1_5", "call_5_0", "call_5_1"] {
        assert!(
            result(call).contains("holds the secret ") || result(call).contains("hold the secret "),
            "{}",
            result(call)
        );
    }
    let diff =
        log.iter().find(|entry| entry["kind"] == "tool_dispatch" && entry["call_id"] == "call_3_0").unwrap();
    assert_eq!(masks(&diff["preview"]["diff"].to_string()), 3, "{diff}");
    let calls = |call: &str| {
        log.iter().find(|e| e["kind"] == "assistant_item" && e["item"]["call_id"] == call).unwrap()
    };
    assert_eq!(masks(&calls("call_5_0").to_string()), 1, "the entry has the secret's name");
    assert!(masks(&told) > 10, "hooks are told the same");
    // What clients hold is what the log holds: entry by entry, byte by byte.
    let logged: BTreeSet<&str> = lines.out.lines().collect();
    let mut same = 0;
    for line in heard.lines().filter(|line| line.starts_with("{\"event\":\"entry\"")) {
        let frame: Value = serde_json::from_str(line).unwrap();
        let seq = frame["data"]["entry"]["seq"].as_u64().unwrap();
        let line_of = logged.iter().find(|one| one.starts_with(&format!("{{\"seq\":{seq},"))).unwrap();
        assert!(line.contains(line_of), "entry {seq} differs");
        same += 1;
    }
    assert!(same > 30, "{same}");
    // What the model was sent is made from the same entries: replay makes the same requests of them.
    world.verify();
}

#[test]
fn a_page_is_shown_without_secrets() {
    let world = world();
    let loot = plant(&world);
    let page = pages(loot.lines().collect::<Vec<_>>().join(" "));
    let fetch = |path: &str| call("WebFetch", &json!({ "url": format!("http://{page}/{path}") }));
    let turns = format!("[[turn]]\n{}[[turn]]\n{}[[turn]]\ntext = \"Seen.\"\n", fetch(""), fetch("away"));
    world.write("s.toml", &turns);
    let mut args = vec!["exec", "--name", "tale", "--model", "scripted:s.toml", "--json"];
    args.extend(UNFENCED);
    args.extend(["--set", "sandbox.env.pass=[\"DEPLOY_TOKEN\"]"]);
    args.extend(["--set", "web={\"enabled\":true,\"fetch\":{\"allow_private\":true}}", "go"]);
    let done = run(&world, &args);
    assert_eq!(done.code, Some(0), "{}", done.err);
    let log = run(&world, &["log", "export", "tale"]).out;
    let pages: Vec<&str> = log.lines().filter(|line| line.contains("\"kind\":\"tool_result\"")).collect();
    assert_eq!(pages.len(), 2, "{pages:?}");
    assert!(pages[0].matches("[secret ").count() >= 3, "{}", pages[0]);
    for text in [&done.out, &done.err, &log] {
        assert_eq!(leaks(text.as_bytes()), Vec::<String>::new());
    }
    assert_eq!(search(&world), Vec::<String>::new());
}

#[test]
fn input_that_holds_a_secret_is_refused_and_not_logged() {
    let world = world();
    world.write("s.toml", "[[turn]]\ntext = \"One.\"\n[[turn]]\ntext = \"Two.\"\n");
    let secret = format!("use {}", values()[0]);
    let begin = ["exec", "--name", "tale", "--model", "scripted:s.toml"];
    let refused = |args: &[&str]| {
        let done = run(&world, args);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.err.contains("holds the secret") && done.err.contains("ANTHROPIC_API_KEY"), "{done:?}");
        assert_eq!(leaks(done.err.as_bytes()), Vec::<String>::new());
        assert_eq!(search(&world), Vec::<String>::new());
    };
    refused(&[&begin[..], &[&secret]].concat());
    refused(
        &[&begin[..], &["--set", &format!("sandbox.env.set={}", json!({ "A": values()[0] })), "go"]].concat(),
    );
    assert_eq!(world.sessions(), 0);
    let done = run(&world, &[&begin[..], &["hello"]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    refused(&["send", "tale", &secret]);
    refused(&["exec", "--resume", "tale", &secret]);
    let done = run(&world, &["exec", "--resume", "tale", "hello"]);
    assert_eq!((done.code, done.out.trim_end()), (Some(0), "Two."), "{done:?}");
    world.verify();
}

#[test]
fn a_question_shows_a_diff_without_secrets() {
    let world = world();
    plant(&world);
    fs::write(
        world.home().join("config/policy.toml"),
        "[[rule]]\naction = \"ask\"\ntool = \"Write\"\npath = \"**/conf.env\"\n",
    )
    .unwrap();
    let turns = call(
        "Edit",
        &json!({ "file_path": "conf.env", "old_string": "mode = old", "new_string": "mode = new" }),
    );
    let read = call("Read", &json!({ "file_path": "conf.env" }));
    world.write("s.toml", &format!("[[turn]]\n{read}[[turn]]\n{turns}[[turn]]\ntext = \"Asked.\"\n"));
    let pass = ["--set", "sandbox.env.pass=[\"DEPLOY_TOKEN\"]"];
    let args =
        [&["exec", "--name", "tale", "--model", "scripted:s.toml", "--on-ask", "deny"], &pass[..], &["go"]];
    let done = run(&world, &args.concat());
    let log = run(&world, &["log", "export", "tale"]).out;
    let asked =
        log.lines().find(|line| line.contains("\"kind\":\"ask\"")).unwrap_or_else(|| panic!("{done:?}"));
    assert_eq!(asked.matches("[secret ").count() % 3, 0, "{asked}");
    assert!(asked.contains("[secret ") && asked.contains("mode = new"), "{asked}");
    assert_eq!(leaks(log.as_bytes()), Vec::<String>::new());
    assert_eq!(search(&world), Vec::<String>::new());
    assert!(world.read("conf.env").contains("mode = old"));
}

/// Keys of 22 kinds that nobody configured, in two halves.
const UNKNOWN: [(&str, &str); 22] = [
    ("ghp_", "1A2b3C4d5E6f7G8h9I0jK1l2M3n4O5p6Q7r8"),
    ("glpat-", "x7Hq2Lm9Xv4Bn6Zc8Kd1"),
    ("xoxb-", "123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx"),
    ("AKIA", "Q3EGR7XW2LKJ5T4B"),
    ("aws_secret_access_key = ", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYx7Hq2Lm9Xv"),
    ("AIza", "SyD3m0K3yTh4tIsN0tR3al1234567890abc"),
    ("sk_live_", "51H7Hq2Lm9Xv4Bn6Zc8Kd1Pf3"),
    ("npm_", "7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2Ag4Je"),
    ("pypi-AgEIcHlwaS5vcmc", "CJDdhNmY3ZTJkLTQ5YzAtNGQ4Yi1iZjE2LTAwMDAwMDAwMDAwMAACKlszLCJ7"),
    ("1234567890", ":AAx7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2A"),
    ("SK", "0f1e2d3c4b5a69788796a5b4c3d2e1f0"),
    ("SG.", "x7Hq2Lm9Xv4Bn6Zc8Kd1Pf.3Rt5Wy0Us2Ag4Je6Ih8No1Mq3x7Hq2Lm9Xv4Bn6Zc8K"),
    ("eyJ", "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLW5vdC1yZWFs"),
    ("postgres://app:", "x7Hq2Lm9Xv@db.internal:5432/app"),
    ("hf_", "QwErTyUiOpAsDfGhJkLzXcVbNm123456"),
    ("xai-", "7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2Ag4Je6Ih8No1Mq3"),
    ("dop_v1_", "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0"),
    ("shpat_", "0f1e2d3c4b5a69788796a5b4c3d2e1f0"),
    ("hvs.", "CAESIJx7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2Ag4Je6"),
    ("dckr_pat_", "x7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5W"),
    ("lin_api_", "x7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2Ag4Je6Ih"),
    (
        "-----BEGIN RSA PRIVATE KEY-----\n",
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\nMIIEvQIBADANBgkqhkiG9w0\n-----END RSA PRIVATE KEY-----",
    ),
];

#[test]
fn a_kind_is_told_once_in_a_session() {
    let world = World::new();
    let text: Vec<String> = UNKNOWN.iter().map(|(begin, rest)| format!("{begin}{rest}\n")).collect();
    world.write("keys.txt", &text.concat());
    let told = hooks(&world);
    let read = call("Read", &json!({ "file_path": "keys.txt" }));
    world.write("s.toml", &format!("[[turn]]\n{read}{read}[[turn]]\n{read}[[turn]]\ntext = \"Read.\"\n[[turn]]\n{read}[[turn]]\ntext = \"Again.\"\n"));
    let done = world.run(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    world.run(&["stop", "tale"]);
    // In another life, too.
    let done = world.run(&["exec", "--resume", "tale", "and again"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    world.run(&["stop", "tale"]);
    let log = world.run(&["log", "export", "tale"]).out;
    let alerts: Vec<&str> = log.lines().filter(|line| line.contains("what looks like a key (")).collect();
    let alerts: Vec<&str> = alerts.into_iter().filter(|line| line.contains("\"kind\":\"alert\"")).collect();
    assert_eq!(alerts.len(), UNKNOWN.len(), "{alerts:#?}");
    assert!(alerts.iter().all(|line| line.contains("call_0_")), "{alerts:#?}");
    let kinds: BTreeSet<&str> = alerts.iter().filter_map(|line| line.split(['(', ')']).nth(1)).collect();
    assert_eq!(kinds.len(), UNKNOWN.len());
    // History keeps them; hooks and exports for people get them masked.
    let told = fs::read_to_string(told).unwrap();
    let page = world.run(&["log", "export", "tale", "--format", "markdown"]).out;
    for (_, rest) in UNKNOWN {
        let part: String = rest.chars().take(16).collect();
        assert!(log.contains(&part), "{rest}");
        assert!(!told.contains(&part) && !page.contains(&part), "{rest}");
    }
    assert!(told.contains("[key ghp_…]"));
    world.verify();
}

/// Names that pass to a command, and names that do not.
#[test]
fn commands_get_an_environment_of_listed_names() {
    const PASS: [&str; 20] = [
        "LANG",
        "LC_ALL",
        "TERM",
        "TZ",
        "USER",
        "LOGNAME",
        "SHELL",
        "COLORTERM",
        "NO_COLOR",
        "CARGO_HOME",
        "RUSTUP_HOME",
        "RUSTFLAGS",
        "GOPATH",
        "GOROOT",
        "JAVA_HOME",
        "NODE_ENV",
        "VIRTUAL_ENV",
        "PYENV_ROOT",
        "CC",
        "MAKEFLAGS",
    ];
    const KEPT: [&str; 48] = [
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "GITHUB_TOKEN",
        "GH_TOKEN",
        "GITLAB_TOKEN",
        "NPM_TOKEN",
        "PYPI_TOKEN",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AZURE_CLIENT_SECRET",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "DATABASE_URL",
        "DATABASE_PASSWORD",
        "PGPASSWORD",
        "MYSQL_PWD",
        "REDIS_URL",
        "SLACK_BOT_TOKEN",
        "STRIPE_SECRET_KEY",
        "TWILIO_AUTH_TOKEN",
        "SENDGRID_API_KEY",
        "CARGO_REGISTRY_TOKEN",
        "CARGO_REGISTRIES_X_TOKEN",
        "HOMEBREW_GITHUB_API_TOKEN",
        "DOCKER_PASSWORD",
        "DOCKER_AUTH_CONFIG",
        "KUBECONFIG",
        "VAULT_TOKEN",
        "SSH_AUTH_SOCK",
        "SSH_AGENT_PID",
        "GPG_AGENT_INFO",
        "SUDO_PASSWORD",
        "my_api_key",
        "MyToken",
        "LC_SECRET",
        "LC_API_KEY",
        "LD_PRELOAD_X",
        "BASH_ENV",
        "ENV",
        "PROMPT_COMMAND",
        "PYTHONSTARTUP",
        "NODE_OPTIONS",
        "GIT_SSH_COMMAND",
        "GIT_ASKPASS",
        "EDITOR",
        "MINKE_HOME",
        "HISTFILE",
        "DBUS_SESSION_BUS_ADDRESS",
    ];
    let world = World::new();
    let names = |set: &str| {
        set.lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, _)| name.to_owned())
            .collect::<BTreeSet<_>>()
    };
    let env = call("Bash", &json!({ "command": "env > seen.txt" }));
    world.write("s.toml", &format!("[[turn]]\n{env}[[turn]]\ntext = \"Seen.\"\n"));
    let run = |more: &[&str], name: &str| {
        let mut command = world.command();
        for name in PASS.iter().chain(&KEPT).filter(|name| **name != "MINKE_HOME" && **name != "BASH_ENV") {
            command.env(name, "planted-value-of-it");
        }
        command.env("BASH_ENV", "/dev/null");
        command
            .args(["exec", "--name", name, "--model", "scripted:s.toml"])
            .args(UNFENCED)
            .args(more)
            .arg("go");
        let done = world.done(command);
        assert_eq!(done.code, Some(0), "{done:?}");
        names(&world.read("seen.txt"))
    };
    let seen = run(&[], "one");
    for name in PASS {
        assert!(seen.contains(name), "{name} does not pass");
    }
    for name in KEPT {
        assert!(!seen.contains(name), "{name} passes");
    }
    let named = ["NPM_TOKEN", "my_api_key", "KUBECONFIG"];
    let pass = format!("sandbox.env.pass={}", json!(named));
    let seen = run(&["--set", &pass], "two");
    for name in KEPT {
        assert_eq!(seen.contains(name), named.contains(&name), "{name}");
    }
}
