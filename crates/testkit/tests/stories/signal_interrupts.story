# A reboot loses no run: it is interrupted and can be resumed.
user > note it
tools hold
model > Note {"line":"milk"}
signal
pod is gone
log … tool_dispatch(Note) turn_end(paused) run_completed(interrupted)
tools go
boot
pod is paused
person > resume
log … invoke(resume) tool_result(lost) llm_call
ran Note 1
model > It may be there.
pod is idle
