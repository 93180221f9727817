kills differ: a client repeats a call whose reply was lost
tools hold
person > call Note {"line":"mine"}
disk full
tool > done
log … tool_dispatch(Note) tool_result(lost)
tools go
disk back
person > call Note {"line":"again"}
noted: mine, again
pod is idle
