with hooks
hook Note > rewrite {"line":"oat milk"}
user > note it
model > Note {"line":"milk"}
noted: oat milk
log … tool_dispatch(Note) tool_result(done)
model > Noted.
pod is idle
