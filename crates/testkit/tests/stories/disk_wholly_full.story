kills differ: the run ends where the disk was full
user > tell me
disk wholly full
model > Once upon a time.
user > hello
reply < refused …
disk back
crash
pod is paused
person > resume
model > Once more.
pod is idle
