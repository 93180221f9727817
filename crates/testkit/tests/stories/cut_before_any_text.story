# All output went into thinking: a limit was reached without an answer.
user > tell me
model > think: let me see, this may take a while
model > stop max_tokens
alert < output limit
log … assistant_item(thinking) llm_end(done) alert(worker) turn_end(finished) run_completed(limit_reached)
pod is idle
