kills differ: the run ends where the disk was full
user > note it
tools hold
model > Note {"line":"milk"}
disk full
tool > done
log … tool_dispatch(Note) tool_result(lost) run_errored(storage_failed)
ran Note 1
tools go
disk back
user > and now
model > It may be there.
ran Note 1
pod is idle
