notify quiet > by the way
log: inbox
pod is idle
notes: 1
user > hello
model > Hello.
notes: 0
pod is idle
