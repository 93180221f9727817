kills differ: a client repeats a call whose reply was lost
person > call Sh {"command":"ls"}
reply < call
asks: 1
pod is idle
person > approve
ran Sh 1
asks: 0
log: ask answer(approved) tool_dispatch(Sh) tool_result(done)
pod is idle
