with task clean up
log …
queue: empty
model > Clean.
context: user clean up / assistant Clean.
pod is idle
