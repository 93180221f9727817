# A user sends an input, the model answers, the run ends.
user > hello
reply < run
activity: model
model > Hello to you.
log: invoke(user_send) segment_start(initial) user_input llm_call assistant_item(text) llm_usage llm_end(done) turn_end(finished) run_completed(finished)
context: user hello / assistant Hello to you.
pod is idle
seen: Hello to you.
