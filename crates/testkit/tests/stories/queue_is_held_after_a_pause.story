user > one
user queue > two
model > begin wor
person > pause
queue is held
queue: two
pod is paused
person > resume
model > ds.

model > Two.
queue: empty
pod is idle
