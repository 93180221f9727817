tools hold
person > call Note {"line":"mine"}
crash
log … tool_dispatch(Note) opened(pod) tool_result(lost)
ran Note 1
pod is idle
