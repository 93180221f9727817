# When the log cannot be written, no ask stays open that cannot be answered.
kills differ: the run ends where the disk was full
user > clean up
model > Sh {"command":"rm -r build"}
asks: 1
disk full
person > rename other
reply < refused storage_failed
log … ask answer(abort) tool_result(cancelled) run_errored(storage_failed)
asks: 0
pod is idle
disk back
user > hello
model > Hello.
context: user clean up / call Sh / result the log could not be written; it did not run / user hello / assistant Hello.
pod is idle
