user > write it
model > Put {"path":"/project/x","content":"new"}
model > Done.
log … tool_dispatch(Put) tool_result(done) run_completed(finished)
ran Put 1
pod is idle
