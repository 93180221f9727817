//! Hostile lines: parsing never panics, and an invalid request is refused with a reason that names the field.

use minke_protocol::{ClientRequest, Frame, LineReader, Method, Notify, RequestId, limits};
use minke_record::ErrorCode;

const FILES: &str = include_str!("data/json/files.tsv");
const STRINGS: &str = include_str!("data/strings/blns.json");

fn json_test_files() -> Vec<(&'static str, Vec<u8>)> {
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("the file is ASCII");
        u8::from_str_radix(pair, 16).expect("the file holds hex")
    };
    let mut files: Vec<_> = FILES
        .lines()
        .map(|line| {
            let (name, hex) = line.split_once('\t').expect("name, tab, hex");
            (name, hex.as_bytes().chunks(2).map(byte).collect())
        })
        .collect();
    assert_eq!(files.len(), 316);
    files.push(("n_structure_100000_opening_arrays.json", "[".repeat(100_000).into_bytes()));
    files.push(("n_structure_open_array_object.json", "[{\"\":".repeat(50_000).into_bytes()));
    files
}

/// Returns the message with which a line is refused.
fn refusal_message(line: &str) -> String {
    let bad = ClientRequest::parse(line).expect_err(line);
    assert_eq!(bad.refusal.code, ErrorCode::InvalidRequest, "{line}");
    assert!(bad.refusal.message.len() <= limits::REFUSAL_BYTES + 3, "{}", bad.refusal.message.len());
    bad.refusal.message
}

#[test]
fn hostile_lines_are_refused() {
    for (name, bytes) in json_test_files() {
        let mut reader = LineReader::new();
        reader.push(&bytes);
        reader.push(b"\n");
        while let Some(line) = reader.next() {
            match line {
                Ok(line) => {
                    assert!(!refusal_message(line).is_empty(), "{name}");
                    assert!(Frame::parse(line).is_err(), "{name}");
                }
                Err(fault) => assert!(std::str::from_utf8(&bytes).is_err(), "{name}: {fault}"),
            }
        }
    }
}

#[test]
fn hostile_params_are_read_as_json_says() {
    for (name, bytes) in json_test_files() {
        let Ok(json) = String::from_utf8(bytes) else { continue };
        let line = format!("{{\"method\":\"checkpoint\",\"params\":{{\"id\":\"x\",\"state\":{json}}}}}");
        let read = ClientRequest::parse(&line);
        match name.as_bytes().first() {
            Some(b'y') => assert!(read.is_ok(), "{name}: {read:?}"),
            Some(b'n') => assert!(read.is_err(), "{name}: {read:?}"),
            _ => drop(read),
        }
    }
}

#[test]
fn deep_nesting_is_refused_wherever_it_stands() {
    for deep in [
        "[".repeat(200_000),
        "{\"a\":".repeat(200_000),
        format!("{}{}", "[".repeat(5_000), "]".repeat(5_000)),
    ] {
        for line in [
            format!("{{\"method\":\"checkpoint\",\"params\":{{\"id\":\"x\",\"state\":{deep}}}}}"),
            format!("{{\"method\":\"run\",\"params\":{{\"input\":{deep}}}}}"),
            format!("{{\"method\":\"pod_event\",\"params\":{{\"kind\":\"asked\",\"ask\":{deep}}}}}"),
            format!("{{\"method\":{deep}}}"),
            format!("{{\"id\":{deep},\"method\":\"status\"}}"),
        ] {
            refusal_message(&line);
        }
        assert!(Frame::parse(&format!("{{\"event\":\"entry\",\"data\":{{\"entry\":{deep}}}}}")).is_err());
    }
}

#[test]
fn naughty_strings_arrive_as_they_were_sent() {
    let strings: Vec<String> = serde_json::from_str(STRINGS).unwrap();
    assert_eq!(strings.len(), 315);
    for text in strings {
        let method = Method::Notify(Notify { message: text.clone(), auto_run: true });
        let id = (text.len() < 40).then(|| RequestId::new(&text));
        let request = ClientRequest { id, method };
        let line = request.to_line();
        assert_eq!(line.find('\n'), Some(line.len() - 1), "one line: {text:?}");
        assert_eq!(ClientRequest::parse(line.trim_end()), Ok(request));
        refusal_message(&text);
    }
}

#[test]
fn a_refusal_names_the_field() {
    for (line, names) in [
        ("{}", "`method`"),
        (r#"{"method":5}"#, "`method`"),
        (r#"{"method":"fly"}"#, "`fly`"),
        (r#"{"method":"run"}"#, "`input`"),
        (r#"{"method":"run","params":[]}"#, "params"),
        (r#"{"method":"run","params":{"input":5}}"#, "params.input"),
        (r#"{"method":"run","params":{"input":[{"kind":"text"}]}}"#, "params.input: input segment `text`"),
        (r#"{"method":"run","params":{"input":"x","mode":"soon"}}"#, "params.mode: unknown variant `soon`"),
        (r#"{"method":"hello","params":{"since":{"seq":1,"h":"zz"}}}"#, "params.since"),
        (r#"{"method":"hello","params":{"since":{"seq":1}}}"#, "params.since: missing field `h`"),
        (r#"{"method":"dequeue","params":{"id":"7"}}"#, "params.id"),
        (r#"{"method":"notify","params":{"message":["x"]}}"#, "params.message"),
        (r#"{"method":"pod_event","params":{"kind":"turn_ended"}}"#, "`pod_name`"),
        (r#"{"method":"pod_event","params":{"kind":"turn_ended","pod_name":5}}"#, "params.pod_name"),
        (
            r#"{"method":"pod_event","params":{"kind":"shut_down","pod_name":"a","from_seq":-1}}"#,
            "params.from_seq",
        ),
        (r#"{"method":"pod_event","params":{"pod_name":"a"}}"#, "`kind`"),
        (
            r#"{"method":"answer","params":{"ask":"01970000-0000-7000-8000-000000000004","decision":"maybe"}}"#,
            "params.decision: `maybe`",
        ),
        (r#"{"method":"rewind","params":{"to_seq":1}}"#, "`expected_head`"),
        (r#"{"method":"set"}"#, "params: set at least one value"),
        (r#"{"method":"set","params":{"name":"No/Good"}}"#, "params.name: `No/Good` is not a pod name"),
        (r#"{"method":"wait","params":{"until":"doomsday","timeout_ms":1}}"#, "params.until"),
        (r#"{"method":"status","id":{}}"#, "`id`"),
        (r#"{"method":"status","id":true}"#, "`id`"),
    ] {
        let message = refusal_message(line);
        assert!(message.contains(names), "{line}: {message}");
    }
    let long = format!("{{\"method\":\"status\",\"id\":\"{}\"}}", "x".repeat(300));
    assert!(refusal_message(&long).contains("`id` has 302 bytes"));
    let long =
        format!("{{\"method\":\"run\",\"params\":{{\"input\":\"x\",\"op_id\":\"{}\"}}}}", "x".repeat(300));
    assert!(refusal_message(&long).contains("params.op_id"));
    let long = format!(
        "{{\"method\":\"checkpoint\",\"params\":{{\"id\":\"a\",\"state\":\"{}\"}}}}",
        "x".repeat(300_000)
    );
    assert!(refusal_message(&long).contains("params.state"));
}

#[test]
fn bad_params_are_refused_under_the_id_they_came_with() {
    for id in ["\"a b\"", "7", "-1.5e3", "\"\\u00fc\""] {
        let bad = ClientRequest::parse(&format!("{{\"method\":\"run\",\"id\":{id}}}")).unwrap_err();
        assert_eq!(bad.id.as_ref().map(RequestId::as_json), Some(id));
        let line =
            minke_protocol::encode_reply(bad.id.unwrap(), minke_protocol::ReplyData::Refused(bad.refusal));
        assert!(line.ends_with(&format!(",\"id\":{id}}}\n")), "{line}");
    }
}

#[test]
fn pages_that_are_too_large_are_cut() {
    let read = |line: &str| ClientRequest::parse(line).unwrap().method;
    assert!(matches!(
        read(r#"{"method":"read","params":{"from_seq":0,"limit":5000}}"#),
        Method::Read(r) if r.limit == limits::MAX_PAGE_ENTRIES
    ));
    assert!(matches!(
        read(r#"{"method":"read_blob","params":{"blob":"a","limit":99999999}}"#),
        Method::ReadBlob(r) if r.limit == limits::BLOB_CHUNK_BYTES
    ));
}

#[test]
fn an_entry_with_two_kinds_is_no_entry() {
    let entry = r#"{"seq":3,"ts":1,"kind":"song","kind":"rewound","h":"00000000000000000000000000000000"}"#;
    assert!(
        Frame::parse(&format!("{{\"event\":\"entry\",\"data\":{{\"entry\":{entry}}},\"seq\":3}}")).is_err()
    );
}
