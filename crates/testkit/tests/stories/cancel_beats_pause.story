kills differ: after a crash the call is lost instead of cancelled
user > note it
tools hold
model > Note {"line":"milk"}
person > pause
pod is running
person > cancel
reply < ok
pod is idle
log … tool_result(cancelled) run_completed(cancelled)
tools go
clock + 20 s
log:
