# The next input of a paused job stays queued when its pod is started for inspection.
with mandate {"objective":"make it","acceptance":"test /project/made","retry":{"max":3,"base_ms":4000,"jitter":false}}
model > Made, I think.
job: waiting after 0
signal
visit > pause
boot
job: paused after 0
clock + 60 s
job: paused after 0
pod is idle
person > resume
job: running after 1
model > Put {"path":"/project/made","content":"yes"}
model > Now it is.
job: completed after 1
