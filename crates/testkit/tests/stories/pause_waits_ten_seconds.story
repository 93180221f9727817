kills differ: a kill while the pause waits makes the call lost instead of cancelled
user > note it
tools hold
model > Note {"line":"milk"}
person > pause
pod is running
clock + 10 s
pod is paused
log … tool_dispatch(Note) tool_result(cancelled) turn_end(paused) run_completed(paused)
tools go
person > resume
model > It may be there.
pod is idle
