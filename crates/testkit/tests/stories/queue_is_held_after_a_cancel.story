kills differ: a cancel after a crash abandons the run
user > one
user queue > two
model > begin wor
person > cancel
queue is held
queue: two
pod is idle
user queue > three
reply < queued
queue: three
model > Two it is.

model > And three.
queue: empty
pod is idle
