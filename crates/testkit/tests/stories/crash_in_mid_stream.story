user > tell me
model > begin Once upon
crash
pod is paused
log … opened(pod) run_completed(interrupted)
person > resume
model > Once upon a time.
context: user tell me / assistant Once upon a time.
pod is idle
