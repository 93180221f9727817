//! Logs by chance: what a pod could have written, from a seed.

use serde_json::json;

use crate::log::*;

/// The same seed, the same numbers.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end.max(1)
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// A log of so many runs.
pub(crate) fn log(chance: &mut Chance, runs: usize) -> Log {
    let mut writing = Writing { log: Log::begins(), requests: 0, ids: 0, inputs: Vec::new(), kids: 0 };
    for _ in 0..runs {
        writing.run(chance);
    }
    writing.log
}

struct Writing {
    log: Log,
    requests: u64,
    ids: u64,
    /// Where inputs stand.
    inputs: Vec<usize>,
    kids: u64,
}

impl Writing {
    fn id(&mut self) -> String {
        self.ids += 1;
        format!("01970000-0000-7000-8000-{:012x}", self.ids)
    }

    fn run(&mut self, chance: &mut Chance) {
        let run = self.id();
        self.log.run = run;
        self.log.run();
        self.inputs.push(self.log.entries.len());
        let segments = json!([{ "kind": "text", "content": format!("input {}", self.inputs.len()) }]);
        self.log.add(json!({ "kind": "user_input", "segments": segments, "from": person() }));
        for _ in 0..chance.below(4) {
            self.turn(chance);
        }
        self.aside(chance);
        match chance.below(8) {
            0 => self.log.ends("paused"),
            1 => self.log.ends("rolled_back"),
            2 => self.log.ends("interrupted").add(opened()),
            3 => self.log.add(
                json!({ "kind": "run_errored", "code": "internal", "message": "m", "retryable": false }),
            ),
            _ => self.log.ends("finished"),
        };
        if chance.one_in(6) {
            let to = self.inputs[chance.below(self.inputs.len())];
            self.log.add(json!({ "kind": "rewound", "to_seq": to }));
            self.inputs.retain(|at| *at < to);
        }
        self.aside(chance);
    }

    fn turn(&mut self, chance: &mut Chance) {
        let request = self.requests;
        self.requests += 1;
        self.log.asks_model(request);
        let mut calls = Vec::new();
        for at in 0..chance.below(4) {
            let text = "word ".repeat(1 + chance.below(20));
            match chance.below(3) {
                0 => self.log.model(request, thinking(&text)),
                1 => self.log.replies(request, &text),
                _ => {
                    let id = format!("call_{request}_{at}");
                    calls.push(id.clone());
                    self.log.model(request, tool_call(&id, "Bash", &json!({ "command": text.trim() })))
                }
            };
            self.aside(chance);
        }
        self.log.model_ends(request);
        for id in calls {
            self.call(&id, chance);
        }
        self.log.add(json!({ "kind": "turn_end", "turn": 0, "result": "finished", "stop_reason": "s" }));
    }

    fn call(&mut self, id: &str, chance: &mut Chance) {
        if chance.one_in(3) {
            let ask_id = self.id();
            self.log.add(ask(&ask_id, id));
            self.aside(chance);
            if chance.one_in(6) {
                return;
            }
            let decision = if chance.one_in(2) { "approved" } else { "denied" };
            self.log.add(json!({ "kind": "answer", "id": ask_id, "decision": decision, "by": person() }));
        }
        if chance.one_in(6) {
            return;
        }
        self.log.add(dispatch(id, "Bash", &json!({ "command": "make\nall", "side_effects": true })));
        self.aside(chance);
        if chance.one_in(8) {
            return;
        }
        self.log.add(result(id, "$ make… (exit 2)", "said\nso\n", "done"));
    }

    /// Something that can come at any time.
    fn aside(&mut self, chance: &mut Chance) {
        let id = self.id();
        let segments = json!([{ "kind": "text", "content": "more" }]);
        match chance.below(12) {
            0 => self
                .log
                .add(json!({ "kind": "alert", "level": "warn", "source": "pod", "message": "careful" })),
            1 => {
                let mode = if chance.one_in(2) { "queue" } else { "steer" };
                self.log.add(json!({ "kind": "queued_input", "id": id, "segments": segments, "from": person(), "mode": mode }));
                if mode == "steer" {
                    self.log.add(json!({ "kind": "dequeued", "id": id, "why": "steered" }));
                    self.inputs.push(self.log.entries.len());
                    self.log.add(
                        json!({ "kind": "user_input", "segments": segments, "from": person(), "queued": id }),
                    )
                } else {
                    self.log.add(json!({ "kind": "dequeued", "id": id, "why": "removed" }))
                }
            }
            2 => {
                self.kids += 1;
                let name = format!("kid-{}", self.kids);
                self.log.add(json!({ "kind": "child", "session": id, "name": name, "call_id": "c", "scope": { "allow": [] } }));
                let from = json!({ "actor": "pod", "session": id });
                let mut question = ask(&self.id(), "k");
                question.as_object_mut().expect("it is one").remove("kind");
                let event = json!({ "kind": "asked", "pod_name": name, "ask": question, "socket": "/s" });
                self.log.add(json!({ "kind": "inbox", "from": from, "event": event, "wake": false }));
                self.aside(chance);
                let event = json!({ "kind": "turn_ended", "pod_name": name });
                if chance.one_in(2) {
                    self.log.add(json!({ "kind": "inbox", "from": from, "event": event, "wake": true }));
                }
                self.aside(chance);
                self.log
                    .add(json!({ "kind": "child_end", "session": id, "name": name, "outcome": "stopped" }))
            }
            3 => self.log.add(json!({ "kind": "inbox", "from": person(), "message": "psst", "wake": false })),
            4 => self.log.add(json!({ "kind": "task", "id": 1, "subject": "t", "status": "pending" })),
            _ => return,
        };
    }
}

fn opened() -> serde_json::Value {
    json!({ "kind": "opened", "epoch": 7, "pid": 1, "boot_id": "b", "host": "h", "version": "0", "as": "pod" })
}
