//! Waking a session: over real leases and a real process that is no pod (this very test binary, which is what the
//! running executable is here), so that a launch always fails and everything up to it can be looked at.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod house;

use minke_client::{DeliverError, Delivery, Home, LaunchError, Visited, deliver, visit};
use minke_protocol::{ClientInfo, Method, Refusal, Run};
use minke_record::{
    Actor, ErrorCode, Holder, Ids, InputSegment, Kind, Opened, QueueId, QueueMode, QueuedInput, SessionId,
};
use minke_registry::{Row, Runtime, TableLimits};
use minke_session::{Sealed, StoreError};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;

use house::{draft, home, session};

const AT: u64 = 1_500_000_000_000;

/// `opened{as: visit}` and an input.
fn leave_input(replay: &[Sealed]) -> Result<Visited, Refusal> {
    let next = replay.last().map_or(0, |last| last.entry.seq + 1);
    let opened = Opened {
        epoch: 1,
        pid: 1,
        boot_id: String::new(),
        host: String::new(),
        version: "0".to_owned(),
        holder: Holder::Visit,
        fence: None,
        own: None,
    };
    let input = QueuedInput {
        id: QueueId(Ids::new(AT, 1).next_uuid()),
        segments: vec![InputSegment::text("hello")],
        op_id: None,
        from: Actor::person("test"),
        mode: QueueMode::Queue,
        attached: Vec::new(),
    };
    let entries = vec![draft(next, AT, opened.into()), draft(next + 1, AT, input.into())];
    Ok(Visited { entries, blobs: Vec::new() })
}

fn delivery(session: SessionId) -> Delivery<'static> {
    let client = ClientInfo { name: "test".to_owned(), version: "0".to_owned(), session: None };
    Delivery { session, method: Method::Run(Run::text("hello")), client, visit: Some(&leave_input) }
}

fn kinds(home: &Home, session: SessionId) -> Vec<String> {
    let replay = home.store.reader(session).unwrap().replay().unwrap();
    replay.iter().map(|sealed| sealed.entry.kind.name().to_owned()).collect()
}

#[tokio::test]
async fn what_is_said_is_written_before_a_process_that_may_not_live_gets_it() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path());
    let (id, writer) = session(&home, AT, "tale");
    drop(writer);
    let failed = deliver(&home, delivery(id)).await.unwrap_err();
    let DeliverError::Launch(LaunchError::Died { said, .. }) = &failed else { panic!("{failed}") };
    assert!(!said.is_empty(), "what the process said is shown");
    assert_eq!(kinds(&home, id), ["session_start", "opened", "queued_input"]);
    assert!(home.store.holder(id).unwrap().is_none(), "the lease went with the process");
    let starting = std::fs::read_dir(home.paths.runtime.join("starting")).unwrap();
    assert_eq!(starting.count(), 0);
}

#[tokio::test]
async fn a_pod_that_is_stopping_is_waited_for_and_the_session_woken_again() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path());
    let (id, writer) = session(&home, AT, "tale");
    let name = "tale".parse().unwrap();
    let scope =
        Runtime::new(&home.paths).register(Row::here(name, id, None), TableLimits::default(), false).unwrap();
    let listener = UnixListener::bind(scope.socket()).unwrap();
    let stopping_pod = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let refused =
            r#"{"event":"reply","data":{"ok":false,"error":{"code":"conflict","message":"no"}},"id":1}"#;
        let status = concat!(
            r#"{"event":"reply","data":{"ok":true,"result":{"status":"idle","activity":"stopping","#,
            r#""head":{"seq":0,"h":"00000000000000000000000000000000"}}},"id":2}"#
        );
        for answer in [r#"{"event":"hello","data":{"protocol":2}}"#, refused, status] {
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            stream.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        }
        drop((stream, listener));
        scope.release().unwrap();
        // The session lease goes last, as in a pod.
        drop(writer);
    };
    let (delivered, ()) = tokio::join!(deliver(&home, delivery(id)), stopping_pod);
    let failed = delivered.unwrap_err();
    assert!(matches!(failed, DeliverError::Launch(LaunchError::Died { .. })), "{failed}");
    assert_eq!(kinds(&home, id), ["session_start", "opened", "queued_input"]);
}

#[test]
fn a_visit_is_refused_while_somebody_holds_the_session_and_names_him() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path());
    let (id, mut writer) = session(&home, AT, "tale");
    writer.introduce(&"tale".parse().unwrap()).unwrap();
    let refused = visit(&home, id, &leave_input).unwrap_err();
    let DeliverError::Store(StoreError::Held { who, .. }) = refused else { panic!("{refused}") };
    assert_eq!(who.pid, Some(std::process::id()));
    assert_eq!(who.name.unwrap().as_str(), "tale");
    drop(writer);
    visit(&home, id, &leave_input).unwrap();
    assert_eq!(kinds(&home, id), ["session_start", "opened", "queued_input"]);
}

#[test]
fn a_visit_that_is_refused_writes_nothing_and_what_was_cut_is_told_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path());
    let (id, writer) = session(&home, AT, "tale");
    drop(writer);
    let refusal = Refusal { code: ErrorCode::NotFound, message: "no".to_owned() };
    let refused = visit(&home, id, &|_| Err(refusal.clone())).unwrap_err();
    assert!(matches!(refused, DeliverError::Refused { .. }), "{refused}");
    assert_eq!(kinds(&home, id), ["session_start"]);
    let log = home.paths.sessions().join(id.to_string()).join("log.jsonl");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes.extend(b"{\"seq\":1,\"ts\":15");
    std::fs::write(&log, bytes).unwrap();
    visit(&home, id, &leave_input).unwrap();
    assert_eq!(kinds(&home, id), ["session_start", "opened", "queued_input", "alert"]);
    let replay = home.store.reader(id).unwrap().replay().unwrap();
    let Kind::Alert(alert) = &replay[3].entry.kind else { panic!("an alert") };
    assert!(alert.message.contains("cut-"), "{}", alert.message);
}
