# A client's call goes through the same gate and is not history.
kills differ: a call whose answer was lost is made again by its client
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
