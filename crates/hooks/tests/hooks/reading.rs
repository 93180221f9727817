//! `hooks.toml`: good hooks count, bad ones are named with file and line, strict ones never vanish.

use minke_hooks::{Event, Handler, Hooks, Loaded};
use minke_record::Judgement;

use crate::support::{Home, bash};

#[test]
fn every_event_and_handler_is_read() {
    let home = Home::new();
    let mut toml = String::new();
    for event in Event::ALL {
        toml.push_str(&format!("[[hook]]\nevent = \"{event}\"\nname = \"{event} c\"\ncommand = \"true\"\n"));
        toml.push_str(&format!(
            "[[hook]]\nevent = \"{event}\"\nname = \"{event} h\"\nhttp = \"https://example.org/x\"\ntimeout_s = 300\n"
        ));
        if event.observable() {
            toml.push_str(&format!(
                "[[hook]]\nevent = \"{event}\"\nname = \"{event} f\"\nfile = \"/var/log/x.jsonl\"\n"
            ));
            toml.push_str(&format!(
                "[[hook]]\nevent = \"{event}\"\nname = \"{event} s\"\nsocket = \"/run/x.sock\"\n"
            ));
        }
    }
    let loaded = home.loaded(&toml);
    assert_eq!(loaded.problems, Vec::<String>::new());
    assert_eq!(loaded.hooks.len(), 50);
    let steering: Vec<&str> =
        loaded.hooks.iter().filter(|hook| hook.steers()).map(|hook| hook.event.as_str()).collect();
    assert_eq!(steering.len(), 10, "{steering:?}");
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_the_rest_counts() {
    let cases = [
        (
            "event = \"befor_tool\"\ncommand = \"x\"",
            ":5: unknown event `befor_tool` (did you mean `before_tool`?)",
        ),
        ("event = \"ask\"\ncomand = \"x\"", ":6: unknown key `comand` (did you mean `command`?)"),
        ("command = \"x\"", ":4: a hook needs an `event`"),
        ("event = 3\ncommand = \"x\"", ":5: `event` is a text"),
        ("event = \"ask\"", ":4: a hook needs one of command, http, file, socket"),
        ("event = \"ask\"\ncommand = \"x\"\nfile = \"/x\"", "has command and file"),
        ("event = \"ask\"\ncommand = \"\"", ":6: `command` has 1 to"),
        (
            "event = \"ask\"\nhttp = \"http://example.org\"",
            ":6: `http`: plain http goes only to this machine",
        ),
        ("event = \"ask\"\nfile = \"x.jsonl\"", ":6: `file` is an absolute path"),
        ("event = \"ask\"\nfile = \"/a/../b\"", "absolute path without `..`"),
        (
            "event = \"ask\"\ncommand = \"x\"\ntimeout_s = 0",
            ":7: `timeout_s` is a whole number from 1 to 300",
        ),
        ("event = \"ask\"\ncommand = \"x\"\ntimeout_s = 301", "from 1 to 300"),
        ("event = \"ask\"\ncommand = \"x\"\ntimeout_s = 1.5", "from 1 to 300"),
        ("event = \"ask\"\ncommand = \"x\"\nname = \"\"", ":7: `name` has 1 to 64"),
        ("event = \"run_end\"\ncommand = \"x\"\nstrict = true", ":7: `run_end` cannot steer"),
        (
            "event = \"before_tool\"\nfile = \"/x\"\nstrict = true",
            "a file gives no answer, so it cannot be strict",
        ),
        ("event = \"shell_env\"\nfile = \"/x\"", "needs an answer, which a file does not give"),
        ("event = \"run_end\"\ncommand = \"x\"\nwhen = { tool = \"Bash\" }", ":7: `run_end` has no tool"),
        (
            "event = \"ask\"\ncommand = \"x\"\nwhen = { tol = \"Bash\" }",
            "unknown condition `tol` (did you mean `tool`?)",
        ),
        ("event = \"ask\"\ncommand = \"x\"\nwhen = { tool = \"[\" }", ":7: `tool`:"),
        ("event = \"ask\"\ncommand = \"x\"\nwhen = { tool = [] }", "1 to 64 patterns"),
        ("event = \"ask\"\ncommand = \"x\"\nwhen = { tool = 3 }", "is a pattern such as"),
        ("event = \"ask\"\ncommand = \"x\"\nwhen = \"Bash\"", "`when` is a table"),
        (
            "event = \"ask\"\ncommand = \"x\"\nname = \"first\"",
            "the name `first` is taken by the hook at line 1",
        ),
    ];
    let home = Home::new();
    for (bad, wanted) in cases {
        // The bad one begins at line 4.
        let first = "[[hook]]\nevent = \"ask\"\ncommand = \"x\"";
        let first = if bad.contains("first") {
            first.replace("\ncommand", "\nname = \"first\"\ncommand")
        } else {
            first.to_owned()
        };
        let toml = format!("{first}\n[[hook]]\n{bad}\n\n[[hook]]\nevent = \"ask\"\ncommand = \"y\"\n");
        let loaded = home.loaded(&toml);
        let said = loaded.problems.join("\n");
        assert!(said.contains(wanted) && said.contains("hooks.toml:"), "{bad}\nwanted {wanted}\ngot {said}");
        let strict = bad.contains("strict = true") && bad.contains("before_tool");
        let good = loaded.hooks.iter().filter(|hook| !matches!(hook.handler, Handler::Broken(_))).count();
        assert_eq!(good, 2, "{bad}");
        assert_eq!(loaded.hooks.len(), 2 + usize::from(strict), "{bad}");
    }
}

#[tokio::test]
async fn a_strict_hook_that_cannot_be_read_blocks() {
    let home = Home::new();
    let bad = [
        // Its event is known: that one is blocked.
        ("[[hook]]\nevent = \"before_tool\"\ncomand = \"x\"\nstrict = true\n", Judgement::Deny),
        ("[[hook]]\nevent = \"before_tool\"\ncommand = \"x\"\nstrict = \"yes\"\n", Judgement::Deny),
        // Nobody knows which: all are.
        ("[[hook]]\nevent = \"befor_tool\"\ncommand = \"x\"\nstrict = true\n", Judgement::Deny),
        ("[[hooks]]\nevent = \"before_tool\"\ncommand = \"x\"\nstrict = true\n", Judgement::Deny),
        ("[hook]\nevent = \"before_tool\"\ncommand = \"x\"\nstrict = true\n", Judgement::Deny),
        ("[[hook]]\nevent = \"before_tool\"\nstrict = true\n]", Judgement::Deny),
        // Of another event, or not strict: left out and named.
        ("[[hook]]\nevent = \"user_prompt\"\ncomand = \"x\"\nstrict = true\n", Judgement::Allow),
        ("[[hook]]\nevent = \"before_tool\"\ncomand = \"x\"\nstrict = false\n", Judgement::Allow),
        ("[[hook]]\nevent = \"before_tool\"\n]", Judgement::Allow),
    ];
    for (toml, wanted) in bad {
        let loaded = home.loaded(toml);
        assert!(!loaded.problems.is_empty(), "{toml}");
        let steered = Hooks::new(loaded, home.around()).ask(&bash()).await;
        assert_eq!(steered.outcome, wanted, "{toml}: {steered:?}");
        if wanted == Judgement::Deny {
            let reason = steered.reason.unwrap();
            assert!(reason.contains("hooks.toml:"), "{reason}");
        }
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_read_blocks_and_one_that_is_not_there_says_nothing() {
    let home = Home::new();
    let none = Loaded::default().user(&home.at("config/none.toml"));
    assert!(none.hooks.is_empty() && none.problems.is_empty());
    let huge = home.at("config/huge.toml");
    std::fs::File::create(&huge).unwrap().set_len(10 << 30).unwrap();
    let fifo = home.at("config/fifo.toml");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    let binary = home.at("config/binary.toml");
    std::fs::write(&binary, [0xff, 0xfe]).unwrap();
    for file in [huge, fifo, binary, home.at("config")] {
        let loaded = Loaded::default().user(&file);
        assert_eq!(loaded.problems.len(), 1, "{}", file.display());
        let steered = Hooks::new(loaded, home.around()).ask(&bash()).await;
        assert_eq!(steered.outcome, Judgement::Deny, "{}", file.display());
    }
}

#[test]
fn there_are_only_so_many() {
    let home = Home::new();
    let toml = "[[hook]]\nevent = \"ask\"\ncommand = \"true\"\n".repeat(70);
    let loaded = home.loaded(&toml);
    assert_eq!(loaded.hooks.len(), 64);
    assert_eq!(loaded.problems.len(), 6);
}
