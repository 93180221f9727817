kills differ: a repeated dequeue finds nothing
user > one
user queue > two
person > dequeue two
reply < input two
log … queued_input(queue) dequeued(removed)
person > dequeue two
reply < refused not_found
queue: empty
model > First.
pod is idle
