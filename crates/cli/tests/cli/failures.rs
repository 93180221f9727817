//! What goes wrong between a pod and a provider: the documented outcome, one end of the run, a message that a person
//! can act on, and an exit code that a script can act on.

use serde_json::Value;

use crate::front::{Front, Manner};
use crate::wired::{MODELS, Wired, ends, log, point};
use crate::world::{Done, World};

/// The exit code for a provider that brought no reply.
const PROVIDER: Option<i32> = Some(5);
/// Attempts of one request.
const ATTEMPTS: usize = 6;
/// New requests after a reply that broke off.
const CONTINUATIONS: usize = 3;
/// What one event may hold; docs/reference/providers.md says so.
const EVENT_BYTES: u64 = 32 * 1024 * 1024;
/// The model that plays the bad ones.
const MODEL: &str = MODELS[0];

/// A run that failed for good: once, with this in its message.
#[track_caller]
fn failed(done: &Done, log: &[Value], words: &[&str]) -> Value {
    assert_eq!(done.code, PROVIDER, "{done:?}");
    let ends = ends(log);
    let [end] = ends.as_slice() else { panic!("one end should be there: {ends:?}") };
    assert_eq!((&end["kind"], &end["code"]), (&"run_errored".into(), &"provider_error".into()), "{end}");
    let message = end["message"].as_str().unwrap();
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
    // The person reads the same; long messages are broken into lines.
    let said = done.err.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted = message.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(&wanted), "{said}\nshould hold\n{wanted}");
    (*end).clone()
}

/// A run that came to its end after all.
#[track_caller]
fn finished(done: &Done, log: &[Value], out: &str) {
    assert_eq!((done.code, done.out.as_str()), (Some(0), out), "{done:?}");
    let ends = ends(log);
    let [end] = ends.as_slice() else { panic!("one end should be there: {ends:?}") };
    assert_eq!((&end["kind"], &end["result"]), (&"run_completed".into(), &"finished".into()), "{end}");
}

/// The newest end of a request in the log.
fn attempts(log: &[Value]) -> Vec<u64> {
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
        let wired = Wired::new(&format!("[[turn]]\nerror = {{ {error} }}\n[[turn]]\ntext = 'There.'"));
        let done = wired.exec(MODEL, &["hello"]);
        finished(&done, &wired.log(), "There.\n");
        assert_eq!(attempts(&wired.log()), [tries], "{error}");
        let requests = wired.requests();
        assert_eq!(requests.len() as u64, tries, "{error}");
        assert!(done.err.contains("attempt"), "a retry is told: {}", done.err);
        if error.contains("retry_after_s = 1") {
            let waited = requests[1]["time"].as_u64().unwrap() - requests[0]["time"].as_u64().unwrap();
            assert!(waited >= 1_000, "it came back after {waited} ms");
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
    for model in MODELS {
        let wired = Wired::new(script);
        finished(&wired.exec(model, &["hello"]), &wired.log(), "There.\n");
        assert_eq!(attempts(&wired.log()), [2], "{model}");
    }
}

#[test]
fn a_provider_that_stays_busy_ends_the_run_once() {
    for (status, words) in [(429, "no more requests"), (529, "overloaded"), (500, "failed")] {
        let error = format!("status = {status}, message = 'not now', retry_after_s = 0, times = 100");
        let wired = Wired::new(&format!("[[turn]]\nerror = {{ {error} }}"));
        let done = wired.exec(MODEL, &["hello"]);
        let end = failed(&done, &wired.log(), &["anthropic", words, "not now", "ry again"]);
        assert_eq!(end["retryable"], true, "{end}");
        assert_eq!(wired.requests().len(), ATTEMPTS);
        assert_eq!(attempts(&wired.log()), [ATTEMPTS as u64]);
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
    for model in MODELS {
        let provider = model.split('/').next().unwrap();
        for (error, words) in cases {
            let wired = Wired::new(&format!("[[turn]]\nerror = {{ {error}, times = 100 }}"));
            let done = wired.exec(model, &["hello"]);
            let end = failed(&done, &wired.log(), words);
            assert!(end["message"].as_str().unwrap().contains(provider), "{end}");
            assert_eq!(end["retryable"], false, "{model} {error}");
            assert_eq!(wired.requests().len(), 1, "{model} {error}");
        }
    }
}

#[test]
fn a_missing_key_is_named_and_nothing_is_sent() {
    let wired = Wired::new("loop = true\n[[turn]]\ntext = 'You said: {{prompt}}'");
    let without = |args: &[&str]| {
        let mut command = wired.command();
        command.env_remove("ANTHROPIC_API_KEY").arg("exec").args(args);
        let done = wired.world.done(command);
        assert!(!matches!(done.code, None | Some(0)), "{done:?}");
        for words in ["no key for anthropic", "ANTHROPIC_API_KEY", "minke login anthropic"] {
            assert!(done.err.contains(words), "`{words}` is not in: {}", done.err);
        }
    };
    without(&["--model", MODEL, "hello"]);
    assert!(!wired.world.home().join("data/sessions").exists(), "no session is made for nothing");
    assert_eq!(wired.exec(MODEL, &["hello"]).code, Some(0));
    // A session that is there takes the input, which waits; with the key it has its run, and then the next one.
    without(&["--last", "hello again"]);
    assert_eq!((ends(&wired.log()).len(), wired.requests().len()), (1, 1), "no run has begun");
    let mut command = wired.command();
    command.args(["exec", "--last", "and again"]);
    let done = wired.world.done(command);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.ends_with("You said: and again\n"), "{done:?}");
    assert_eq!((ends(&wired.log()).len(), wired.requests().len()), (3, 3));
}

/// One run in a world of its own, with every provider at this address.
fn run_at(base: &str, settle: impl FnOnce(&mut std::process::Command, &World)) -> (Done, Vec<Value>, World) {
    let world = World::new();
    let mut command = world.command();
    point(&mut command, base);
    settle(&mut command, &world);
    command.args(["exec", "--model", MODEL, "hello"]);
    let done = world.done(command);
    let log = log(&world);
    (done, log, world)
}

fn as_it_is(_: &mut std::process::Command, _: &World) {}

#[test]
fn a_server_without_tls_is_not_spoken_to_safely() {
    let wired = Wired::new("[[turn]]\ntext = 'never'");
    let (done, log, _world) = run_at(&format!("https://{}", wired.address()), as_it_is);
    let end = failed(&done, &log, &["no safe connection to anthropic", "https", "ertificate"]);
    assert_eq!(end["retryable"], false);
    assert!(wired.requests().is_empty());
}

/// A port of this machine on which nobody listens.
fn nobody() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn a_refused_connection_is_tried_again_and_then_told() {
    let (done, log, _world) = run_at(&format!("http://{}", nobody()), as_it_is);
    let end = failed(&done, &log, &["no connection to anthropic at http://127.0.0.1", "refused"]);
    assert_eq!(end["retryable"], true);
    assert_eq!(attempts(&log), [ATTEMPTS as u64]);
}

#[test]
fn a_dead_proxy_is_named() {
    let proxy = format!("http://{}", nobody());
    let (done, log, _world) = run_at("http://provider.invalid", |command, _| {
        command.env("HTTP_PROXY", &proxy).env("http_proxy", &proxy);
    });
    failed(&done, &log, &["anthropic", "proxy", &proxy, "NO_PROXY"]);
    assert_eq!(attempts(&log), [ATTEMPTS as u64]);
}

#[test]
fn proxy_variables_are_used_and_exceptions_heeded() {
    let wired = Wired::new("loop = true\n[[turn]]\ntext = 'There.'");
    let proxy = format!("http://{}", wired.address());
    // A name that only a proxy can find.
    let (done, log, _world) = run_at("http://provider.invalid", |command, _| {
        command.env("http_proxy", &proxy);
    });
    finished(&done, &log, "There.\n");
    assert_eq!(wired.requests()[0]["headers"]["host"], "provider.invalid");
    let dead = format!("http://{}", nobody());
    let (done, log, _world) = run_at(&proxy, |command, _| {
        command.env("http_proxy", &dead).env("no_proxy", "127.0.0.1");
    });
    finished(&done, &log, "There.\n");
}

/// Deadlines of a second for one provider.
fn hurried(_: &mut std::process::Command, world: &World) {
    let config = world.home().join("config");
    std::fs::create_dir_all(&config).unwrap();
    let text = "[anthropic]\ntimeouts = { first_byte_s = 1, idle_s = 1 }\n";
    std::fs::write(config.join("providers.toml"), text).unwrap();
}

#[test]
fn a_silent_server_is_left_and_asked_again() {
    let wired = Wired::new("[[turn]]\ntext = 'There.'");
    let front = Front::before(Some(wired.address()), &[Manner::Silent, Manner::Forward]);
    let (done, log, _world) = run_at(&front.base, hurried);
    finished(&done, &log, "There.\n");
    assert_eq!(attempts(&log), [2]);
    assert!(done.err.contains("took too long"), "{}", done.err);
}

#[test]
fn a_reply_that_stalls_is_continued_with_what_was_said() {
    let script =
        "[[turn]]\ntext = ['First ', 'STALL', ' lost']\n[[turn]]\nexpect = ''\ntext = ' and the rest.'";
    let wired = Wired::new(script);
    let front = Front::before(Some(wired.address()), &[Manner::StallAt("STALL"), Manner::Forward]);
    let (done, log, _world) = run_at(&front.base, hurried);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.contains("First ") && done.out.contains(" and the rest."), "{done:?}");
    assert_eq!(ends(&log).len(), 1);
    let kept = log.iter().filter(|entry| entry["kind"] == "assistant_item").count();
    assert_eq!(kept, 2, "what was said is kept once: {log:#?}");
    assert_eq!(wired.requests().len(), 2);
}

#[test]
fn a_connection_cut_in_an_event_is_continued() {
    let script =
        "chunk = 6\n[[turn]]\ntext = 'First words, lost words'\ncut = true\n[[turn]]\ntext = 'The rest.'";
    for model in MODELS {
        let wired = Wired::with(script, &["--cut-in-event"]);
        let done = wired.exec(model, &["hello"]);
        assert_eq!(done.code, Some(0), "{model}: {done:?}");
        assert!(done.out.contains("First words") && done.out.contains("The rest."), "{model}: {done:?}");
        let log = wired.log();
        assert_eq!(ends(&log).len(), 1, "{model}");
        let outcomes: Vec<&Value> =
            log.iter().filter(|entry| entry["kind"] == "llm_end").map(|entry| &entry["outcome"]).collect();
        assert_eq!(outcomes, ["broken", "done"], "{model}");
        assert_eq!(wired.requests().len(), 2, "{model}");
    }
}

#[test]
fn an_error_in_mid_reply_is_continued() {
    let script = "
        [[turn]]
        steps = [{ text = 'First words' }, { error = { status = 529, message = 'busy' } }]
        [[turn]]
        text = 'The rest.'";
    for model in MODELS {
        let wired = Wired::new(script);
        let done = wired.exec(model, &["hello"]);
        assert_eq!(done.code, Some(0), "{model}: {done:?}");
        assert!(done.out.contains("First words") && done.out.contains("The rest."), "{model}: {done:?}");
        assert_eq!((ends(&wired.log()).len(), wired.requests().len()), (1, 2), "{model}");
    }
}

#[test]
fn a_reply_that_is_always_cut_ends_the_run_once() {
    let wired = Wired::new("loop = true\n[[turn]]\ntext = 'Some words'\ncut_after = 4");
    let done = wired.exec(MODEL, &["hello"]);
    let end = failed(&done, &wired.log(), &["anthropic", "ended before it was complete", "again"]);
    assert_eq!(end["retryable"], true, "{end}");
    assert_eq!(wired.requests().len(), 1 + CONTINUATIONS);
    let kept = wired.log().iter().filter(|entry| entry["kind"] == "assistant_item").count();
    assert_eq!(kept, 1 + CONTINUATIONS, "what was said is kept");
}

#[test]
fn a_long_wait_is_seen_and_can_be_left() {
    let script = "[[turn]]\nerror = { status = 429, message = 'later', retry_after_s = 90, times = 6 }";
    let wired = Wired::new(script);
    let mut command = wired.command();
    command.args(["exec", "--model", MODEL, "hello"]);
    let mut going = wired.world.start_command(command);
    // As news, or from the log if it waited already when we came.
    let told = going.until_said("attempt");
    assert!(told.contains("anthropic") && told.contains("later"), "{told}");
    going.signal(rustix::process::Signal::INT);
    assert_eq!(going.end().code, Some(130));
    let log = wired.log();
    let wait = log.iter().find(|entry| entry["kind"] == "state" && entry["state"] == "waiting").unwrap();
    assert_eq!(wait["on"], "time", "{wait}");
    let ms = wait["until"].as_u64().unwrap() - wait["ts"].as_u64().unwrap();
    assert!((89_000..=91_000).contains(&ms), "it waits for {ms} ms");
    assert_eq!((ends(&log).len(), wired.requests().len()), (1, 1));
}

#[test]
fn a_reply_that_is_cancelled_leaves_what_had_come_of_it() {
    let script =
        "[[turn]]\nsteps = [{ text = \"Once upon\\n\" }, { delay_ms = 600000 }, { text = \"a time\" }]";
    let wired = Wired::new(script);
    let mut command = wired.command();
    command.args(["exec", "--model", MODEL, "hello"]);
    let mut going = wired.world.start_command(command);
    going.until("Once upon");
    going.signal(rustix::process::Signal::INT);
    assert_eq!(going.end().code, Some(130));
    let log = wired.log();
    let end = log.iter().find(|entry| entry["kind"] == "llm_end").unwrap();
    assert_eq!(end["outcome"], "cancelled", "{end}");
    let name = end["stream_blob"].as_str().expect("what had come is recorded");
    let sessions = std::fs::read_dir(wired.world.home().join("data/sessions")).unwrap();
    let session = sessions.map(|entry| entry.unwrap().path()).next().unwrap();
    let blob = std::fs::read(session.join("blobs").join(name)).unwrap();
    let recording = minke_llm::Recording::read(&blob).unwrap();
    let said = String::from_utf8_lossy(&recording.attempts[0].bytes).into_owned();
    assert!(said.contains("Once upon") && !said.contains("a time"), "{said}");
    wired.world.verify();
}

#[test]
fn any_framing_and_compression_is_read() {
    let text = "Größer als „alles“ 🐋.";
    for options in
        [&["--gzip"][..], &["--split", "1"], &["--split", "random:7", "--crlf", "--comments", "--gzip"]]
    {
        for model in MODELS {
            let wired = Wired::with(&format!("[[turn]]\ntext = '{text}'"), options);
            let done = wired.exec(model, &["hello"]);
            finished(&done, &wired.log(), &format!("{text}\n"));
        }
    }
}

#[test]
fn what_is_too_large_is_given_up_before_it_fills_the_memory() {
    for manner in [&[Manner::EndlessLine], &[Manner::Event(100 * 1024 * 1024)]] {
        let front = Front::before(None, manner);
        let (done, log, _world) = run_at(&front.base, as_it_is);
        let end = failed(&done, &log, &["anthropic", "sent more than is taken"]);
        assert_eq!(end["retryable"], false, "{end}");
        assert_eq!(front.connections(), 1);
        // What was on its way when the line was drawn lies in the buffers of two sockets.
        assert!(front.sent() < EVENT_BYTES + 16 * 1024 * 1024, "{} bytes were taken", front.sent());
    }
}
