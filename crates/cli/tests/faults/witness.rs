//! Entries sent to clients, from the bytes that left the pod, and entries in the log.
//!
//! Here: reading both and comparing them byte for byte. Elsewhere: collecting the bytes (the shim), running
//! (`point`).

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Entries by number, as the exact bytes of their line.
pub(crate) type NumberedLines = BTreeMap<u64, String>;

#[derive(Deserialize)]
struct SentFrame<'a> {
    event: &'a str,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct SentEntry<'a> {
    #[serde(borrow)]
    entry: &'a RawValue,
}

#[derive(Deserialize)]
struct SentSnapshot<'a> {
    #[serde(borrow)]
    entries: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct NumberedEntry {
    seq: u64,
}

fn entry_number(line: &str) -> u64 {
    serde_json::from_str::<NumberedEntry>(line).expect("an entry has a number").seq
}

/// Returns every entry that left a process over a socket, alone or in a snapshot. Ignores a cut last line:
/// the process died while sending it, so no client received it.
pub(crate) fn sent_entries(shim_dir: &Path) -> NumberedLines {
    let mut lines = NumberedLines::new();
    for stream in std::fs::read_dir(shim_dir.join("seen")).expect("the shim's directory exists") {
        let bytes = std::fs::read(stream.expect("it can be listed").path()).expect("it can be read");
        let text = String::from_utf8_lossy(&bytes);
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            // The readiness line and requests of clients also travel over sockets; they are not frames.
            let Ok(SentFrame { event, data: Some(data) }) = serde_json::from_str::<SentFrame<'_>>(line)
            else {
                continue;
            };
            match event {
                "entry" => {
                    let data: SentEntry<'_> =
                        serde_json::from_str(data.get()).expect("an entry frame has an entry");
                    lines.insert(entry_number(data.entry.get()), data.entry.get().to_owned());
                }
                "snapshot" => {
                    let data: SentSnapshot<'_> =
                        serde_json::from_str(data.get()).expect("a snapshot has entries");
                    lines.extend(
                        data.entries.iter().map(|entry| (entry_number(entry.get()), entry.get().to_owned())),
                    );
                }
                _ => {}
            }
        }
    }
    lines
}

/// Returns every complete step of a session's log, without an incomplete last one.
pub(crate) fn logged_entries(session: &Path) -> NumberedLines {
    let mut files: Vec<_> = std::fs::read_dir(session)
        .expect("a session's directory can be listed")
        .map(|file| file.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "jsonl"))
        .collect();
    // `log.jsonl` comes before `log.0001.jsonl`.
    files.sort_by_key(|path| (path.file_name().map_or(0, std::ffi::OsStr::len), path.clone()));
    let mut lines = NumberedLines::new();
    let mut step = Vec::new();
    for file in files {
        let text =
            String::from_utf8(std::fs::read(&file).expect("a log can be read")).expect("a log is UTF-8");
        for line in text.split_inclusive('\n') {
            let Some(line) = line.strip_suffix('\n') else { break };
            let whole: serde_json::Value =
                serde_json::from_str(line).expect("a whole line of the log is JSON");
            step.push((whole["seq"].as_u64().expect("an entry has a number"), line.to_owned()));
            if whole["more"] != true {
                lines.extend(step.drain(..));
            }
        }
        step.clear();
    }
    lines
}

/// Returns the sent entries that are missing or different in the log.
pub(crate) fn lost_entries(seen: &NumberedLines, logged: &NumberedLines) -> Vec<String> {
    let mut told = Vec::new();
    for (seq, line) in seen {
        match logged.get(seq) {
            Some(kept) if kept == line => {}
            Some(kept) => told.push(format!("LOSS: entry {seq} was sent as {line}\n      and is now {kept}")),
            None => told.push(format!("LOSS: entry {seq} was sent and is gone: {line}")),
        }
    }
    told
}

/// Returns how many calls of the tool were dispatched and how many ended as `done`, from the log.
pub(crate) fn count_calls(logged: &NumberedLines, tool: &str) -> (usize, usize) {
    let entries: Vec<serde_json::Value> =
        logged.values().map(|line| serde_json::from_str(line).expect("a line of the log is JSON")).collect();
    let ids: Vec<&serde_json::Value> = entries
        .iter()
        .filter(|entry| entry["kind"] == "tool_dispatch" && entry["tool"] == tool)
        .map(|entry| &entry["call_id"])
        .collect();
    let done = entries
        .iter()
        .filter(|entry| entry["kind"] == "tool_result" && entry["outcome"] == "done")
        .filter(|entry| ids.contains(&&entry["item"]["call_id"]))
        .count();
    (ids.len(), done)
}

#[test]
fn a_missing_and_a_changed_entry_are_losses() {
    let lines = |texts: &[&str]| -> NumberedLines {
        texts.iter().map(|text| (entry_number(text), (*text).to_owned())).collect()
    };
    let sent = lines(&[r#"{"seq":0,"h":"a"}"#, r#"{"seq":1,"h":"b"}"#]);
    assert!(
        lost_entries(
            &sent,
            &lines(&[r#"{"seq":0,"h":"a"}"#, r#"{"seq":1,"h":"b"}"#, r#"{"seq":2,"h":"c"}"#])
        )
        .is_empty()
    );
    assert_eq!(lost_entries(&sent, &lines(&[r#"{"seq":0,"h":"a"}"#])).len(), 1);
    assert_eq!(lost_entries(&sent, &lines(&[r#"{"seq":0,"h":"a"}"#, r#"{"seq":1,"h":"c"}"#])).len(), 1);
}

#[test]
fn only_whole_frames_count_as_seen_and_only_whole_steps_as_logged() {
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("seen")).unwrap();
    let sent = concat!(
        "{\"event\":\"snapshot\",\"data\":{\"entries\":[{\"seq\":0}],\"older\":false}}\n",
        "{\"event\":\"entry\",\"data\":{\"entry\":{\"seq\":1, \"x\":1}},\"seq\":1}\n",
        "{\"ready\":{\"name\":\"x\"}}\n",
        "{\"event\":\"entry\",\"data\":{\"entry\":{\"seq\":2}},\"se",
    );
    std::fs::write(folder.path().join("seen/1.2"), sent).unwrap();
    let seen = sent_entries(folder.path());
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        [(0, "{\"seq\":0}".into()), (1, "{\"seq\":1, \"x\":1}".into())]
    );

    let log = "{\"seq\":0}\n{\"seq\":1,\"more\":true}\n{\"seq\":2}\n{\"seq\":3,\"more\":true}\n{\"seq\":4";
    std::fs::write(folder.path().join("log.jsonl"), log).unwrap();
    assert_eq!(logged_entries(folder.path()).into_keys().collect::<Vec<_>>(), [0, 1, 2]);
}
