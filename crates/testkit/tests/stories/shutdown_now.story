kills differ: after a crash the run was interrupted, not cancelled
user > tell me
model > begin Once
person > shutdown
pod is gone
log … run_completed(cancelled)
boot
pod is idle
user > hello
model > Hello.
pod is idle
