# The same call fails repeatedly: the model is warned, then the run ends.
kills differ: failures are counted per process
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
