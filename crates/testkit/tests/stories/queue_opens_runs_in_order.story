user > one
user queue > two
reply < queued
user queue > three
reply < queued
user > now
reply < refused already_running
queue: two, three
model > First.
queue: three
model > Second.
queue: empty
model > Third.
context: user one / assistant First. / user two / assistant Second. / user three / assistant Third.
pod is idle
