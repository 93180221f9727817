user > note it
tools hold
model > Note {"line":"slow"}
tool > timed out
log … tool_dispatch(Note) tool_result(timed_out) llm_call
tools go
model > It took too long.
pod is idle
