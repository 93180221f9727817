kills differ: after a crash the call is lost instead of cancelled
user > note it
tools hold
model > Note {"line":"milk"}
person > pause
person > shutdown
pod is gone
log … tool_result(cancelled) run_completed(cancelled)
tools go
boot
pod is idle
ran Note 1
