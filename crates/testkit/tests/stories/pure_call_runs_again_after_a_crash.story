user > read it
tools hold
model > Read {"path":"/project/none"}
crash
tools go
person > resume
ran Read 2
model > It is not there.
log … tool_dispatch(Read) run_completed(interrupted) invoke(resume) tool_result(failed) run_completed(finished)
pod is idle
