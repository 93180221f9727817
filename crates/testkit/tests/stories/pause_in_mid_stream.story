# The partial text stays, and `resume` continues it.
user > tell me
model > begin Once upon
in flight: text Once upon
person > pause
reply < ok
pod is paused
log … assistant_item(text) llm_end(cancelled) turn_end(paused) run_completed(paused)
in flight: nothing
person > resume
reply < run
log … invoke(resume) system_item(continue) llm_call
model > a time.
pod is idle
context: user tell me / assistant Once upon / system [The reply… / assistant a time.
