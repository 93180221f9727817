//! `hooks.toml`: valid hooks are used, invalid ones are reported with file and line, strict ones are never
//! ignored.

use minke_hooks::{HookEvent, HookHandler, HookSet, LoadedHooks};
use minke_record::Judgement;

use crate::support::{HookHome, bash_question};

#[test]
fn every_event_and_handler_is_read() {
    let home = HookHome::new();
    let mut toml = String::new();
    for event in HookEvent::ALL {
        toml.push_str(&format!("[[hook]]\nevent = \"{event}\"\nname = \"{event} c\"\ncommand = \"true\"\n"));
        toml.push_str(&format!(
            "[[hook]]\nevent = \"{event}\"\nname = \"{event} h\"\nhttp = \"https://example.org/x\"\ntimeout_s = 300\n"
        ));
        if event.is_observable() {
            toml.push_str(&format!(
                "[[hook]]\nevent = \"{event}\"\nname = \"{event} f\"\nfile = \"/var/log/x.jsonl\"\n"
            ));
            toml.push_str(&format!(
                "[[hook]]\nevent = \"{event}\"\nname = \"{event} s\"\nsocket = \"/run/x.sock\"\n"
            ));
        }
    }
    let loaded = home.load_toml(&toml);
    assert_eq!(loaded.problems, Vec::<String>::new());
    assert_eq!(loaded.hooks.len(), 50);
    let steering: Vec<&str> =
        loaded.hooks.iter().filter(|hook| hook.is_steering()).map(|hook| hook.event.as_str()).collect();
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
        ("event = 3\ncommand = \"x\"", ":5: `event` must be a string"),
        ("event = \"ask\"", ":4: a hook needs one of command, http, file, socket"),
        ("event = \"ask\"\ncommand = \"x\"\nfile = \"/x\"", "has command and file"),
        ("event = \"ask\"\ncommand = \"\"", ":6: `command` must have 1 to"),
        (
            "event = \"ask\"\nhttp = \"http://example.org\"",
            ":6: `http`: plain http is only allowed to this machine",
        ),
        ("event = \"ask\"\nfile = \"x.jsonl\"", ":6: `file` must be an absolute path"),
        ("event = \"ask\"\nfile = \"/a/../b\"", "absolute path without `..`"),
        (
            "event = \"ask\"\ncommand = \"x\"\ntimeout_s = 0",
            ":7: `timeout_s` must be an integer from 1 to 300",
        ),
        ("event = \"ask\"\ncommand = \"x\"\ntimeout_s = 301", "from 1 to 300"),
        ("event = \"ask\"\ncommand = \"x\"\ntimeout_s = 1.5", "from 1 to 300"),
        ("event = \"ask\"\ncommand = \"x\"\nname = \"\"", ":7: `name` must have 1 to 64"),
        ("event = \"run_end\"\ncommand = \"x\"\nstrict = true", ":7: `run_end` cannot steer"),
        (
            "event = \"before_tool\"\nfile = \"/x\"\nstrict = true",
            "a file cannot answer, so it cannot be strict",
        ),
        ("event = \"shell_env\"\nfile = \"/x\"", "needs an answer, which a file cannot return"),
        ("event = \"run_end\"\ncommand = \"x\"\nwhen = { tool = \"Bash\" }", ":7: `run_end` has no tool"),
        (
            "event = \"ask\"\ncommand = \"x\"\nwhen = { tol = \"Bash\" }",
            "unknown condition `tol` (did you mean `tool`?)",
        ),
        ("event = \"ask\"\ncommand = \"x\"\nwhen = { tool = \"[\" }", ":7: `tool`:"),
        ("event = \"ask\"\ncommand = \"x\"\nwhen = { tool = [] }", "1 to 64 patterns"),
        ("event = \"ask\"\ncommand = \"x\"\nwhen = { tool = 3 }", "must be a pattern such as"),
        ("event = \"ask\"\ncommand = \"x\"\nwhen = \"Bash\"", "`when` must be a table"),
        (
            "event = \"ask\"\ncommand = \"x\"\nname = \"first\"",
            "the name `first` is already used by the hook at line 1",
        ),
    ];
    let home = HookHome::new();
    for (bad, wanted) in cases {
        // The invalid one starts at line 4.
        let first = "[[hook]]\nevent = \"ask\"\ncommand = \"x\"";
        let first = if bad.contains("first") {
            first.replace("\ncommand", "\nname = \"first\"\ncommand")
        } else {
            first.to_owned()
        };
        let toml = format!("{first}\n[[hook]]\n{bad}\n\n[[hook]]\nevent = \"ask\"\ncommand = \"y\"\n");
        let loaded = home.load_toml(&toml);
        let reply = loaded.problems.join("\n");
        assert!(
            reply.contains(wanted) && reply.contains("hooks.toml:"),
            "{bad}\nwanted {wanted}\ngot {reply}"
        );
        let strict = bad.contains("strict = true") && bad.contains("before_tool");
        let good =
            loaded.hooks.iter().filter(|hook| !matches!(hook.handler, HookHandler::Invalid(_))).count();
        assert_eq!(good, 2, "{bad}");
        assert_eq!(loaded.hooks.len(), 2 + usize::from(strict), "{bad}");
    }
}

#[tokio::test]
async fn a_strict_hook_that_cannot_be_read_blocks() {
    let home = HookHome::new();
    let bad = [
        // Its event is known: that one is blocked.
        ("[[hook]]\nevent = \"before_tool\"\ncomand = \"x\"\nstrict = true\n", Judgement::Deny),
        ("[[hook]]\nevent = \"before_tool\"\ncommand = \"x\"\nstrict = \"yes\"\n", Judgement::Deny),
        // The event is unknown: all are blocked.
        ("[[hook]]\nevent = \"befor_tool\"\ncommand = \"x\"\nstrict = true\n", Judgement::Deny),
        ("[[hooks]]\nevent = \"before_tool\"\ncommand = \"x\"\nstrict = true\n", Judgement::Deny),
        ("[hook]\nevent = \"before_tool\"\ncommand = \"x\"\nstrict = true\n", Judgement::Deny),
        ("[[hook]]\nevent = \"before_tool\"\nstrict = true\n]", Judgement::Deny),
        // Another event, or not strict: ignored and reported.
        ("[[hook]]\nevent = \"user_prompt\"\ncomand = \"x\"\nstrict = true\n", Judgement::Allow),
        ("[[hook]]\nevent = \"before_tool\"\ncomand = \"x\"\nstrict = false\n", Judgement::Allow),
        ("[[hook]]\nevent = \"before_tool\"\n]", Judgement::Allow),
    ];
    for (toml, wanted) in bad {
        let loaded = home.load_toml(toml);
        assert!(!loaded.problems.is_empty(), "{toml}");
        let steered = HookSet::new(loaded, home.hook_context()).ask_hooks(&bash_question()).await;
        assert_eq!(steered.outcome, wanted, "{toml}: {steered:?}");
        if wanted == Judgement::Deny {
            let reason = steered.reason.unwrap();
            assert!(reason.contains("hooks.toml:"), "{reason}");
        }
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_read_blocks_and_one_that_is_not_there_says_nothing() {
    let home = HookHome::new();
    let none = LoadedHooks::default().add_user_file(&home.path_of("config/none.toml"));
    assert!(none.hooks.is_empty() && none.problems.is_empty());
    let huge = home.path_of("config/huge.toml");
    std::fs::File::create(&huge).unwrap().set_len(10 << 30).unwrap();
    let fifo = home.path_of("config/fifo.toml");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    let binary = home.path_of("config/binary.toml");
    std::fs::write(&binary, [0xff, 0xfe]).unwrap();
    for file in [huge, fifo, binary, home.path_of("config")] {
        let loaded = LoadedHooks::default().add_user_file(&file);
        assert_eq!(loaded.problems.len(), 1, "{}", file.display());
        let steered = HookSet::new(loaded, home.hook_context()).ask_hooks(&bash_question()).await;
        assert_eq!(steered.outcome, Judgement::Deny, "{}", file.display());
    }
}

#[test]
fn there_are_only_so_many() {
    let home = HookHome::new();
    let toml = "[[hook]]\nevent = \"ask\"\ncommand = \"true\"\n".repeat(70);
    let loaded = home.load_toml(&toml);
    assert_eq!(loaded.hooks.len(), 64);
    assert_eq!(loaded.problems.len(), 6);
}
