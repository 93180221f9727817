user > tell me
person > shutdown after_run
reply < ok
pod is running
model > Once upon a time.
pod is gone
log … run_completed(finished)
boot
pod is idle
context: user tell me / assistant Once upon a time.
