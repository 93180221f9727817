# A rollback returns the notes that its run had drained.
kills differ: a cancel after a crash abandons the run instead of rolling back
notify quiet > by the way
user > oh no
notes: 0
person > cancel
log … system_item(notification) run_completed(rolled_back)
notes: 1
context:
user > this
context: user this / system [Notification] by the way
model > Yes.
notes: 0
pod is idle
