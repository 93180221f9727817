kills differ: words that a crash lost are not kept by a later cancel
user > tell me
model > begin Once upon
person > cancel
log … assistant_item(text) llm_end(cancelled) turn_end(cancelled) run_completed(cancelled)
context: user tell me / assistant Once upon
pod is idle
