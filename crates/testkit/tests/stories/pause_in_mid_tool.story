# A call that is not pure gets time to end.
user > note it
tools hold
model > Note {"line":"milk"}
person > pause
reply < ok
pod is running
tool > done
pod is paused
log … tool_dispatch(Note) tool_result(done) turn_end(paused) run_completed(paused)
tools go
person > resume
model > Noted.
pod is idle
ran Note 1
