# The provider requests a wait of minutes: the run shows that it waits.
user > tell me
model > fails for 300 s come back later
activity: time
waits on time
log … llm_call state
pod is running
clock + 301 s
activity: model
log … state
model > Here I am.
log … assistant_item(text) llm_usage llm_end(done) turn_end run_completed(finished)
context: user tell me / assistant Here I am.
pod is idle
