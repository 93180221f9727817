//! Runs: started, queued, steered, paused, resumed, cancelled, and found again after the pod was gone.

use minke_driver::Ending;
use minke_protocol::Event;
use serde_json::json;

use crate::support::{Home, entries, names, run_end};

const HELLO: &str = r#"
[[turn]]
text = "Hello there."

"#;

/// One turn that says something, waits for longer than any test, and would go on.
const STUCK: &str = r#"
[[turn]]
steps = [{ text = "half an " }, { delay_ms = 3600000 }, { text = "answer" }]
[[turn]]
text = "the rest"
[[turn]]
text = "more"
"#;

#[test]
fn a_run_is_started_streams_and_ends() {
    let home = Home::new();
    let session = home.session("[[turn]]\ntext = [\"Hel\", \"lo.\"]\n");
    let pod = home.start(session);
    let mut client = pod.attach();
    let id = client.send("run", json!({"input": "hi"}));
    let seen = client.until("run_end");
    let order: Vec<&str> = names(&seen).into_iter().filter(|name| *name != "entry").collect();
    let expected = [
        "invoke_start",
        "user_message",
        "status",
        "turn_start",
        "llm_call_start",
        "text_delta",
        "text_delta",
        "text_done",
        "usage",
        "llm_call_end",
        "turn_end",
        "run_end",
    ];
    let relevant: Vec<&str> = order.into_iter().filter(|name| expected.contains(name)).collect();
    assert_eq!(relevant, expected, "all: {:?}", names(&seen));
    let numbers = entries(&seen);
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    let run = seen.iter().find_map(|frame| frame.run).unwrap();
    drop(client);
    let mut late = pod.attach();
    let status = late.ask("status", json!({})).unwrap();
    assert_eq!(status["status"], "idle");
    assert!(id > 0);
    assert_eq!(pod.stop(), Ending::Stopped);
    assert_eq!(home.run_results(session), ["finished"]);
    assert!(home.log(session).iter().any(|entry| entry.run == Some(run)));
}
