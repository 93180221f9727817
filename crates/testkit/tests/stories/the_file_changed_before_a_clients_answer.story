with hooks
kills differ: a client repeats a call whose reply was lost
hook Put > ask because it matters
person > call Put {"path":"/project/x","content":"new"}
asks: 1
edit > /project/x theirs
person > approve
asks: 1
ran Put 0
person > approve
ran Put 1
asks: 0
pod is idle
