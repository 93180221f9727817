with hooks
hook prompt > rewrite be kind: hello
user > hello
model > Hi.
context: user be kind: hello / assistant Hi.
pod is idle
