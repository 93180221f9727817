//! Three configured secrets in all input of a pod: output in pieces, files, file names, diffs, pages,
//! arguments, messages, hook output. None remains in the log, in blobs, on the wire, with hooks or in
//! exports; text that looks like an unconfigured key is reported once.

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

use crate::safety::secrets::{list_files, unescape_unicode};
use crate::support::world::{CliWorld, CommandResult, UNSANDBOXED};

/// A provider's key in a variable, one stored by `minke login`, and a variable that commands receive by name.
/// The last one is escaped in JSON; the prefixes are separate, so that no scanner mistakes them for real
/// keys.
const ENV_KEY: (&str, &str) = ("sk-ant-", "api03-Zq8kT2vXw9LmN4pR7sB1cD5fG6hJ0kQ3-AA");
const STORED_KEY: (&str, &str) = ("gsk_", "planted-stored-7hq2lm9xv4bn6zc8kd1p");
const PASSED_SECRET: (&str, &str) = ("pl\"anted", "\\pass-7Hq2Lm9Xv4Bn");

fn secret_values() -> [String; 3] {
    [ENV_KEY, STORED_KEY, PASSED_SECRET].map(|(begin, rest)| format!("{begin}{rest}"))
}

/// Returns the secrets in these bytes, plain or escaped.
fn find_leaks(bytes: &[u8]) -> Vec<String> {
    const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    let unpacked = if bytes.starts_with(&ZSTD) { zstd::decode_all(bytes).unwrap() } else { bytes.to_vec() };
    let text = String::from_utf8_lossy(&unpacked);
    // Plain, then with one and two levels of escapes removed: an object in a text in a line.
    let once = unescape_unicode(&text).replace("\\\"", "\"").replace("\\\\", "\\");
    let twice = once.replace("\\\"", "\"").replace("\\\\", "\\");
    let parts = |value: &String| {
        let letters: Vec<char> = value.chars().collect();
        [&letters[..12], &letters[letters.len() - 12..]].map(|part| part.iter().collect::<String>())
    };
    let held = |value: &&String| {
        parts(value).iter().any(|part| [&*text, &once, &twice].iter().any(|t| t.contains(part)))
    };
    secret_values().iter().filter(held).cloned().collect()
}

fn world_with_secrets() -> CliWorld {
    let world = CliWorld::new();
    let done = world.run_with_stdin(&secret_values()[1], &["login", "groq"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    world
}

fn minke_command(world: &CliWorld) -> Command {
    let [by_env, _, passed] = secret_values();
    let mut command = world.minke_command();
    command
        .env("ANTHROPIC_API_KEY", by_env)
        .env("DEPLOY_TOKEN", passed)
        .env("OTHER_TOKEN", "never-passed-on-1234");
    command
}

fn run_minke(world: &CliWorld, args: &[&str]) -> CommandResult {
    let mut command = minke_command(world);
    command.args(args);
    world.run_command(command)
}

/// Returns all files of a world's runs, except the places for secrets.
fn search_outputs(world: &CliWorld) -> Vec<String> {
    let mut found = Vec::new();
    for path in list_files(world.home_dir()) {
        let belongs = path.parent().is_some_and(|parent| parent.ends_with("config/secrets"));
        if belongs || path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket()) {
            continue;
        }
        let bytes = fs::read(&path).unwrap_or_default();
        let name = path.strip_prefix(world.home_dir()).unwrap().display().to_string();
        found.extend(
            find_leaks(name.as_bytes())
                .into_iter()
                .chain(find_leaks(&bytes))
                .map(|leak| format!("{name}: {leak}")),
        );
    }
    found
}

/// Serves a page with the secrets, and one that redirects to it.
fn serve_pages(loot: String) -> SocketAddr {
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

fn tool_call(tool: &str, args: &Value) -> String {
    let members = args.as_object().unwrap().iter();
    let args: Vec<String> = members.map(|(name, value)| format!("{name} = {value}")).collect();
    format!("[[turn.call]]\ntool = \"{tool}\"\nargs = {{ {} }}\n", args.join(", "))
}

fn plant_files(world: &CliWorld) -> String {
    let [by_env, stored, passed] = secret_values();
    let escaped: String = stored.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
    let loot = format!("findme\n{by_env} {stored}\n{passed}\n{}\n\"{escaped}\"\n", json!(passed));
    world.write_file("loot.txt", &loot);
    world.write_file("conf.env", &format!("A={by_env}\nmode = old\nB={passed}\nC={stored}\n"));
    world.write_file("conf2.env", &format!("A={by_env}\n"));
    world.write_file(&format!("n-{stored}.txt"), "findme\n");
    fs::create_dir(world.work_dir().join(format!("d-{stored}"))).unwrap();
    fs::write(world.work_dir().join(format!("d-{stored}/x")), "there\n").unwrap();
    std::os::unix::fs::symlink(format!("d-{stored}/x"), world.work_dir().join("link")).unwrap();
    loot
}

/// Writes a script that uses every kind of input.
fn write_script(world: &CliWorld) {
    let [by_env, stored, _] = secret_values();
    let pieces = "until test -e go; do sleep 0.02; done; cat loot.txt; cat loot.txt >&2; \
                  while IFS= read -r -n1 c; do printf '%s' \"$c\"; done < loot.txt; \
                  printf '%s' \"${DEPLOY_TOKEN%Xv4Bn}\"; sleep 0.3; printf '%s\\n' Xv4Bn; env; ls";
    let turns = [
        tool_call("Bash", &json!({ "command": pieces })),
        tool_call("Read", &json!({ "file_path": "loot.txt" }))
            + &tool_call("Grep", &json!({ "pattern": "findme|planted", "output_mode": "content" }))
            + &tool_call("Grep", &json!({ "pattern": "findme" }))
            + &tool_call("Glob", &json!({ "pattern": "**/*" }))
            + &tool_call("Read", &json!({ "file_path": "link" }))
            + &tool_call("Read", &json!({ "file_path": "nowhere/[secret ANTHROPIC_API_KEY]" })),
        tool_call("Read", &json!({ "file_path": "conf.env" }))
            + &tool_call("Read", &json!({ "file_path": "conf2.env" })),
        tool_call(
            "Edit",
            &json!({ "file_path": "conf.env", "old_string": "mode = old", "new_string": "mode = new" }),
        ),
        tool_call("Write", &json!({ "file_path": "conf2.env", "content": "nothing\n" })),
        tool_call("Write", &json!({ "file_path": "told.txt", "content": format!("it is {by_env}") }))
            + &tool_call("Bash", &json!({ "command": format!("echo {stored} > told.txt") })),
    ];
    let last = json!(format!("It is {by_env} and {stored}, I think."));
    let turns: String = turns.iter().map(|calls| format!("[[turn]]\n{calls}")).collect();
    world.write_file("s.toml", &format!("{turns}[[turn]]\ntext = {last}\n"));
}

fn write_hooks(world: &CliWorld) -> PathBuf {
    let told = world.home_dir().join("told-by-hooks.jsonl");
    let loot = world.work_dir().join("loot.txt");
    let mut text = format!(
        "[[hook]]\nname = \"no\"\nevent = \"before_tool\"\nwhen = {{ tool = \"Glob\" }}\ncommand = \"cat {} >&2; exit 2\"\n",
        loot.display()
    );
    for event in ["lifecycle", "after_tool", "session_start", "run_end", "ask"] {
        text +=
            &format!("[[hook]]\nname = \"{event}\"\nevent = \"{event}\"\nfile = \"{}\"\n", told.display());
    }
    fs::create_dir_all(world.home_dir().join("config")).unwrap();
    fs::write(world.home_dir().join("config/hooks.toml"), text).unwrap();
    told
}

/// Waits for the socket of the pod `tale`.
fn wait_for_socket(world: &CliWorld) -> UnixStream {
    let dir = world.home_dir().join("run/pods/tale");
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let sockets = list_files(&dir).into_iter().filter(|path| {
            !path.ends_with("proxy.sock")
                && path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket())
        });
        if let Some(Ok(stream)) = sockets.map(UnixStream::connect).find(Result::is_ok) {
            return stream;
        }
        assert!(Instant::now() < until, "no pod listens");
    }
}

/// Returns everything that a pod sends to a passive client.
fn listen_to_pod(world: &CliWorld) -> std::thread::JoinHandle<String> {
    let mut stream = wait_for_socket(world);
    stream.write_all(b"{\"method\":\"hello\",\"params\":{\"subscribe\":\"full\"}}\n").unwrap();
    std::thread::spawn(move || {
        let mut all = String::new();
        drop(stream.read_to_string(&mut all));
        all
    })
}

/// Sends a line and returns the reply.
fn call_method(world: &CliWorld, method: &str, params: &Value) -> Value {
    let mut stream = wait_for_socket(world);
    stream.write_all(b"{\"method\":\"hello\",\"params\":{\"subscribe\":\"none\"}}\n").unwrap();
    writeln!(stream, "{}", json!({ "method": method, "params": params, "id": "q" })).unwrap();
    let mut lines = BufReader::new(stream).lines();
    lines
        .find_map(|line| {
            let line = line.unwrap();
            assert_eq!(find_leaks(line.as_bytes()), Vec::<String>::new(), "{line}");
            let frame: Value = serde_json::from_str(&line).unwrap();
            (frame["event"] == "reply").then_some(frame)
        })
        .unwrap()
}

#[test]
fn no_configured_secret_is_left_anywhere() {
    let world = world_with_secrets();
    plant_files(&world);
    write_script(&world);
    let hooked = write_hooks(&world);
    let mut exec = minke_command(&world);
    exec.args(["exec", "--name", "tale", "--model", "scripted:s.toml", "--json"]).args(UNSANDBOXED);
    exec.args(["--set", "sandbox.env.pass=[\"DEPLOY_TOKEN\"]", "go"]);
    let going = world.start_command(exec);
    let listening = listen_to_pod(&world);
    for (value, more) in secret_values().iter().zip([json!(null), json!({ "deep": [1] }), json!("x")]) {
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
            let reply = call_method(&world, method, &params);
            let error = reply["data"]["error"].to_string();
            assert!(error.contains("invalid_request") && error.contains("the secret "), "{method}: {reply}");
        }
    }
    world.write_file("go", "");
    let live = search_outputs(&world);
    assert_eq!(live, Vec::<String>::new(), "while the pod is live");
    let done = going.wait_for_exit();
    assert_eq!(done.code, Some(0), "{}", done.err.chars().take(2_000).collect::<String>());
    run_minke(&world, &["stop", "tale"]);
    let heard = listening.join().unwrap();
    assert!(!world.work_dir().join("told.txt").exists(), "a call with a secret has no effect");
    assert!(
        world.read_file("conf.env").contains("mode = new")
            && world.read_file("conf.env").contains(&secret_values()[0])
    );

    let lines = run_minke(&world, &["log", "export", "tale"]);
    let told = fs::read_to_string(&hooked).unwrap();
    let shown = ["show", "export"].map(|what| match what {
        "show" => run_minke(&world, &["log", "show", "tale"]),
        _ => run_minke(&world, &["log", "export", "tale", "--format", "markdown"]),
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
        assert_eq!(find_leaks(text.as_bytes()), Vec::<String>::new(), "{what}");
    }
    assert_eq!(search_outputs(&world), Vec::<String>::new());

    // Each kind of input contained them, and they were redacted.
    let log: Vec<Value> = lines.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let result = |call: &str| {
        let found =
            log.iter().find(|entry| entry["kind"] == "tool_result" && entry["item"]["call_id"] == call);
        found.unwrap_or_else(|| panic!("no result of {call}")).to_string()
    };
    let masks = |text: &str| text.matches("[secret ").count();
    assert!(masks(&result("call_0_0")) >= 12, "{}", result("call_0_0"));
    assert!(!result("call_0_0").contains("never-passed-on"), "a variable that is not listed");
    for (call, least) in [("call_1_0", 4), ("call_1_1", 3), ("call_1_2", 1), ("call_1_3", 3)] {
        assert!(masks(&result(call)) >= least, "{call}: {}", result(call));
    }
    for call in ["call_1_5", "call_5_0", "call_5_1"] {
        assert!(
            result(call).contains("contains the secret ") || result(call).contains("contain the secret "),
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
    assert!(masks(&told) > 10, "hooks receive redacted text");
    // Clients receive exactly the log: entry by entry, byte by byte.
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
    // Requests are built from the same entries: a replay builds the same requests.
    world.verify_logs();
}

#[test]
fn a_page_is_shown_without_secrets() {
    let world = world_with_secrets();
    let loot = plant_files(&world);
    let page = serve_pages(loot.lines().collect::<Vec<_>>().join(" "));
    let fetch = |path: &str| tool_call("WebFetch", &json!({ "url": format!("http://{page}/{path}") }));
    let turns = format!("[[turn]]\n{}[[turn]]\n{}[[turn]]\ntext = \"Seen.\"\n", fetch(""), fetch("away"));
    world.write_file("s.toml", &turns);
    let mut args = vec!["exec", "--name", "tale", "--model", "scripted:s.toml", "--json"];
    args.extend(UNSANDBOXED);
    args.extend(["--set", "sandbox.env.pass=[\"DEPLOY_TOKEN\"]"]);
    args.extend(["--set", "web={\"enabled\":true,\"fetch\":{\"allow_private\":true}}", "go"]);
    let done = run_minke(&world, &args);
    assert_eq!(done.code, Some(0), "{}", done.err);
    let log = run_minke(&world, &["log", "export", "tale"]).out;
    let pages: Vec<&str> = log.lines().filter(|line| line.contains("\"kind\":\"tool_result\"")).collect();
    assert_eq!(pages.len(), 2, "{pages:?}");
    assert!(pages[0].matches("[secret ").count() >= 3, "{}", pages[0]);
    for text in [&done.out, &done.err, &log] {
        assert_eq!(find_leaks(text.as_bytes()), Vec::<String>::new());
    }
    assert_eq!(search_outputs(&world), Vec::<String>::new());
}

#[test]
fn input_that_holds_a_secret_is_refused_and_not_logged() {
    let world = world_with_secrets();
    world.write_file("s.toml", "[[turn]]\ntext = \"One.\"\n[[turn]]\ntext = \"Two.\"\n");
    let secret = format!("use {}", secret_values()[0]);
    let begin = ["exec", "--name", "tale", "--model", "scripted:s.toml"];
    let refused = |args: &[&str]| {
        let done = run_minke(&world, args);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(
            done.err.contains("contains the secret") && done.err.contains("ANTHROPIC_API_KEY"),
            "{done:?}"
        );
        assert_eq!(find_leaks(done.err.as_bytes()), Vec::<String>::new());
        assert_eq!(search_outputs(&world), Vec::<String>::new());
    };
    refused(&[&begin[..], &[&secret]].concat());
    refused(
        &[&begin[..], &["--set", &format!("sandbox.env.set={}", json!({ "A": secret_values()[0] })), "go"]]
            .concat(),
    );
    assert_eq!(world.session_count(), 0);
    let done = run_minke(&world, &[&begin[..], &["hello"]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    refused(&["send", "tale", &secret]);
    refused(&["exec", "--resume", "tale", &secret]);
    let done = run_minke(&world, &["exec", "--resume", "tale", "hello"]);
    assert_eq!((done.code, done.out.trim_end()), (Some(0), "Two."), "{done:?}");
    world.verify_logs();
}

#[test]
fn a_question_shows_a_diff_without_secrets() {
    let world = world_with_secrets();
    plant_files(&world);
    fs::write(
        world.home_dir().join("config/policy.toml"),
        "[[rule]]\naction = \"ask\"\ntool = \"Write\"\npath = \"**/conf.env\"\n",
    )
    .unwrap();
    let turns = tool_call(
        "Edit",
        &json!({ "file_path": "conf.env", "old_string": "mode = old", "new_string": "mode = new" }),
    );
    let read = tool_call("Read", &json!({ "file_path": "conf.env" }));
    world.write_file("s.toml", &format!("[[turn]]\n{read}[[turn]]\n{turns}[[turn]]\ntext = \"Asked.\"\n"));
    let pass = ["--set", "sandbox.env.pass=[\"DEPLOY_TOKEN\"]"];
    let args =
        [&["exec", "--name", "tale", "--model", "scripted:s.toml", "--on-ask", "deny"], &pass[..], &["go"]];
    let done = run_minke(&world, &args.concat());
    let log = run_minke(&world, &["log", "export", "tale"]).out;
    let asked =
        log.lines().find(|line| line.contains("\"kind\":\"ask\"")).unwrap_or_else(|| panic!("{done:?}"));
    assert_eq!(asked.matches("[secret ").count() % 3, 0, "{asked}");
    assert!(asked.contains("[secret ") && asked.contains("mode = new"), "{asked}");
    assert_eq!(find_leaks(log.as_bytes()), Vec::<String>::new());
    assert_eq!(search_outputs(&world), Vec::<String>::new());
    assert!(world.read_file("conf.env").contains("mode = old"));
}

/// Unconfigured keys of 22 kinds, in two halves.
const UNKNOWN_KEYS: [(&str, &str); 22] = [
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
    let world = CliWorld::new();
    let text: Vec<String> = UNKNOWN_KEYS.iter().map(|(begin, rest)| format!("{begin}{rest}\n")).collect();
    world.write_file("keys.txt", &text.concat());
    let told = write_hooks(&world);
    let read = tool_call("Read", &json!({ "file_path": "keys.txt" }));
    world.write_file("s.toml", &format!("[[turn]]\n{read}{read}[[turn]]\n{read}[[turn]]\ntext = \"Read.\"\n[[turn]]\n{read}[[turn]]\ntext = \"Again.\"\n"));
    let done = world.run_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    world.run_minke(&["stop", "tale"]);
    // In another process of the pod, too.
    let done = world.run_minke(&["exec", "--resume", "tale", "and again"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    world.run_minke(&["stop", "tale"]);
    let log = world.run_minke(&["log", "export", "tale"]).out;
    let alerts: Vec<&str> = log.lines().filter(|line| line.contains("what looks like a key (")).collect();
    let alerts: Vec<&str> = alerts.into_iter().filter(|line| line.contains("\"kind\":\"alert\"")).collect();
    assert_eq!(alerts.len(), UNKNOWN_KEYS.len(), "{alerts:#?}");
    assert!(alerts.iter().all(|line| line.contains("call_0_")), "{alerts:#?}");
    let kinds: BTreeSet<&str> = alerts.iter().filter_map(|line| line.split(['(', ')']).nth(1)).collect();
    assert_eq!(kinds.len(), UNKNOWN_KEYS.len());
    // The history contains them; hooks and exports get them redacted.
    let told = fs::read_to_string(told).unwrap();
    let page = world.run_minke(&["log", "export", "tale", "--format", "markdown"]).out;
    for (_, rest) in UNKNOWN_KEYS {
        let part: String = rest.chars().take(16).collect();
        assert!(log.contains(&part), "{rest}");
        assert!(!told.contains(&part) && !page.contains(&part), "{rest}");
    }
    assert!(told.contains("[key ghp_…]"));
    world.verify_logs();
}

/// Names that are passed to a command, and names that are not.
#[test]
fn commands_get_an_environment_of_listed_names() {
    const PASSED_NAMES: [&str; 20] = [
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
    const WITHHELD_NAMES: [&str; 48] = [
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
    let world = CliWorld::new();
    let names = |set: &str| {
        set.lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, _)| name.to_owned())
            .collect::<BTreeSet<_>>()
    };
    let env = tool_call("Bash", &json!({ "command": "env > seen.txt" }));
    world.write_file("s.toml", &format!("[[turn]]\n{env}[[turn]]\ntext = \"Seen.\"\n"));
    let run = |more: &[&str], name: &str| {
        let mut command = world.minke_command();
        for name in PASSED_NAMES
            .iter()
            .chain(&WITHHELD_NAMES)
            .filter(|name| **name != "MINKE_HOME" && **name != "BASH_ENV")
        {
            command.env(name, "planted-value-of-it");
        }
        command.env("BASH_ENV", "/dev/null");
        command
            .args(["exec", "--name", name, "--model", "scripted:s.toml"])
            .args(UNSANDBOXED)
            .args(more)
            .arg("go");
        let done = world.run_command(command);
        assert_eq!(done.code, Some(0), "{done:?}");
        names(&world.read_file("seen.txt"))
    };
    let seen = run(&[], "one");
    for name in PASSED_NAMES {
        assert!(seen.contains(name), "{name} does not pass");
    }
    for name in WITHHELD_NAMES {
        assert!(!seen.contains(name), "{name} passes");
    }
    let named = ["NPM_TOKEN", "my_api_key", "KUBECONFIG"];
    let pass = format!("sandbox.env.pass={}", json!(named));
    let seen = run(&["--set", &pass], "two");
    for name in WITHHELD_NAMES {
        assert_eq!(seen.contains(name), named.contains(&name), "{name}");
    }
}
