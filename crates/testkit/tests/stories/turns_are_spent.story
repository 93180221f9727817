# Requests are counted over the session.
kills differ: a request that was cut off counts as what it had reserved
with budget {"turns":2}
user > one
model > One.
user > two
model > Read {"path":"/project/none"}
log … run_completed(limit_reached)
user > three
reply < refused budget_exceeded
pod is idle
