with hooks
hook Read > problem hook `x` exited with 1
user > read
model > Read {"path":"/project/a"}
alert < exited with 1
model > Read.
pod is idle
