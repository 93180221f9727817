//! References of an input: read on arrival and logged after it, or refused without a trace.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use minke_driver::PodExit;
use minke_pod::{OfflineEdit, OfflineWriter, StepSeed};
use minke_record::{Actor, InputSegment, Kind, SystemKind};
use minke_session::SessionStore;
use serde_json::{Value, json};

use crate::support::{DriverHome, TestClient};

const LOOP_SCRIPT: &str = "loop = true\n[[turn]]\ntext = \"again\"\n";

/// The smallest PNG.
const PNG: &[u8] = &[
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0,
    0, 1, 8, 0, 0, 0, 0, 0x3a, 0x7e, 0x9b, 0x55, 0, 0, 0, 0x0a, b'I', b'D', b'A', b'T', 0x78, 0x9c, 0x63, 0,
    1, 0, 0, 5, 0, 1, 0x0d, 0x0a, 0x2d, 0xb4, 0, 0, 0, 0, b'I', b'E', b'N', b'D', 0xae, 0x42, 0x60, 0x82,
];

fn send_reference(client: &mut TestClient, path: &str) -> Result<(), String> {
    let input = json!([{"kind": "text", "content": "look"}, {"kind": "file_ref", "path": path}]);
    match client.send_and_wait("run", json!({"input": input, "mode": "queue"})) {
        Ok(_) => {
            client.send_and_wait("wait", json!({"until": "idle", "timeout_ms": 20_000})).unwrap();
            Ok(())
        }
        Err(e) => {
            assert_eq!(e["code"], "invalid_request", "{path}: {e}");
            Err(e["message"].as_str().unwrap().to_owned())
        }
    }
}

fn create_files(work: &Path) {
    let put = |name: &str, content: &[u8]| std::fs::write(work.join(name), content).unwrap();
    put("plain.txt", b"one\ntwo\nthree\n");
    put("no end", b"the last line continues");
    put("empty", b"");
    put("looks:10-20", b"a name with a colon\n");
    put("big.txt", "a🐋".repeat(100_000).as_bytes());
    put("latin.txt", b"caf\xe9 au lait, gar\xe7on, \xe0 la carte, d\xe9j\xe0 vu\n");
    put("wide.txt", b"\xff\xfeh\0i\0\n\0");
    put("zeros", b"text\0and zeros");
    put("program", b"\x7fELF\x02\x01\x01\0\0\0\0");
    put("dot.png", PNG);
    put("broken.png", &PNG[..40]);
    std::fs::create_dir_all(work.join("dir/inner")).unwrap();
    put("dir/b", b"");
    put("dir/.hidden", b"");
    std::fs::create_dir(work.join("secret")).unwrap();
    put("secret/key", b"DENIED");
    symlink("plain.txt", work.join("inside")).unwrap();
    symlink("/etc/passwd", work.join("outside")).unwrap();
    symlink("/", work.join("root")).unwrap();
    symlink("loop", work.join("loop")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        work.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
}

/// The same table as in docs/guide/references.md.
#[test]
fn whatever_is_referred_to_ends_as_documented() {
    let home = DriverHome::new();
    let work = home.cwd();
    create_files(&work);
    let _socket = UnixListener::bind(work.join("socket")).unwrap();
    let deny = json!([{"target": work.join("secret"), "permission": "read", "recursive": true}]);
    let session = home.new_session_with(LOOP_SCRIPT, json!({"scope": {"deny": deny}}));
    let pod = home.start_pod(session);
    let mut client = pod.reply_only_client();
    let absolute = work.join("plain.txt").display().to_string();
    let long = "x".repeat(1024 * 1024);
    let taken: &[(&str, &str)] = &[
        ("plain.txt", "[@plain.txt: file, 14 bytes]\none\ntwo\nthree\n[end of @plain.txt]\n"),
        ("./plain.txt", "one\n"),
        (&absolute, "one\n"),
        ("\"plain.txt\"", "one\n"),
        ("no end", "continues\n[end of @no end]\n"),
        ("\"no end\":1", "lines 1 to 1 of 1"),
        ("plain.txt:2-3", "[@plain.txt:2-3: lines 2 to 3 of 3]\ntwo\nthree\n[end of"),
        ("plain.txt:2", "lines 2 to 2 of 3]\ntwo\n[end of"),
        ("plain.txt:3-99", "lines 3 to 3 of 3"),
        ("looks:10-20", "a name with a colon"),
        ("empty", "file, 0 bytes"),
        ("big.txt", "[cut: 262141 of 500000 bytes are shown; continue with Read from line 1]\n"),
        ("latin.txt", "déjà vu"),
        ("wide.txt", "hi\n"),
        ("dot.png", "PNG image, 1 × 1 pixels; it is shown in the message above"),
        ("dir", "directory with 3 entries]\n.hidden\nb\ninner/\n"),
        ("dir/", "inner/\n"),
        (".", "plain.txt\n"),
        ("inside", "one\n"),
    ];
    for (path, word) in taken {
        let before = home.read_log(session).len();
        send_reference(&mut client, path).unwrap_or_else(|why| panic!("{path}: {why}"));
        let log = home.read_log(session);
        let new = log.get(before..).unwrap();
        let output = new.iter().position(|entry| matches!(entry.kind, Kind::UserInput(_))).unwrap();
        let Kind::SystemEntry(read) = &new[output + 1].kind else { panic!("{path}: {:?}", new[output + 1]) };
        assert_eq!(read.item.kind, SystemKind::FileAttachment, "{path}");
        let body = match &read.item.body {
            minke_record::Text::Inline(body) => body.clone(),
            minke_record::Text::Blob(name) => {
                let blob = client.send_and_wait("read_blob", json!({"blob": name.blob})).unwrap();
                assert!(blob["next_offset"].is_null());
                use base64::Engine;
                let bytes = base64::prelude::BASE64_STANDARD.decode(blob["data"].as_str().unwrap()).unwrap();
                String::from_utf8(bytes).unwrap()
            }
        };
        assert!(body.contains(word), "{path}: {}", body.chars().take(300).collect::<String>());
        assert!(!body.contains("secret/\n"), "{path}: denied names are not listed");
        let cause = read.item.cause.as_ref().unwrap();
        assert!(cause["path"].as_str().unwrap().starts_with('/'), "{cause}");
    }
    let refused: &[(&str, &str)] = &[
        ("missing", "there is no file `missing`"),
        ("plain.txt:4", "it has 3 lines, so there is no line 4"),
        ("dir:3", "no lines"),
        ("dot.png:3", "no lines"),
        ("zeros", "binary data"),
        ("program", "an ELF program"),
        ("broken.png", "damaged"),
        ("fifo", "a FIFO"),
        ("socket", "a socket"),
        ("/dev/zero", "scope"),
        ("/etc/passwd", "scope"),
        ("../", "scope"),
        ("outside", "scope"),
        ("root/etc/passwd", "scope"),
        ("loop", "could not read"),
        ("secret/key", "scope"),
        ("secret", "scope"),
        ("/proc/self/environ", ""),
        ("", "empty"),
        ("a\0b", "zero byte"),
        (&long, "1048576 bytes"),
    ];
    let before = home.read_log(session).len();
    for (path, word) in refused {
        let shown = path.chars().take(40).collect::<String>();
        let why = send_reference(&mut client, path).expect_err(&shown);
        assert!(why.starts_with("params.input[1]: ") && why.contains(word), "{shown}: {why}");
        assert!(why.len() < 2_000 && !why.contains("DENIED"), "{shown}: {why}");
    }
    assert_eq!(home.read_log(session).len(), before, "the refused input is not in the log");
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn a_bad_reference_leaves_nothing() {
    let home = DriverHome::new();
    std::fs::write(home.cwd().join("a"), "A").unwrap();
    let session = home.new_session(LOOP_SCRIPT);
    let pod = home.start_pod(session);
    let mut client = pod.reply_only_client();
    let before = home.read_log(session).len();
    let good = json!({"kind": "file_ref", "path": "a"});
    for bad in [
        json!({"kind": "file_ref", "path": "b"}),
        json!({"kind": "knowledge_ref", "slug": "none"}),
        json!({"kind": "knowledge_ref", "slug": "../../etc/passwd"}),
        json!({"kind": "workflow_invoke", "slug": "none"}),
        json!({"kind": "skill_ref", "name": "none"}),
        json!({"kind": "image", "path": "a", "media_type": "image/png"}),
    ] {
        let error = client.send_and_wait("run", json!({"input": [good, bad]})).unwrap_err();
        assert_eq!(error["code"], "invalid_request");
        assert!(error["message"].as_str().unwrap().starts_with("params.input[1]: "), "{error}");
    }
    let many: Vec<Value> = (0..65).map(|_| good.clone()).collect();
    let error = client.send_and_wait("run", json!({"input": many})).unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("65 things"), "{error}");
    assert_eq!(home.read_log(session).len(), before);
    // Repeating the operation returns the first result, even after the file has changed.
    let once = json!({"input": [good], "op_id": "once"});
    let first = client.send_and_wait("run", once.clone()).unwrap();
    client.send_and_wait("wait", json!({"until": "idle", "timeout_ms": 20_000})).unwrap();
    std::fs::remove_file(home.cwd().join("a")).unwrap();
    assert_eq!(client.send_and_wait("run", once).unwrap(), first);
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

fn write_offline_edit(home: &DriverHome, session: minke_record::SessionId, seed: u64, path: &str) {
    let open = home.store().open(session).unwrap();
    let state = minke_pod::State::replay(open.replay.iter().map(|sealed| &sealed.entry));
    let visitor = OfflineWriter {
        pid: 1,
        boot_id: "boot".into(),
        host: "here".into(),
        version: "test".into(),
        by: Actor::from_person("test"),
    };
    let segments = vec![InputSegment::from_text("look"), InputSegment::FileRef { path: path.to_owned() }];
    let change = OfflineEdit::Queue { segments, op_id: None };
    let written = minke_pod::apply_offline_edit(&state, StepSeed { now: 1, seed }, visitor, change).unwrap();
    let mut writer = open.writer;
    writer.append(written.entries, written.blobs).unwrap();
    writer.syncer().sync().unwrap();
}

/// A client that queues an input while no pod is running reads nothing; the pod reads the references at boot.
#[test]
fn what_was_queued_without_a_pod_is_read_at_the_boot() {
    let home = DriverHome::new();
    std::fs::write(home.cwd().join("a"), "the content").unwrap();
    let session = home.new_session(LOOP_SCRIPT);
    write_offline_edit(&home, session, 8, "a");
    write_offline_edit(&home, session, 9, "missing");
    let pod = home.start_pod(session);
    let mut client = pod.reply_only_client();
    client.send_and_wait("wait", json!({"until": "idle", "timeout_ms": 20_000})).unwrap();
    let log = home.read_log(session);
    let bodies: Vec<String> = log
        .iter()
        .filter_map(|entry| match &entry.kind {
            Kind::SystemEntry(e) => Some(e.item.body.display_text().into_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(bodies, ["[@a: file, 11 bytes]\nthe content\n[end of @a]\n"]);
    let reported = log.iter().any(|entry| match &entry.kind {
        Kind::Alert(e) => e.message.contains("taken out of the queue") && e.message.contains("`missing`"),
        _ => false,
    });
    assert!(reported, "the reason for removing the other input is reported");
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}
