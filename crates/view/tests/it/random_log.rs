//! Random logs that a pod could have written, from a seed.

use serde_json::json;

use crate::log_builder::*;

/// A seeded random number generator.
pub(crate) struct SeededRng(u64);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> SeededRng {
        SeededRng(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn next_below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end.max(1)
    }

    pub(crate) fn is_one_in(&mut self, n: usize) -> bool {
        self.next_below(n) == 0
    }
}

/// Returns a log with `runs` runs.
pub(crate) fn random_log(rng: &mut SeededRng, runs: usize) -> LogBuilder {
    let mut writing = RandomLogWriter {
        random_log: LogBuilder::with_session_start(),
        requests: 0,
        ids: 0,
        inputs: Vec::new(),
        child_count: 0,
    };
    for _ in 0..runs {
        writing.write_run(rng);
    }
    writing.random_log
}

struct RandomLogWriter {
    random_log: LogBuilder,
    requests: u64,
    ids: u64,
    /// Numbers of the input entries.
    inputs: Vec<usize>,
    child_count: u64,
}

impl RandomLogWriter {
    fn next_id(&mut self) -> String {
        self.ids += 1;
        format!("01970000-0000-7000-8000-{:012x}", self.ids)
    }

    fn write_run(&mut self, rng: &mut SeededRng) {
        let run = self.next_id();
        self.random_log.run = run;
        self.random_log.add_run();
        self.inputs.push(self.random_log.entries.len());
        let segments = json!([{ "kind": "text", "content": format!("input {}", self.inputs.len()) }]);
        self.random_log
            .add_entry(json!({ "kind": "user_input", "segments": segments, "from": user_actor() }));
        for _ in 0..rng.next_below(4) {
            self.write_turn(rng);
        }
        self.write_extra(rng);
        match rng.next_below(8) {
            0 => self.random_log.end_run("paused"),
            1 => self.random_log.end_run("rolled_back"),
            2 => self.random_log.end_run("interrupted").add_entry(opened_json()),
            3 => self.random_log.add_entry(
                json!({ "kind": "run_errored", "code": "internal", "message": "m", "retryable": false }),
            ),
            _ => self.random_log.end_run("finished"),
        };
        if rng.is_one_in(6) {
            let to = self.inputs[rng.next_below(self.inputs.len())];
            self.random_log.add_entry(json!({ "kind": "rewound", "to_seq": to }));
            self.inputs.retain(|at| *at < to);
        }
        self.write_extra(rng);
    }

    fn write_turn(&mut self, chance: &mut SeededRng) {
        let request = self.requests;
        self.requests += 1;
        self.random_log.add_llm_call(request);
        let mut calls = Vec::new();
        for at in 0..chance.next_below(4) {
            let text = "word ".repeat(1 + chance.next_below(20));
            match chance.next_below(3) {
                0 => self.random_log.add_item(request, thinking_json(&text)),
                1 => self.random_log.add_reply(request, &text),
                _ => {
                    let id = format!("call_{request}_{at}");
                    calls.push(id.clone());
                    self.random_log
                        .add_item(request, tool_call_json(&id, "Bash", &json!({ "command": text.trim() })))
                }
            };
            self.write_extra(chance);
        }
        self.random_log.add_llm_end(request);
        for id in calls {
            self.write_call(&id, chance);
        }
        self.random_log
            .add_entry(json!({ "kind": "turn_end", "turn": 0, "result": "finished", "stop_reason": "s" }));
    }

    fn write_call(&mut self, id: &str, rng: &mut SeededRng) {
        if rng.is_one_in(3) {
            let ask_id = self.next_id();
            self.random_log.add_entry(ask_json(&ask_id, id));
            self.write_extra(rng);
            if rng.is_one_in(6) {
                return;
            }
            let decision = if rng.is_one_in(2) { "approved" } else { "denied" };
            self.random_log.add_entry(
                json!({ "kind": "answer", "id": ask_id, "decision": decision, "by": user_actor() }),
            );
        }
        if rng.is_one_in(6) {
            return;
        }
        self.random_log.add_entry(dispatch_json(
            id,
            "Bash",
            &json!({ "command": "make\nall", "side_effects": true }),
        ));
        self.write_extra(rng);
        if rng.is_one_in(8) {
            return;
        }
        self.random_log.add_entry(result_json(id, "$ make… (exit 2)", "said\nso\n", "done"));
    }

    /// An event that can occur at any time.
    fn write_extra(&mut self, rng: &mut SeededRng) {
        let id = self.next_id();
        let segments = json!([{ "kind": "text", "content": "more" }]);
        match rng.next_below(12) {
            0 => self.random_log.add_entry(
                json!({ "kind": "alert", "level": "warn", "source": "pod", "message": "careful" }),
            ),
            1 => {
                let mode = if rng.is_one_in(2) { "queue" } else { "steer" };
                self.random_log.add_entry(json!({ "kind": "queued_input", "id": id, "segments": segments, "from": user_actor(), "mode": mode }));
                if mode == "steer" {
                    self.random_log.add_entry(json!({ "kind": "dequeued", "id": id, "why": "steered" }));
                    self.inputs.push(self.random_log.entries.len());
                    self.random_log.add_entry(
                        json!({ "kind": "user_input", "segments": segments, "from": user_actor(), "queued": id }),
                    )
                } else {
                    self.random_log.add_entry(json!({ "kind": "dequeued", "id": id, "why": "removed" }))
                }
            }
            2 => {
                self.child_count += 1;
                let name = format!("kid-{}", self.child_count);
                self.random_log.add_entry(json!({ "kind": "child", "session": id, "name": name, "call_id": "c", "scope": { "allow": [] } }));
                let from = json!({ "actor": "pod", "session": id });
                let mut question = ask_json(&self.next_id(), "k");
                question.as_object_mut().expect("it is one").remove("kind");
                let event = json!({ "kind": "asked", "pod_name": name, "ask": question, "socket": "/s" });
                self.random_log
                    .add_entry(json!({ "kind": "inbox", "from": from, "event": event, "wake": false }));
                self.write_extra(rng);
                let event = json!({ "kind": "turn_ended", "pod_name": name });
                if rng.is_one_in(2) {
                    self.random_log
                        .add_entry(json!({ "kind": "inbox", "from": from, "event": event, "wake": true }));
                }
                self.write_extra(rng);
                self.random_log.add_entry(
                    json!({ "kind": "child_end", "session": id, "name": name, "outcome": "stopped" }),
                )
            }
            3 => self.random_log.add_entry(
                json!({ "kind": "inbox", "from": user_actor(), "message": "psst", "wake": false }),
            ),
            4 => self
                .random_log
                .add_entry(json!({ "kind": "task", "id": 1, "subject": "t", "status": "pending" })),
            _ => return,
        };
    }
}

fn opened_json() -> serde_json::Value {
    json!({ "kind": "opened", "epoch": 7, "pid": 1, "boot_id": "b", "host": "h", "version": "0", "as": "pod" })
}
