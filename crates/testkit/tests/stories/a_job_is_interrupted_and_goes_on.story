# A crash is a pause nobody asked for: the job goes on by itself and uses up no retry.
with mandate {"objective":"tidy up","retry":{"max":1}}
model > begin Tid
crash
job: running after 0
model > Tidied.
job: completed after 0
