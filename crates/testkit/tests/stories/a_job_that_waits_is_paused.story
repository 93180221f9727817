# A job that waits for its next attempt can be paused, resumed and cancelled although no run is open.
kills differ: a wait that was over when the process came back is not repeated
with mandate {"objective":"tidy up","retry":{"max":3,"base_ms":4000,"jitter":false}}
model > fails for 7200 s busy
job: waiting
person > pause
reply < ok
job: paused after 0
clock + 60 s
job: paused after 0
person > resume
job: running after 1
model > fails for 7200 s busy
job: waiting after 1
person > resume
job: running after 2
model > fails for 7200 s busy
person > cancel
job: cancelled after 2
clock + 600 s
job: cancelled
pod is idle
