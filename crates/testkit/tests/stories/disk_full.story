kills differ: the run ends where the disk was full
user > tell me
disk full
model > Once upon a time.
log … run_errored(storage_failed)
pod is idle
user > hello
reply < refused storage_failed
disk back
user > hello
reply < run
model > Hello.
pod is idle
