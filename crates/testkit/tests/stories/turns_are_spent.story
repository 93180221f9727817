# Requests are counted over the session.
kills differ: an interrupted request counts with its reservation
with budget {"turns":2}
user > one
model > One.
user > two
model > Read {"path":"/project/none"}
log … run_completed(limit_reached)
user > three
reply < refused budget_exceeded
pod is idle
