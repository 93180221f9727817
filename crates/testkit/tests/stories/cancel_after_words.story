kills differ: a later cancel does not keep text that a crash has lost
user > tell me
model > begin Once upon
person > cancel
log … assistant_item(text) llm_end(cancelled) turn_end(cancelled) run_completed(cancelled)
context: user tell me / assistant Once upon
pod is idle
