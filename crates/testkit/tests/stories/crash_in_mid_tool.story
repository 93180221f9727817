# A started once call is lost after a crash: the model gets this result, and the call never runs again.
user > note it
tools hold
model > Note {"line":"milk"}
crash
pod is paused
tools go
person > resume
log … run_completed(interrupted) invoke(resume) tool_result(lost) llm_call
ran Note 1
model > Did it work?
context: user note it / call Note / result interrupted; it may or may not… / assistant Did it work?
pod is idle
