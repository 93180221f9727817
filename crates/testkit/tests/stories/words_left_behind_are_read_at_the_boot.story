person > shutdown
pod is gone
visit > queue look at @notes
visit > queue not @missing
visit > queue plain
boot
model > Looked.

model > Plain.
alert < taken out of the queue: there is no file
context: user look at @notes / system content of notes / assistant Looked. / user plain / assistant Plain.
queue: empty
pod is idle
