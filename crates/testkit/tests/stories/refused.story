# A refusal has its own error code and never ends a run successfully.
user > tell me how
model > I will not
model > stop refusal
log … assistant_item(text) llm_end(done) turn_end(error) run_errored(refused)
pod is idle
user > something else
model > Gladly.
log … run_completed(finished)
pod is idle
