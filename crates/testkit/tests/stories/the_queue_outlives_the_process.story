user > one
user queue > two
signal
pod is gone
boot
pod is paused
queue: two
queue is held
person > resume
model > First.

model > Second.
queue: empty
context: user one / assistant First. / user two / assistant Second.
pod is idle
