# The file shows the change: the result is `done`, and the call is not repeated.
kills differ: the result of the file check replaces that of the tool
user > write it
tools hold
model > Put {"path":"/project/x","content":"new"}
crash
pod is paused
tools go
person > resume
log … run_completed(interrupted) invoke(resume) tool_result(done) llm_call
ran Put 1
model > It is written.
pod is idle
