//! Starting a session's pod with real leases and a real process that is not a pod (this test binary is the
//! running executable), so that each launch fails and all steps before it can be checked.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod house;

use minke_client::UserHome;
use minke_launch::{DeliverError, Delivery, LaunchError, OfflineChange, deliver_method, write_offline_edit};
use minke_protocol::{ClientInfo, Method, Refusal, Run};
use minke_record::{
    Actor, ErrorCode, Holder, IdGenerator, InputSegment, Kind, Opened, QueueId, QueueMode, QueuedInput,
    SessionId,
};
use minke_registry::{PodLimits, RuntimeDir, ScopeRow};
use minke_session::{SealedEntry, StoreError};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;

use house::{new_draft, new_home, new_session};

const START_TIME: u64 = 1_500_000_000_000;

/// `opened{as: visit}` and an input.
fn queue_input_step(replay: &[SealedEntry]) -> Result<OfflineChange, Refusal> {
    let next = replay.last().map_or(0, |last| last.entry.seq + 1);
    let opened = Opened {
        epoch: 1,
        pid: 1,
        boot_id: String::new(),
        host: String::new(),
        version: "0".to_owned(),
        holder: Holder::Visit,
        sandbox: minke_record::LoggedBackend::NONE,
        own: None,
    };
    let input = QueuedInput {
        id: QueueId(IdGenerator::new(START_TIME, 1).next_uuid()),
        segments: vec![InputSegment::from_text("hello")],
        op_id: None,
        from: Actor::from_person("test"),
        mode: QueueMode::Queue,
        attached: Vec::new(),
    };
    let entries =
        vec![new_draft(next, START_TIME, opened.into()), new_draft(next + 1, START_TIME, input.into())];
    Ok(OfflineChange { entries, blobs: Vec::new() })
}

fn new_delivery(session: SessionId) -> Delivery<'static> {
    let client = ClientInfo { name: "test".to_owned(), version: "0".to_owned(), session: None };
    Delivery {
        session,
        method: Method::Run(Run::from_text("hello")),
        client,
        offline_step: Some(&queue_input_step),
    }
}

fn entry_kinds(home: &UserHome, session: SessionId) -> Vec<String> {
    let replay = home.store.open_reader(session).unwrap().read_replay().unwrap();
    replay.iter().map(|sealed| sealed.entry.kind.name().to_owned()).collect()
}

#[tokio::test]
async fn what_is_said_is_written_before_a_process_that_may_not_live_gets_it() {
    let dir = tempfile::tempdir().unwrap();
    let home = new_home(dir.path());
    let (id, writer) = new_session(&home, START_TIME, "tale");
    drop(writer);
    let failed = deliver_method(&home, new_delivery(id)).await.unwrap_err();
    let DeliverError::Launch(LaunchError::Exited { said, .. }) = &failed else { panic!("{failed}") };
    assert!(!said.is_empty(), "the output of the process is shown");
    assert_eq!(entry_kinds(&home, id), ["session_start", "opened", "queued_input"]);
    assert!(home.store.lease_holder(id).unwrap().is_none(), "the lease was released with the process");
    let starting = std::fs::read_dir(home.paths.runtime.join("starting")).unwrap();
    assert_eq!(starting.count(), 0);
}

#[tokio::test]
async fn a_pod_that_is_stopping_is_waited_for_and_the_session_woken_again() {
    let dir = tempfile::tempdir().unwrap();
    let home = new_home(dir.path());
    let (id, writer) = new_session(&home, START_TIME, "tale");
    let name = "tale".parse().unwrap();
    let scope = RuntimeDir::new(&home.paths)
        .register_pod(ScopeRow::for_this_process(name, id, None), PodLimits::default(), false)
        .unwrap();
    let listener = UnixListener::bind(scope.socket_path()).unwrap();
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
        scope.release_pod().unwrap();
        // The session lease is released last, as in a pod.
        drop(writer);
    };
    let (delivered, ()) = tokio::join!(deliver_method(&home, new_delivery(id)), stopping_pod);
    let failed = delivered.unwrap_err();
    assert!(matches!(failed, DeliverError::Launch(LaunchError::Exited { .. })), "{failed}");
    assert_eq!(entry_kinds(&home, id), ["session_start", "opened", "queued_input"]);
}

#[test]
fn an_offline_edit_of_a_held_session_is_refused_with_the_holder() {
    let dir = tempfile::tempdir().unwrap();
    let home = new_home(dir.path());
    let (id, mut writer) = new_session(&home, START_TIME, "tale");
    writer.set_holder_name(&"tale".parse().unwrap()).unwrap();
    let refused = write_offline_edit(&home, id, &queue_input_step).unwrap_err();
    let DeliverError::Store(StoreError::Held { who, .. }) = refused else { panic!("{refused}") };
    assert_eq!(who.pid, Some(std::process::id()));
    assert_eq!(who.name.unwrap().as_str(), "tale");
    drop(writer);
    write_offline_edit(&home, id, &queue_input_step).unwrap();
    assert_eq!(entry_kinds(&home, id), ["session_start", "opened", "queued_input"]);
}

#[test]
fn a_refused_offline_edit_writes_nothing_and_logs_what_was_cut() {
    let dir = tempfile::tempdir().unwrap();
    let home = new_home(dir.path());
    let (id, writer) = new_session(&home, START_TIME, "tale");
    drop(writer);
    let refusal = Refusal { code: ErrorCode::NotFound, message: "no".to_owned() };
    let refused = write_offline_edit(&home, id, &|_| Err(refusal.clone())).unwrap_err();
    assert!(matches!(refused, DeliverError::Refused { .. }), "{refused}");
    assert_eq!(entry_kinds(&home, id), ["session_start"]);
    let log = home.paths.sessions_dir().join(id.to_string()).join("log.jsonl");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes.extend(b"{\"seq\":1,\"ts\":15");
    std::fs::write(&log, bytes).unwrap();
    write_offline_edit(&home, id, &queue_input_step).unwrap();
    assert_eq!(entry_kinds(&home, id), ["session_start", "opened", "queued_input", "alert"]);
    let replay = home.store.open_reader(id).unwrap().read_replay().unwrap();
    let Kind::Alert(alert) = &replay[3].entry.kind else { panic!("an alert") };
    assert!(alert.message.contains("cut-"), "{}", alert.message);
}
