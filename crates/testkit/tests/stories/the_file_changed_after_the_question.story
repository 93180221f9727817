with hooks
kills differ: the file may change before the ask
hook Put > ask because it matters
user > write it
model > Put {"path":"/project/x","content":"new"}
asks: 1
verdict: none
edit > /project/x theirs
person > approve
# The effect differs from the approved one: a new ask is opened.
asks: 1
ran Put 0
person > approve
ran Put 1
model > Written.
log … ask answer(approved) ask answer(approved) tool_dispatch(Put)
pod is idle
