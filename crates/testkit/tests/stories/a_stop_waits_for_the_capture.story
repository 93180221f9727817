with sandbox namespaces
user > build
model > Sh {"command":"make"}
model > Built.
person > shutdown
log … run_completed(finished) snapshot
pod is gone
