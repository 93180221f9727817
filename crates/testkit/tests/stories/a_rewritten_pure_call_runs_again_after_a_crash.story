with hooks
kills differ: the read may have happened before or after
hook Read > rewrite {"path":"/project/b"}
edit > /project/b bee
user > read it
tools hold
model > Read {"path":"/project/a"}
crash
person > resume
tools go
model > Read.
context: user read it / call Read / result /project/b: bee / assistant Read.
pod is idle
