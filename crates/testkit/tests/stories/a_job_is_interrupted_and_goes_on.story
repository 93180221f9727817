# A crash acts like a pause: the job continues automatically and uses no retry.
with mandate {"objective":"tidy up","retry":{"max":1}}
model > begin Tid
crash
job: running after 0
model > Tidied.
job: completed after 0
