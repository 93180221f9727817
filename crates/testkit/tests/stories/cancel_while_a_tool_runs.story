kills differ: after a crash the call is lost instead of cancelled
user > note it
tools hold
model > Note {"line":"milk"}
person > cancel
log … tool_dispatch(Note) tool_result(cancelled) turn_end(cancelled) run_completed(cancelled)
ran Note 1
tools go
pod is idle
user > and now
model > It may be there.
pod is idle
