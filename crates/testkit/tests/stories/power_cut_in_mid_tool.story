user > note it
tools hold
model > Note {"line":"milk"}
power cut
pod is paused
tools go
person > resume
ran Note 1
log … tool_dispatch(Note) run_completed(interrupted) invoke(resume) tool_result(lost)
model > Did it work?
pod is idle
