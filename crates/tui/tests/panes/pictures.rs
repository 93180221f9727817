//! Every pane, full, empty, narrowed, and in rooms that are too small.

use minke_record::{Entry, SessionId, TaskStatus, line};
use minke_tui::paint::{Theme, ThemeName};
use minke_tui::panes::{
    AskRow, Asks, ContextPane, DiffPane, Help, HelpRow, Pods, Setting, Settings, Tasks, ThreadRow, Threads,
};
use minke_view::{AskCard, Changes, ContextUse, PodRow, Standing, TaskRow};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde_json::{Value, json};

use crate::support::{golden, screen};

fn session(n: u8) -> SessionId {
    format!("01970000-0000-7000-8000-0000000000{n:02x}").parse().expect("it is an id")
}

fn entry(seq: u64, kind: &Value) -> Entry {
    let mut object = json!({ "seq": seq, "ts": 1_000 + seq });
    let fields = object.as_object_mut().expect("it is one");
    fields.extend(kind.as_object().expect("it is one").clone());
    fields.insert("h".to_owned(), json!("0".repeat(32)));
    line::parse(&object.to_string()).expect("it is an entry")
}

fn pods() -> Pods {
    let pod = |n: u8, name: &str, parent: Option<u8>, state: &str, activity: &str| PodRow {
        parent: parent.map(session),
        state: state.to_owned(),
        activity: activity.to_owned(),
        scope: format!("write:/w/{name}"),
        tokens: 1_234 * u64::from(n),
        cost_micros: (n != 3).then_some(43_000 * u64::from(n)),
        live: n != 6,
        ..PodRow::new(session(n), name)
    };
    let mut asking = pod(4, "builder", Some(1), "waiting", "Bash rm -r build");
    asking.asks = 1;
    Pods::new(vec![
        pod(1, "planner", None, "running", "waits for children"),
        pod(2, "docs", None, "idle", ""),
        pod(3, "tester-with-a-rather-long-name", Some(1), "running", "Bash cargo nextest run --workspace"),
        asking,
        pod(5, "bench", Some(4), "paused", "\u{1b}[31mhostile\u{7} words\nof a model"),
        pod(6, "old", Some(1), "crashed", ""),
    ])
}

#[test]
fn pods_stand_below_their_parents_and_who_asks_comes_first() {
    let pods = pods();
    golden("pods", |buf, area, theme| pods.draw(buf, area, theme));
}

#[test]
fn whoever_is_chosen_stays_chosen() {
    let mut pods = pods();
    pods.by(3);
    let chosen = pods.chosen().expect("somebody is").clone();
    let mut rows = vec![PodRow { asks: 3, ..PodRow::new(session(9), "newcomer") }];
    rows.extend((1..=6).map(|n| PodRow { ..PodRow::new(session(n), &format!("p{n}")) }));
    pods.set(rows);
    assert_eq!(pods.chosen().map(|pod| pod.session), Some(chosen.session));
    pods.by(-100);
    assert_eq!(pods.chosen().map(|pod| pod.name.as_str()), Some("newcomer"));
    "p4".chars().for_each(|letter| pods.pick().typed(letter));
    assert_eq!(pods.chosen().map(|pod| pod.name.as_str()), Some("p4"));
    pods.pick().typed('#');
    assert_eq!(pods.chosen(), None);
    assert!(shown(&pods).contains("none fits"));
    assert!(shown(&Pods::default()).contains("no pod lives"));
}

fn shown(pods: &Pods) -> String {
    screen((80, 24), |buf, area| pods.draw(buf, area, &Theme::default()))
}

#[test]
fn threads_are_listed_with_a_look_into_the_chosen_one() {
    let row = |n: u8, name: &str, preview: &str, updated| ThreadRow {
        session: session(n),
        name: name.to_owned(),
        preview: preview.to_owned(),
        state: if n == 1 { "interrupted" } else { "idle" }.to_owned(),
        cwd: "/home/u/project".to_owned(),
        updated,
        archived: n == 3,
    };
    let long = "Why does the build fail on the second run?\nIt says: “cannot find crate”, and then 日本語 and 🎉 \
                follow, which are wide, and a long line that must be wrapped somewhere.";
    let mut threads = Threads::new(vec![
        row(1, "fix-the-build", long, 9_990_000),
        row(2, "docs", "Write the manual", 5_000_000),
        row(3, "old-one", "Something from long ago", 0),
    ]);
    golden("threads", |buf, area, theme| threads.draw(buf, area, 10_000_000, theme));
    threads.by(1);
    assert_eq!(threads.chosen().map(|row| row.name.as_str()), Some("docs"));
    "fix".chars().for_each(|letter| threads.pick().typed(letter));
    assert_eq!(threads.chosen().map(|row| row.name.as_str()), Some("fix-the-build"));
    // What was searched for in whole conversations fits by what was said in them.
    threads.set(vec![row(2, "docs", "… prefix …", 1)], true);
    assert_eq!(threads.chosen().map(|row| row.name.as_str()), Some("docs"));
}

#[test]
fn tasks_say_how_far_they_are() {
    let task = |id, subject: &str, status| TaskRow { id, subject: subject.to_owned(), status };
    let standing = Standing {
        goal: Some("everything is green".to_owned()),
        tasks: vec![
            task(1, "Read the tests", TaskStatus::Completed),
            task(
                2,
                "Write the parser, with every case that the old one had and two that it had not",
                TaskStatus::InProgress,
            ),
            task(3, "Measure", TaskStatus::Pending),
        ],
        ..Standing::default()
    };
    golden("tasks", |buf, area, theme| Tasks::default().draw(buf, area, &standing, theme));
    let none = screen((40, 12), |buf, area| {
        Tasks::default().draw(buf, area, &Standing::default(), &Theme::default());
    });
    assert!(none.contains("no tasks"), "{none}");
}

fn changes() -> Changes {
    let mut changes = Changes::new();
    let mut seq = 0;
    let mut edit = |path: &str, diff: &str| {
        let call = format!("c{seq}");
        let dispatch = json!({
            "kind": "tool_dispatch", "call_id": call, "tool": "Edit", "class": "verifiable", "action": {},
            "verdict": { "outcome": "allow", "reason": "r" },
            "preview": { "path": path, "after": "h", "diff": diff },
        });
        changes.entry(&entry(seq, &dispatch));
        let item = json!({ "kind": "tool_result", "call_id": call, "summary": "s" });
        changes.entry(&entry(seq + 1, &json!({ "kind": "tool_result", "item": item, "outcome": "done" })));
        seq += 2;
    };
    edit("/w/src/parser.rs", "@@ -1,3 +1,3 @@\n fn parse() {\n-    let old = 1;\n+    let new = 1;\n }\n");
    edit("/w/a/very/long/path/that/does/not/fit/into/the/column/file.rs", "@@ -0,0 +1 @@\n+new\n");
    edit("/w/src/parser.rs", "@@ -9 +9 @@\n-gone\n+came\u{1b}]0;title\u{7}\n");
    changes
}

#[test]
fn everything_that_was_changed_is_shown_file_by_file() {
    let mut pane = DiffPane::new(changes());
    golden("diff", |buf, area, theme| pane.draw(buf, area, theme));
    pane.by_files(1);
    assert!(pane.chosen().is_some_and(|file| file.path.ends_with("file.rs")));
    pane.by(1_000);
    let shown = screen((40, 12), |buf, area| pane.draw(buf, area, &Theme::default()));
    assert!(shown.contains("new"), "{shown}");
    let none = screen((40, 12), |buf, area| DiffPane::default().draw(buf, area, &Theme::default()));
    assert!(none.contains("no files"), "{none}");
}

#[test]
fn the_window_is_shown_by_what_fills_it() {
    let mut context = ContextUse::new();
    let start = json!({
        "kind": "segment_start", "segment": 0, "reason": "initial", "system_prompt": "p".repeat(40_000),
        "tools": [{ "name": "Bash", "description": "d".repeat(20_000), "schema": {} }], "config": {}, "history": [
            { "kind": "message", "role": "user", "content": [{ "kind": "text", "text": "i".repeat(4_000) }] },
            { "kind": "message", "role": "assistant", "content": [{ "kind": "text", "text": "r".repeat(90_000) }] },
        ], "carry": { "blob": "b", "bytes": 1 },
    });
    context.entry(&entry(0, &start));
    context.entry(&entry(1, &json!({ "kind": "llm_usage", "call": 0, "input": 50_000, "output": 400 })));
    golden("context", |buf, area, theme| ContextPane::default().draw(buf, area, (&context, 200_000), theme));
    let unknown = screen((80, 24), |buf, area| {
        ContextPane::default().draw(buf, area, (&ContextUse::new(), 0), &Theme::default());
    });
    assert!(unknown.contains("counted nothing yet"), "{unknown}");
}

fn ask(n: u8, command: &str) -> AskRow {
    let ask = json!({
        "id": format!("01970000-0000-7000-8000-0000000000{n:02x}"), "ask": "approval",
        "options": ["approved", "approved_for_session", "denied", "abort"],
        "subject": {
            "call_id": "c", "digest": "d", "tool": "Bash", "text": command, "cwd": "/w",
            "action": { "command": command, "side_effects": true },
            "verdict": { "outcome": "ask", "rule": "ask all", "layer": "user", "reason": "no rule decides", "fence": "full" },
        },
    });
    let ask = serde_json::from_value(ask).expect("it is an ask");
    let card = AskCard { ask, pod: None, socket: None, answer: None, closed: false };
    AskRow { session: session(n), pod: format!("pod-{n}"), since: 940_000, card }
}

#[test]
fn questions_of_all_pods_are_in_one_place() {
    let mut asks = Asks::new(vec![ask(1, "rm -r build"), ask(2, "git push\n--force"), ask(3, "true")]);
    golden("asks", |buf, area, theme| asks.draw(buf, area, 1_000_000, theme));
    asks.by(1);
    let chosen = asks.chosen().expect("one is").card.ask.id;
    // Another question came before it: what is chosen stays what it was.
    asks.set(vec![ask(7, "new"), ask(1, "rm -r build"), ask(2, "git push\n--force")]);
    assert_eq!(asks.chosen().map(|row| row.card.ask.id), Some(chosen));
    asks.choose(ask(7, "new").card.ask.id);
    assert_eq!(asks.chosen().map(|row| row.pod.as_str()), Some("pod-7"));
    // What does not fit is scrolled, and says so.
    let long: String = (0..40).map(|n| format!("echo {n}\n")).collect();
    let mut asks = Asks::new(vec![ask(1, &long)]);
    let at =
        |asks: &mut Asks| screen((40, 12), |buf, area| asks.draw(buf, area, 1_000_000, &Theme::default()));
    let shown = at(&mut asks);
    assert!(shown.contains("echo 3") && shown.contains("lines of it not seen"), "{shown}");
    asks.scroll(1_000);
    let shown = at(&mut asks);
    assert!(shown.contains("why:") && shown.contains("y once") && !shown.contains("$ echo"), "{shown}");
    let none = screen((40, 12), |buf, area| Asks::default().draw(buf, area, 1_000_000, &Theme::default()));
    assert!(none.contains("nobody waits"), "{none}");
}

#[test]
fn help_can_be_searched() {
    let row = |keys: &str, says: &str, place: &str, name: &str| HelpRow {
        keys: keys.to_owned(),
        says: says.to_owned(),
        place: place.to_owned(),
        name: name.to_owned(),
    };
    let mut help = Help::new(vec![
        row("ctrl-p", "pods", "", "pods"),
        row("ctrl-enter, alt-s", "steer the run", "composer", "steer"),
        row("/compact", "make the conversation shorter", "", ""),
    ]);
    golden("help", |buf, area, theme| help.draw(buf, area, theme));
    "steer".chars().for_each(|letter| help.pick().typed(letter));
    assert_eq!(help.chosen().map(|row| row.name.as_str()), Some("steer"));
}

#[test]
fn settings_turn_round() {
    let row = |name: &str, value: &str, choices: &[&str]| Setting {
        name: name.to_owned(),
        value: value.to_owned(),
        choices: choices.iter().map(|choice| (*choice).to_owned()).collect(),
        says: "what it is for".to_owned(),
    };
    let mut settings = Settings::new(vec![
        row("theme", "terminal", &["terminal", "dark", "light"]),
        row("mouse", "off", &["off", "on"]),
        row("fixed", "so", &[]),
    ]);
    golden("settings", |buf, area, theme| settings.draw(buf, area, theme));
    let turned = |settings: &mut Settings, forward| settings.turn(forward).map(|row| row.value.clone());
    assert_eq!(turned(&mut settings, true).as_deref(), Some("dark"));
    assert_eq!(turned(&mut settings, false).as_deref(), Some("terminal"));
    assert_eq!(turned(&mut settings, false).as_deref(), Some("light"));
    settings.by(2);
    assert_eq!(turned(&mut settings, true), None);
}

/// No room is too small, and nothing is drawn outside of it.
#[test]
fn every_room_is_large_enough() {
    let (pods, mut asks, mut diff) = (pods(), Asks::new(vec![ask(1, "x")]), DiffPane::new(changes()));
    for theme in ThemeName::ALL.map(Theme::new).into_iter().chain([Theme::plain()]) {
        for (width, height) in [(0, 0), (1, 1), (2, 9), (9, 2), (7, 7), (30, 3)] {
            let whole = Rect { x: 0, y: 0, width: 60, height: 20 };
            let area = Rect { x: 5, y: 3, width, height };
            let mut buf = Buffer::filled(whole, ratatui::buffer::Cell::new("~"));
            pods.draw(&mut buf, area, &theme);
            asks.draw(&mut buf, area, 1_000_000, &theme);
            diff.draw(&mut buf, area, &theme);
            Threads::default().draw(&mut buf, area, 0, &theme);
            Tasks::default().draw(&mut buf, area, &Standing::default(), &theme);
            ContextPane::default().draw(&mut buf, area, (&ContextUse::new(), 9), &theme);
            for y in 0..whole.height {
                for x in 0..whole.width {
                    let inside = area.contains((x, y).into());
                    let symbol = buf.cell((x, y)).map(ratatui::buffer::Cell::symbol);
                    assert!(inside || symbol == Some("~"), "{width}x{height}: {symbol:?} at {x},{y}");
                }
            }
        }
    }
}
