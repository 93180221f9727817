# The input leaves the context and returns to the composer.
kills differ: a cancel after a crash abandons the run instead of rolling back
user > oh no
person > cancel
reply < ok
log … llm_end(cancelled) turn_end(cancelled) run_completed(rolled_back)
context:
pod is idle
user > rather this
model > This.
context: user rather this / assistant This.
