# The provider is busy: the same request is repeated after a wait.
user > tell me
model > fails busy come back later
pod is running
clock + 120 s
model > Here I am.
log … user_input llm_call assistant_item(text) llm_usage llm_end(done) turn_end run_completed(finished)
context: user tell me / assistant Here I am.
pod is idle
