//! Errors between a pod and a provider: the documented outcome, one end of the run, a message with a next
//! step, and an exit code for scripts.

use serde_json::Value;

use crate::providers::faulty_proxy::{FaultyProxy, ProxyBehavior};
use crate::support::mock_world::{MockWorld, WIRE_MODELS, only_session_log, point_providers, run_ends};
use crate::support::world::{CliWorld, CommandResult};

/// Exit code for a provider error.
const EXIT_PROVIDER: Option<i32> = Some(5);
/// Attempts of one request.
const MAX_ATTEMPTS: usize = 6;
/// New requests after an incomplete reply.
const MAX_CONTINUATIONS: usize = 3;
/// Size limit of one event; documented in docs/reference/providers.md.
const MAX_EVENT_BYTES: u64 = 32 * 1024 * 1024;
/// The model that fails.
const FAILING_MODEL: &str = WIRE_MODELS[0];

/// Checks a run that failed once and finally, with these words in its message.
#[track_caller]
fn check_failed(done: &CommandResult, log: &[Value], words: &[&str]) -> Value {
    assert_eq!(done.code, EXIT_PROVIDER, "{done:?}");
    let ends = run_ends(log);
    let [end] = ends.as_slice() else { panic!("expected one end: {ends:?}") };
    assert_eq!((&end["kind"], &end["code"]), (&"run_errored".into(), &"provider_error".into()), "{end}");
    let message = end["message"].as_str().unwrap();
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
    // The terminal shows the same message; long ones are broken into lines.
    let said = done.err.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted = message.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(&wanted), "{said}\nshould contain\n{wanted}");
    (*end).clone()
}

/// Checks a run that finished after errors.
#[track_caller]
fn check_finished(done: &CommandResult, log: &[Value], out: &str) {
    assert_eq!((done.code, done.out.as_str()), (Some(0), out), "{done:?}");
    let ends = run_ends(log);
    let [end] = ends.as_slice() else { panic!("expected one end: {ends:?}") };
    assert_eq!((&end["kind"], &end["result"]), (&"run_completed".into(), &"finished".into()), "{end}");
}

/// Returns the attempts of each ended request, newest first.
fn attempt_counts(log: &[Value]) -> Vec<u64> {
    log.iter()
        .filter(|entry| entry["kind"] == "llm_end")
        .map(|entry| entry["attempts"].as_u64().unwrap())
        .collect()
}

#[test]
fn a_busy_provider_is_asked_again() {
    let cases = [
        ("status = 429, message = 'slow down', retry_after_s = 1", 2),
        ("status = 429, message = 'slow down'", 2),
        ("status = 529, message = 'overloaded', times = 2, retry_after_s = 0", 3),
        ("status = 500, message = 'oops'", 2),
    ];
    for (error, tries) in cases {
        let wired =
            MockWorld::with_script(&format!("[[turn]]\nerror = {{ {error} }}\n[[turn]]\ntext = 'There.'"));
        let done = wired.run_exec(FAILING_MODEL, &["hello"]);
        check_finished(&done, &wired.session_log(), "There.\n");
        assert_eq!(attempt_counts(&wired.session_log()), [tries], "{error}");
        let requests = wired.mock_requests();
        assert_eq!(requests.len() as u64, tries, "{error}");
        assert!(done.err.contains("attempt"), "the retry is printed: {}", done.err);
        if error.contains("retry_after_s = 1") {
            let waited = requests[1]["time"].as_u64().unwrap() - requests[0]["time"].as_u64().unwrap();
            assert!(waited >= 1_000, "it retried after {waited} ms");
        }
    }
}

#[test]
fn every_format_is_asked_again_when_it_says() {
    let script = "
        [[turn]]
        error = { status = 429, message = 'slow down', retry_after_s = 0 }
        [[turn]]
        text = 'There.'";
    for model in WIRE_MODELS {
        let wired = MockWorld::with_script(script);
        check_finished(&wired.run_exec(model, &["hello"]), &wired.session_log(), "There.\n");
        assert_eq!(attempt_counts(&wired.session_log()), [2], "{model}");
    }
}

#[test]
fn a_provider_that_stays_busy_ends_the_run_once() {
    for (status, words) in [(429, "no more requests"), (529, "overloaded"), (500, "failed")] {
        let error = format!("status = {status}, message = 'not now', retry_after_s = 0, times = 100");
        let wired = MockWorld::with_script(&format!("[[turn]]\nerror = {{ {error} }}"));
        let done = wired.run_exec(FAILING_MODEL, &["hello"]);
        let end = check_failed(&done, &wired.session_log(), &["anthropic", words, "not now", "ry again"]);
        assert_eq!(end["retryable"], true, "{end}");
        assert_eq!(wired.mock_requests().len(), MAX_ATTEMPTS);
        assert_eq!(attempt_counts(&wired.session_log()), [MAX_ATTEMPTS as u64]);
    }
}

#[test]
fn what_asking_again_does_not_mend_is_asked_once() {
    let cases: [(&str, &[&str]); 4] = [
        ("status = 401, message = 'bad key'", &["does not accept the key", "_API_KEY", "minke login"]),
        ("status = 403, message = 'not you'", &["does not let this key", "not you"]),
        ("status = 404, message = 'model: no such model'", &["has no model", "minke models"]),
        ("kind = 'too_long', message = '9 tokens'", &["too long", "9 tokens", "compact"]),
    ];
    for model in WIRE_MODELS {
        let provider = model.split('/').next().unwrap();
        for (error, words) in cases {
            let wired = MockWorld::with_script(&format!("[[turn]]\nerror = {{ {error}, times = 100 }}"));
            let done = wired.run_exec(model, &["hello"]);
            let end = check_failed(&done, &wired.session_log(), words);
            assert!(end["message"].as_str().unwrap().contains(provider), "{end}");
            assert_eq!(end["retryable"], false, "{model} {error}");
            assert_eq!(wired.mock_requests().len(), 1, "{model} {error}");
        }
    }
}

#[test]
fn a_missing_key_is_named_and_nothing_is_sent() {
    let wired = MockWorld::with_script("loop = true\n[[turn]]\ntext = 'You said: {{prompt}}'");
    let without = |args: &[&str]| {
        let mut command = wired.minke_command();
        command.env_remove("ANTHROPIC_API_KEY").arg("exec").args(args);
        let done = wired.world.run_command(command);
        assert!(!matches!(done.code, None | Some(0)), "{done:?}");
        for words in ["no key for anthropic", "ANTHROPIC_API_KEY", "minke login anthropic"] {
            assert!(done.err.contains(words), "`{words}` is not in: {}", done.err);
        }
    };
    without(&["--model", FAILING_MODEL, "hello"]);
    assert!(
        !wired.world.home_dir().join("data/sessions").exists(),
        "no session is created for a refused input"
    );
    assert_eq!(wired.run_exec(FAILING_MODEL, &["hello"]).code, Some(0));
    // The existing session queues the input; with the key it runs, and then the next one.
    without(&["--last", "hello again"]);
    assert_eq!(
        (run_ends(&wired.session_log()).len(), wired.mock_requests().len()),
        (1, 1),
        "no run has begun"
    );
    let mut command = wired.minke_command();
    command.args(["exec", "--last", "and again"]);
    let done = wired.world.run_command(command);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.ends_with("You said: and again\n"), "{done:?}");
    assert_eq!((run_ends(&wired.session_log()).len(), wired.mock_requests().len()), (3, 3));
}

/// Runs in a world of its own, with every provider at this address.
fn run_against(
    base: &str,
    settle: impl FnOnce(&mut std::process::Command, &CliWorld),
) -> (CommandResult, Vec<Value>, CliWorld) {
    let world = CliWorld::new();
    let mut command = world.minke_command();
    point_providers(&mut command, base);
    settle(&mut command, &world);
    command.args(["exec", "--model", FAILING_MODEL, "hello"]);
    let done = world.run_command(command);
    let log = only_session_log(&world);
    (done, log, world)
}

fn unchanged(_: &mut std::process::Command, _: &CliWorld) {}

#[test]
fn a_server_without_tls_is_not_spoken_to_safely() {
    let wired = MockWorld::with_script("[[turn]]\ntext = 'never'");
    let (done, log, _world) = run_against(&format!("https://{}", wired.mock_address()), unchanged);
    let end = check_failed(&done, &log, &["no TLS connection to anthropic", "https", "ertificate"]);
    assert_eq!(end["retryable"], false);
    assert!(wired.mock_requests().is_empty());
}

/// Returns a local port on which no process listens.
fn unused_address() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn a_refused_connection_is_tried_again_and_then_told() {
    let (done, log, _world) = run_against(&format!("http://{}", unused_address()), unchanged);
    let end = check_failed(&done, &log, &["no connection to anthropic at http://127.0.0.1", "refused"]);
    assert_eq!(end["retryable"], true);
    assert_eq!(attempt_counts(&log), [MAX_ATTEMPTS as u64]);
}

#[test]
fn a_dead_proxy_is_named() {
    let proxy = format!("http://{}", unused_address());
    let (done, log, _world) = run_against("http://provider.invalid", |command, _| {
        command.env("HTTP_PROXY", &proxy).env("http_proxy", &proxy);
    });
    check_failed(&done, &log, &["anthropic", "proxy", &proxy, "NO_PROXY"]);
    assert_eq!(attempt_counts(&log), [MAX_ATTEMPTS as u64]);
}

#[test]
fn proxy_variables_are_used_and_exceptions_heeded() {
    let wired = MockWorld::with_script("loop = true\n[[turn]]\ntext = 'There.'");
    let proxy = format!("http://{}", wired.mock_address());
    // A host name that only a proxy can resolve.
    let (done, log, _world) = run_against("http://provider.invalid", |command, _| {
        command.env("http_proxy", &proxy);
    });
    check_finished(&done, &log, "There.\n");
    assert_eq!(wired.mock_requests()[0]["headers"]["host"], "provider.invalid");
    let dead = format!("http://{}", unused_address());
    let (done, log, _world) = run_against(&proxy, |command, _| {
        command.env("http_proxy", &dead).env("no_proxy", "127.0.0.1");
    });
    check_finished(&done, &log, "There.\n");
}

/// Sets timeouts of one second for one provider.
fn short_timeouts(_: &mut std::process::Command, world: &CliWorld) {
    let config = world.home_dir().join("config");
    std::fs::create_dir_all(&config).unwrap();
    let text = "[anthropic]\ntimeouts = { first_byte_s = 1, idle_s = 1 }\n";
    std::fs::write(config.join("providers.toml"), text).unwrap();
}

#[test]
fn a_silent_server_is_left_and_asked_again() {
    let wired = MockWorld::with_script("[[turn]]\ntext = 'There.'");
    let front = FaultyProxy::start_before(
        Some(wired.mock_address()),
        &[ProxyBehavior::Silent, ProxyBehavior::Forward],
    );
    let (done, log, _world) = run_against(&front.base, short_timeouts);
    check_finished(&done, &log, "There.\n");
    assert_eq!(attempt_counts(&log), [2]);
    assert!(done.err.contains("took too long"), "{}", done.err);
}

#[test]
fn a_reply_that_stalls_is_continued_with_what_was_said() {
    let script =
        "[[turn]]\ntext = ['First ', 'STALL', ' lost']\n[[turn]]\nexpect = ''\ntext = ' and the rest.'";
    let wired = MockWorld::with_script(script);
    let front = FaultyProxy::start_before(
        Some(wired.mock_address()),
        &[ProxyBehavior::StallAt("STALL"), ProxyBehavior::Forward],
    );
    let (done, log, _world) = run_against(&front.base, short_timeouts);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.contains("First ") && done.out.contains(" and the rest."), "{done:?}");
    assert_eq!(run_ends(&log).len(), 1);
    let kept = log.iter().filter(|entry| entry["kind"] == "assistant_item").count();
    assert_eq!(kept, 2, "the received text is stored once: {log:#?}");
    assert_eq!(wired.mock_requests().len(), 2);
}

#[test]
fn a_connection_cut_in_an_event_is_continued() {
    let script =
        "chunk = 6\n[[turn]]\ntext = 'First words, lost words'\ncut = true\n[[turn]]\ntext = 'The rest.'";
    for model in WIRE_MODELS {
        let wired = MockWorld::with_options(script, &["--cut-in-event"]);
        let done = wired.run_exec(model, &["hello"]);
        assert_eq!(done.code, Some(0), "{model}: {done:?}");
        assert!(done.out.contains("First words") && done.out.contains("The rest."), "{model}: {done:?}");
        let log = wired.session_log();
        assert_eq!(run_ends(&log).len(), 1, "{model}");
        let outcomes: Vec<&Value> =
            log.iter().filter(|entry| entry["kind"] == "llm_end").map(|entry| &entry["outcome"]).collect();
        assert_eq!(outcomes, ["broken", "done"], "{model}");
        assert_eq!(wired.mock_requests().len(), 2, "{model}");
    }
}

#[test]
fn an_error_in_mid_reply_is_continued() {
    let script = "
        [[turn]]
        steps = [{ text = 'First words' }, { error = { status = 529, message = 'busy' } }]
        [[turn]]
        text = 'The rest.'";
    for model in WIRE_MODELS {
        let wired = MockWorld::with_script(script);
        let done = wired.run_exec(model, &["hello"]);
        assert_eq!(done.code, Some(0), "{model}: {done:?}");
        assert!(done.out.contains("First words") && done.out.contains("The rest."), "{model}: {done:?}");
        assert_eq!((run_ends(&wired.session_log()).len(), wired.mock_requests().len()), (1, 2), "{model}");
    }
}

#[test]
fn a_reply_that_is_always_cut_ends_the_run_once() {
    let wired = MockWorld::with_script("loop = true\n[[turn]]\ntext = 'Some words'\ncut_after = 4");
    let done = wired.run_exec(FAILING_MODEL, &["hello"]);
    let end =
        check_failed(&done, &wired.session_log(), &["anthropic", "ended before it was complete", "again"]);
    assert_eq!(end["retryable"], true, "{end}");
    assert_eq!(wired.mock_requests().len(), 1 + MAX_CONTINUATIONS);
    let kept = wired.session_log().iter().filter(|entry| entry["kind"] == "assistant_item").count();
    assert_eq!(kept, 1 + MAX_CONTINUATIONS, "the received text is stored");
}

#[test]
fn a_long_wait_is_seen_and_can_be_left() {
    let script = "[[turn]]\nerror = { status = 429, message = 'later', retry_after_s = 90, times = 6 }";
    let wired = MockWorld::with_script(script);
    let mut command = wired.minke_command();
    command.args(["exec", "--model", FAILING_MODEL, "hello"]);
    let mut going = wired.world.start_command(command);
    // From the live event, or from the log if the wait began before we connected.
    let told = going.wait_for_stderr("attempt");
    assert!(told.contains("anthropic") && told.contains("later"), "{told}");
    going.send_signal(rustix::process::Signal::INT);
    assert_eq!(going.wait_for_exit().code, Some(130));
    let log = wired.session_log();
    let wait = log.iter().find(|entry| entry["kind"] == "state" && entry["state"] == "waiting").unwrap();
    assert_eq!(wait["on"], "time", "{wait}");
    let ms = wait["until"].as_u64().unwrap() - wait["ts"].as_u64().unwrap();
    assert!((89_000..=91_000).contains(&ms), "it waits for {ms} ms");
    assert_eq!((run_ends(&log).len(), wired.mock_requests().len()), (1, 1));
}

#[test]
fn a_reply_that_is_cancelled_leaves_what_had_come_of_it() {
    let script =
        "[[turn]]\nsteps = [{ text = \"Once upon\\n\" }, { delay_ms = 600000 }, { text = \"a time\" }]";
    let wired = MockWorld::with_script(script);
    let mut command = wired.minke_command();
    command.args(["exec", "--model", FAILING_MODEL, "hello"]);
    let mut going = wired.world.start_command(command);
    going.wait_for_stdout("Once upon");
    going.send_signal(rustix::process::Signal::INT);
    assert_eq!(going.wait_for_exit().code, Some(130));
    let log = wired.session_log();
    let end = log.iter().find(|entry| entry["kind"] == "llm_end").unwrap();
    assert_eq!(end["outcome"], "cancelled", "{end}");
    let name = end["stream_blob"].as_str().expect("the received part is recorded");
    let sessions = std::fs::read_dir(wired.world.home_dir().join("data/sessions")).unwrap();
    let session = sessions.map(|entry| entry.unwrap().path()).next().unwrap();
    let blob = std::fs::read(session.join("blobs").join(name)).unwrap();
    let recording = minke_llm::Recording::parse(&blob).unwrap();
    let said = String::from_utf8_lossy(&recording.attempts[0].bytes).into_owned();
    assert!(said.contains("Once upon") && !said.contains("a time"), "{said}");
    wired.world.verify_logs();
}

#[test]
fn any_framing_and_compression_is_read() {
    let text = "Größer als „alles“ 🐋.";
    for options in
        [&["--gzip"][..], &["--split", "1"], &["--split", "random:7", "--crlf", "--comments", "--gzip"]]
    {
        for model in WIRE_MODELS {
            let wired = MockWorld::with_options(&format!("[[turn]]\ntext = '{text}'"), options);
            let done = wired.run_exec(model, &["hello"]);
            check_finished(&done, &wired.session_log(), &format!("{text}\n"));
        }
    }
}

#[test]
fn what_is_too_large_is_given_up_before_it_fills_the_memory() {
    for manner in [&[ProxyBehavior::EndlessLine], &[ProxyBehavior::Event(100 * 1024 * 1024)]] {
        let front = FaultyProxy::start_before(None, manner);
        let (done, log, _world) = run_against(&front.base, unchanged);
        let end = check_failed(&done, &log, &["anthropic", "sent more than the limit"]);
        assert_eq!(end["retryable"], false, "{end}");
        assert_eq!(front.connection_count(), 1);
        // Data sent before the limit is in the buffers of two sockets.
        assert!(
            front.sent_bytes() < MAX_EVENT_BYTES + 16 * 1024 * 1024,
            "{} bytes were taken",
            front.sent_bytes()
        );
    }
}
