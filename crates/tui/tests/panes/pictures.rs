//! Every pane: full, empty, filtered, and in areas that are too small.

use minke_record::{Entry, SessionId, TaskStatus, line};
use minke_tui::paint::{Theme, ThemeName};
use minke_tui::panes::{
    AskRow, AsksPane, ContextPane, DiffPane, HelpPane, HelpRow, PodsPane, SettingRow, SettingsPane,
    TasksPane, ThreadRow, ThreadsPane,
};
use minke_view::{AskCard, ContextUsage, PodRow, SessionChanges, SessionStatus, TaskRow};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde_json::{Value, json};

use crate::support::{assert_golden, screen_text};

fn sample_session(n: u8) -> SessionId {
    format!("01970000-0000-7000-8000-0000000000{n:02x}").parse().expect("it is an id")
}

fn sample_entry(seq: u64, kind: &Value) -> Entry {
    let mut object = json!({ "seq": seq, "ts": 1_000 + seq });
    let fields = object.as_object_mut().expect("it is one");
    fields.extend(kind.as_object().expect("it is one").clone());
    fields.insert("h".to_owned(), json!("0".repeat(32)));
    line::parse_entry(&object.to_string()).expect("it is an entry")
}

fn sample_pods() -> PodsPane {
    let pod = |n: u8, name: &str, parent: Option<u8>, state: &str, activity: &str| PodRow {
        parent: parent.map(sample_session),
        state: state.to_owned(),
        activity: activity.to_owned(),
        scope: format!("write:/w/{name}"),
        tokens: 1_234 * u64::from(n),
        cost_micros: (n != 3).then_some(43_000 * u64::from(n)),
        is_live: n != 6,
        ..PodRow::new(sample_session(n), name)
    };
    let mut asks_pane = pod(4, "builder", Some(1), "waiting", "Bash rm -r build");
    asks_pane.asks = 1;
    PodsPane::new(vec![
        pod(1, "planner", None, "running", "waits for children"),
        pod(2, "docs", None, "idle", ""),
        pod(3, "tester-with-a-rather-long-name", Some(1), "running", "Bash cargo nextest run --workspace"),
        asks_pane,
        pod(5, "bench", Some(4), "paused", "\u{1b}[31mhostile\u{7} words\nof a model"),
        pod(6, "old", Some(1), "crashed", ""),
    ])
}

#[test]
fn pods_stand_below_their_parents_and_who_asks_comes_first() {
    let pods = sample_pods();
    assert_golden("pods", |buf, area, theme| pods.draw_pane(buf, area, theme));
}

#[test]
fn whoever_is_chosen_stays_chosen() {
    let mut pods = sample_pods();
    pods.move_selection(3);
    let chosen = pods.selected_pod().expect("a pod is selected").clone();
    let mut rows = vec![PodRow { asks: 3, ..PodRow::new(sample_session(9), "newcomer") }];
    rows.extend((1..=6).map(|n| PodRow { ..PodRow::new(sample_session(n), &format!("p{n}")) }));
    pods.set_rows(rows);
    assert_eq!(pods.selected_pod().map(|pod| pod.session), Some(chosen.session));
    pods.move_selection(-100);
    assert_eq!(pods.selected_pod().map(|pod| pod.name.as_str()), Some("newcomer"));
    "p4".chars().for_each(|letter| pods.selection_mut().push_filter_char(letter));
    assert_eq!(pods.selected_pod().map(|pod| pod.name.as_str()), Some("p4"));
    pods.selection_mut().push_filter_char('#');
    assert_eq!(pods.selected_pod(), None);
    assert!(pods_screen(&pods).contains("no matches"));
    assert!(pods_screen(&PodsPane::default()).contains("no running pods"));
}

fn pods_screen(pods: &PodsPane) -> String {
    screen_text((80, 24), |buf, area| pods.draw_pane(buf, area, &Theme::default()))
}

#[test]
fn threads_are_listed_with_a_look_into_the_chosen_one() {
    let row = |n: u8, name: &str, preview: &str, updated_at| ThreadRow {
        session: sample_session(n),
        name: name.to_owned(),
        summary: preview.to_owned(),
        state: if n == 1 { "interrupted" } else { "idle" }.to_owned(),
        cwd: "/home/u/project".to_owned(),
        updated_at,
        is_archived: n == 3,
    };
    let long = "Why does the build fail on the second run?\nIt says: “cannot find crate”, and then 日本語 and 🎉 \
                follow, which are wide, and a long line that must be wrapped somewhere.";
    let mut threads = ThreadsPane::new(vec![
        row(1, "fix-the-build", long, 9_990_000),
        row(2, "docs", "Write the manual", 5_000_000),
        row(3, "old-one", "Something from long ago", 0),
    ]);
    assert_golden("threads", |buf, area, theme| threads.draw_pane(buf, area, 10_000_000, theme));
    threads.move_selection(1);
    assert_eq!(threads.selected_thread().map(|row| row.name.as_str()), Some("docs"));
    "fix".chars().for_each(|letter| threads.selection_mut().push_filter_char(letter));
    assert_eq!(threads.selected_thread().map(|row| row.name.as_str()), Some("fix-the-build"));
    // Search results match by their contents, not by their rows.
    threads.set_rows(vec![row(2, "docs", "… prefix …", 1)], true);
    assert_eq!(threads.selected_thread().map(|row| row.name.as_str()), Some("docs"));
}

#[test]
fn tasks_say_how_far_they_are() {
    let task = |id, subject: &str, status| TaskRow { id, subject: subject.to_owned(), status };
    let standing = SessionStatus {
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
        ..SessionStatus::default()
    };
    assert_golden("tasks", |buf, area, theme| TasksPane::default().draw_pane(buf, area, &standing, theme));
    let none = screen_text((40, 12), |buf, area| {
        TasksPane::default().draw_pane(buf, area, &SessionStatus::default(), &Theme::default());
    });
    assert!(none.contains("no tasks"), "{none}");
}

fn sample_changes() -> SessionChanges {
    let mut changes = SessionChanges::new();
    let mut seq = 0;
    let mut edit = |path: &str, diff: &str| {
        let call = format!("c{seq}");
        let dispatch = json!({
            "kind": "tool_dispatch", "call_id": call, "tool": "Edit", "class": "verifiable", "action": {},
            "verdict": { "outcome": "allow", "reason": "r" },
            "preview": { "path": path, "after": "h", "diff": diff },
        });
        changes.apply_entry(&sample_entry(seq, &dispatch));
        let item = json!({ "kind": "tool_result", "call_id": call, "summary": "s" });
        changes.apply_entry(&sample_entry(
            seq + 1,
            &json!({ "kind": "tool_result", "item": item, "outcome": "done" }),
        ));
        seq += 2;
    };
    edit("/w/src/parser.rs", "@@ -1,3 +1,3 @@\n fn parse() {\n-    let old = 1;\n+    let new = 1;\n }\n");
    edit("/w/a/very/long/path/that/does/not/fit/into/the/column/file.rs", "@@ -0,0 +1 @@\n+new\n");
    edit("/w/src/parser.rs", "@@ -9 +9 @@\n-gone\n+came\u{1b}]0;title\u{7}\n");
    changes
}

#[test]
fn everything_that_was_changed_is_shown_file_by_file() {
    let mut pane = DiffPane::new(sample_changes());
    assert_golden("diff", |buf, area, theme| pane.draw_pane(buf, area, theme));
    pane.move_file(1);
    assert!(pane.selected_file().is_some_and(|file| file.path.ends_with("file.rs")));
    pane.scroll_by(1_000);
    let shown = screen_text((40, 12), |buf, area| pane.draw_pane(buf, area, &Theme::default()));
    assert!(shown.contains("new"), "{shown}");
    let none = screen_text((40, 12), |buf, area| DiffPane::default().draw_pane(buf, area, &Theme::default()));
    assert!(none.contains("no files"), "{none}");
}

#[test]
fn the_window_is_shown_by_what_fills_it() {
    let mut context = ContextUsage::new();
    let start = json!({
        "kind": "segment_start", "segment": 0, "reason": "initial", "system_prompt": "p".repeat(40_000),
        "tools": [{ "name": "Bash", "description": "d".repeat(20_000), "schema": {} }], "config": {}, "history": [
            { "kind": "message", "role": "user", "content": [{ "kind": "text", "text": "i".repeat(4_000) }] },
            { "kind": "message", "role": "assistant", "content": [{ "kind": "text", "text": "r".repeat(90_000) }] },
        ], "carry": { "blob": "b", "bytes": 1 },
    });
    context.apply_entry(&sample_entry(0, &start));
    context.apply_entry(&sample_entry(
        1,
        &json!({ "kind": "llm_usage", "call": 0, "input": 50_000, "output": 400 }),
    ));
    assert_golden("context", |buf, area, theme| {
        ContextPane::default().draw_pane(buf, area, &context, 200_000, theme)
    });
    let unknown = screen_text((80, 24), |buf, area| {
        ContextPane::default().draw_pane(buf, area, &ContextUsage::new(), 0, &Theme::default());
    });
    assert!(unknown.contains("not counted tokens yet"), "{unknown}");
}

fn ask_row(n: u8, command: &str) -> AskRow {
    let ask = json!({
        "id": format!("01970000-0000-7000-8000-0000000000{n:02x}"), "ask": "approval",
        "options": ["approved", "approved_for_session", "denied", "abort"],
        "subject": {
            "call_id": "c", "digest": "d", "tool": "Bash", "text": command, "cwd": "/w",
            "action": { "command": command, "side_effects": true },
            "verdict": { "outcome": "ask", "rule": "ask all", "layer": "user", "reason": "no rule decides", "sandbox": "landlock" },
        },
    });
    let ask = serde_json::from_value(ask).expect("it is an ask");
    let card_lines = AskCard { ask, pod: None, socket: None, answer: None, closed: false };
    AskRow { session: sample_session(n), pod: format!("pod-{n}"), asked_at: 940_000, card_lines }
}

#[test]
fn questions_of_all_pods_are_in_one_place() {
    let mut asks =
        AsksPane::new(vec![ask_row(1, "rm -r build"), ask_row(2, "git push\n--force"), ask_row(3, "true")]);
    assert_golden("asks", |buf, area, theme| asks.draw_pane(buf, area, 1_000_000, theme));
    asks.move_selection(1);
    let chosen = asks.selected_row().expect("one is").card_lines.ask.id;
    // A new ask before it does not change the selection.
    asks.set_rows(vec![ask_row(7, "new"), ask_row(1, "rm -r build"), ask_row(2, "git push\n--force")]);
    assert_eq!(asks.selected_row().map(|row| row.card_lines.ask.id), Some(chosen));
    asks.select_ask(ask_row(7, "new").card_lines.ask.id);
    assert_eq!(asks.selected_row().map(|row| row.pod.as_str()), Some("pod-7"));
    // Content that does not fit can be scrolled and is counted.
    let long: String = (0..40).map(|n| format!("echo {n}\n")).collect();
    let mut asks = AsksPane::new(vec![ask_row(1, &long)]);
    let at = |asks: &mut AsksPane| {
        screen_text((40, 12), |buf, area| asks.draw_pane(buf, area, 1_000_000, &Theme::default()))
    };
    let shown = at(&mut asks);
    assert!(shown.contains("echo 3") && shown.contains("lines hidden"), "{shown}");
    asks.scroll_card(1_000);
    let shown = at(&mut asks);
    assert!(shown.contains("why:") && shown.contains("y once") && !shown.contains("$ echo"), "{shown}");
    let none = screen_text((40, 12), |buf, area| {
        AsksPane::default().draw_pane(buf, area, 1_000_000, &Theme::default())
    });
    assert!(none.contains("no open questions"), "{none}");
}

#[test]
fn help_can_be_searched() {
    let row = |keys: &str, says: &str, place: &str, name: &str| HelpRow {
        keys: keys.to_owned(),
        description: says.to_owned(),
        context: place.to_owned(),
        config_name: name.to_owned(),
    };
    let mut help = HelpPane::new(vec![
        row("ctrl-p", "pods", "", "pods"),
        row("ctrl-enter, alt-s", "steer the run", "composer", "steer"),
        row("/compact", "make the conversation shorter", "", ""),
    ]);
    assert_golden("help", |buf, area, theme| help.draw_pane(buf, area, theme));
    "steer".chars().for_each(|letter| help.selection_mut().push_filter_char(letter));
    assert_eq!(help.selected_row().map(|row| row.config_name.as_str()), Some("steer"));
}

#[test]
fn settings_turn_round() {
    let row = |name: &str, value: &str, choices: &[&str]| SettingRow {
        name: name.to_owned(),
        value: value.to_owned(),
        allowed_values: choices.iter().map(|choice| (*choice).to_owned()).collect(),
        description: "the purpose".to_owned(),
    };
    let mut settings = SettingsPane::new(vec![
        row("theme", "terminal", &["terminal", "dark", "light"]),
        row("mouse", "off", &["off", "on"]),
        row("fixed", "so", &[]),
    ]);
    assert_golden("settings", |buf, area, theme| settings.draw_pane(buf, area, theme));
    let turned =
        |settings: &mut SettingsPane, forward| settings.cycle_value(forward).map(|row| row.value.clone());
    assert_eq!(turned(&mut settings, true).as_deref(), Some("dark"));
    assert_eq!(turned(&mut settings, false).as_deref(), Some("terminal"));
    assert_eq!(turned(&mut settings, false).as_deref(), Some("light"));
    settings.move_selection(2);
    assert_eq!(turned(&mut settings, true), None);
}

/// Panes work in any area and never draw outside of it.
#[test]
fn every_room_is_large_enough() {
    let (pods, mut asks, mut diff) =
        (sample_pods(), AsksPane::new(vec![ask_row(1, "x")]), DiffPane::new(sample_changes()));
    for theme in ThemeName::ALL.map(Theme::new).into_iter().chain([Theme::screen_reader()]) {
        for (width, height) in [(0, 0), (1, 1), (2, 9), (9, 2), (7, 7), (30, 3)] {
            let whole = Rect { x: 0, y: 0, width: 60, height: 20 };
            let area = Rect { x: 5, y: 3, width, height };
            let mut buf = Buffer::filled(whole, ratatui::buffer::Cell::new("~"));
            pods.draw_pane(&mut buf, area, &theme);
            asks.draw_pane(&mut buf, area, 1_000_000, &theme);
            diff.draw_pane(&mut buf, area, &theme);
            ThreadsPane::default().draw_pane(&mut buf, area, 0, &theme);
            TasksPane::default().draw_pane(&mut buf, area, &SessionStatus::default(), &theme);
            ContextPane::default().draw_pane(&mut buf, area, &ContextUsage::new(), 9, &theme);
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
