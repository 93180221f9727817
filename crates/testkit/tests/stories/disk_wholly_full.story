# Even the ballast does not help: the run ends when there is space again.
kills differ: the run ends where the disk was full
user > tell me
disk wholly full
model > Once upon a time.
user > hello
reply < refused …
disk back
log … run_errored(storage_failed)
pod is idle
user > hello
model > Hello.
crash
pod is idle
