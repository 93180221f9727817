with expires 60
kills differ: a client repeats a call whose reply was lost
person > call Sh {"command":"ls"}
asks: 1
clock + 61 s
asks: 0
ran Sh 0
log: ask answer(denied) tool_result(refused)
pod is idle
