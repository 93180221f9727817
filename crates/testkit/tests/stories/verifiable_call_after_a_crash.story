# The file shows that the change was made: the result is `done` and it is not made again.
kills differ: the word of the file replaces the word of the tool
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
