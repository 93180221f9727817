# A client's call passes the same gate and is not part of the history.
kills differ: a client repeats a call whose reply was lost
person > call Note {"line":"mine"}
reply < call
log: tool_dispatch(Note) tool_result(done)
noted: mine
context:
person > call Note {"lin
person > call Sing {"a":1}
log: tool_result(invalid) tool_result(invalid)
user > hello
person > call Note {"line":"beside"}
model > Hello.
context: user hello / assistant Hello.
noted: mine, beside
pod is idle
