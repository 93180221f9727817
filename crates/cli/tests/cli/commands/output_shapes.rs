//! Output shapes and exit codes that scripts rely on.

use serde_json::Value;

use crate::support::http::HostClient;
use crate::support::world::{CliWorld, UNSANDBOXED};

/// Fails unless the object has every key; `shape` names it in the message.
fn assert_has_keys(shape: &str, object: &Value, keys: &[&str]) {
    for key in keys {
        assert!(object.get(key).is_some(), "{shape} has no `{key}`: {object}");
    }
}

#[test]
fn json_outputs_have_the_keys_that_scripts_rely_on() {
    let world = CliWorld::new();
    world.write_file(
        "s.toml",
        "loop = true\n[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"touch made\" }\n[[turn]]\ntext = \"ok\"\n",
    );
    // The ask stays open, so a pod is live while the lists are read.
    let args = ["exec", "--name", "p", "--model", "scripted:s.toml", "--posture", "ask", "--on-ask", "wait"];
    let going = world.start_minke(&[&args[..], &["--unsandboxed", "begin"]].concat());
    let asks = loop {
        let asks = world.run_json(&["asks", "--json"]);
        if !asks.as_array().unwrap().is_empty() {
            break asks;
        }
    };
    assert_has_keys(
        "ask",
        &asks[0],
        &["id", "pod", "session", "kind", "summary", "command", "cwd", "options"],
    );
    assert!(asks[0]["options"].as_array().is_some_and(|options| !options.is_empty()), "{asks}");
    let pods = world.run_json(&["ps", "--json"]);
    let keys = ["name", "session", "state", "activity", "pid", "parent", "scope", "usage", "budget", "asks"];
    assert_has_keys("pod", &pods[0], &keys);
    drop(going);
    world.run_minke(&["stop", "p"]);

    let verified = world.run_json(&["log", "verify", "--json"]);
    assert_has_keys("verification", &verified, &["ok", "sessions"]);
    assert_has_keys("verified session", &verified["sessions"][0], &["id", "entries", "ok", "problems"]);
    let doctor: Value = serde_json::from_str(&world.run_minke(&["doctor", "--json"]).out).unwrap();
    assert_has_keys("doctor", &doctor, &["sandbox", "providers", "jobs_due", "problems"]);
    assert_has_keys(
        "doctor's sandbox",
        &doctor["sandbox"],
        &["backend", "landlock_abi", "userns", "seccomp"],
    );
}

#[test]
fn policy_check_gives_its_shape_and_its_own_exit_codes() {
    let world = CliWorld::new();
    std::fs::create_dir_all(world.home_dir().join("config")).unwrap();
    let rules = "[[rule]]\naction = \"deny\"\ncommand = \"curl\"\n[[rule]]\naction = \"ask\"\ncommand = \"npm publish\"\n";
    std::fs::write(world.home_dir().join("config/policy.toml"), rules).unwrap();
    for (line, code, outcome) in [("ls", 0, "allow"), ("npm publish", 3, "ask"), ("curl x", 4, "deny")] {
        let done = world.run_minke(&["policy", "check", line, "--json"]);
        assert_eq!(done.code, Some(code), "{line}: {done:?}");
        let verdict: Value = serde_json::from_str(&done.out).unwrap();
        assert_has_keys("verdict", &verdict, &["outcome", "rule", "layer", "reason", "commands"]);
        assert_eq!(verdict["outcome"], outcome, "{line}");
    }
}

#[test]
fn profile_check_exits_with_0_or_1() {
    let world = CliWorld::new();
    let good = world.write_file(
        "good.lua",
        "local profile = require(\"minke.profile\")\nreturn profile { description = \"fine\" }\n",
    );
    let bad = world.write_file("bad.lua", "return { posture = 7 }\n");
    let code = |file: &std::path::Path| world.run_minke(&["profile", "check", file.to_str().unwrap()]).code;
    assert_eq!((code(&good), code(&bad)), (Some(0), Some(1)));
}

#[test]
fn a_foreground_host_prints_its_address_for_scripts() {
    let world = CliWorld::new();
    let mut going = world.start_minke(&["host", "--foreground", "--print-address"]);
    let line: Value = serde_json::from_str(&going.wait_for_stdout("token_file")).unwrap();
    let door = HostClient::from_host_file(&world);
    assert_eq!(line["url"], format!("http://{}", door.address));
    assert_eq!(line["socket"], door.address);
    let file = std::path::Path::new(line["token_file"].as_str().unwrap());
    assert_eq!(std::fs::read_to_string(file).unwrap(), format!("{}\n", door.token()));
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(file).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    // Another client asks a running host for the same line.
    let again = world.run_json(&["host", "--ensure", "--print-address"]);
    assert_eq!(again, line);
    drop(going.child.kill());
    drop(going.child.wait());
}

#[test]
fn exec_ends_with_the_documented_codes() {
    let world = CliWorld::new();
    let script = |name: &str, text: &str| {
        world.write_file(name, text);
        format!("scripted:{name}")
    };
    let text = script("text.toml", "loop = true\n[[turn]]\ntext = \"ok\"\n");
    let shell = script(
        "shell.toml",
        "loop = true\n[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"touch made\" }\n[[turn]]\ntext = \"ok\"\n",
    );
    let code = |args: &[&str]| world.run_minke(&[&["exec", "--model"], args].concat()).code;
    assert_eq!(code(&[&[text.as_str()], &UNSANDBOXED[..], &["hi"]].concat()), Some(0), "done");
    assert_eq!(code(&[&text, "--posture", "unheard-of", "hi"]), Some(2), "usage");
    let asking = [&shell, "--unsandboxed", "--posture", "ask", "--on-ask", "fail", "hi"];
    assert_eq!(code(&asking), Some(3), "an ask without an answer");
    assert_eq!(code(&[&text, "--budget", "turns=0", "hi"]), Some(4), "the budget is used up");
}
