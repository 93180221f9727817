user > read it
model > Read {"path":"/project/none"}
log … tool_dispatch(Read) tool_result(failed) llm_call
model > It is not there.
pod is idle
