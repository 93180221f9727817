# The same call that fails again and again is told of, and ends the run.
kills differ: failures are counted in one life
user > read it
model > Read {"path":"/project/none"}
model > Read {"path":"/project/none"}
model > Read {"path":"/project/none"}
alert < failed 3 times in a row
model > Read {"path":"/project/none"}
model > Read {"path":"/project/none"}
model > Read {"path":"/project/none"}
model > Read {"path":"/project/none"}
model > Read {"path":"/project/none"}
model > Read {"path":"/project/none"}
model > Read {"path":"/project/none"}
log … run_completed(limit_reached)
pod is idle
